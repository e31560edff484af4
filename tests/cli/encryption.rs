//! Encrypted databases: keys from the environment, refusals, rotation, and what is readable on the disk.

use std::{fs, path::Path, process};

use serde_json::{Value, json};
use superstep_testing::script::{Answer, call, txt};
use tokio::process::Command;

use crate::{
    jobs::database,
    listed::{assert_all_tried, commands, own_commands},
    postgres::{assert_secret, server},
    support::{Place, Ran, Running, ended, received, serve},
};

/// A word of prompts.
const PROMPT: &str = "swordfish";

/// A word of a file that the agent reads.
const RESULT: &str = "needle";

const CONFIG: &str = "[memory]\nstore = \"sqlite\"\npath = \"m.db\"\n";

/// A user with a database and keys.
pub(crate) struct User<'a> {
    place: &'a Place,
    /// The URL of a server, or the folder's own database.
    url: Option<&'a str>,
    key: &'a str,
    old: &'a str,
}

impl<'a> User<'a> {
    pub(crate) fn new(place: &'a Place, key: &'a str) -> Self {
        Self { place, url: None, key, old: "" }
    }

    pub(crate) fn with_keys(&self, key: &'a str, old: &'a str) -> Self {
        Self { key, old, ..*self }
    }

    fn of(&self, place: &'a Place) -> Self {
        Self { place, ..*self }
    }

    pub(crate) fn set(&self, command: &mut Command) {
        let variables = [("SUPERSTEP_DB", self.url.unwrap_or_default()), ("SUPERSTEP_OLD_KEY", self.old)];
        command.envs(variables);
        if !self.key.is_empty() {
            command.env("SUPERSTEP_KEY", self.key);
        }
    }

    pub(crate) async fn ended(&self, mut command: Command) -> Ran {
        self.set(&mut command);
        let ran = ended(&mut command).await;
        assert_secret(&ran);
        for key in [self.key, self.old].iter().flat_map(|keys| keys.split(',')).filter(|key| !key.is_empty())
        {
            assert!(!ran.stdout.contains(key) && !ran.stderr.contains(key), "{ran:?}");
        }
        ran
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Ran {
        self.ended(self.place.command(args)).await
    }

    async fn own(&self, args: &[&str]) -> Ran {
        self.ended(self.place.own_command(args)).await
    }

    pub(crate) async fn turn(&self, thread: &str) -> Ran {
        self.run(&["run", "2+2", "--model", "offline", "-q", "--no-memory", "--thread", thread]).await
    }

    pub(crate) async fn rekeyed(&self) -> Value {
        self.run(&["db", "rekey", "--json"]).await.ok().lines().remove(0)
    }
}

/// Makes a key by the program, and returns it with its id.
pub(crate) async fn new_key(place: &Place) -> (String, String) {
    let made = place.run(&["db", "key"]).await.ok();
    assert!(made.stderr.contains("store it apart from the database"), "{made:?}");
    let id = made.stderr.split('`').nth(1).unwrap().to_owned();
    (made.stdout.trim().to_owned(), id)
}

#[track_caller]
pub(crate) fn assert_refused(ran: &Ran, code: i32, expected: &str) {
    assert!(ran.code == Some(code) && ran.stderr.contains(expected), "wanted {expected}, got {ran:?}");
}

/// Asserts that no file below a folder contains a text, except those of a name.
#[track_caller]
fn assert_absent(folder: &Path, texts: &[&str], except: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_absent(&path, texts, except);
        } else if !path.ends_with(except) {
            let bytes = fs::read(&path).unwrap();
            for text in texts {
                let is_found = bytes.windows(text.len()).any(|part| part == text.as_bytes());
                assert!(!is_found, "{} has {text}", path.display());
            }
        }
    }
}

/// The commands that read or change the thread `a`.
const COMMANDS: [&[&str]; 18] = [
    &["state", "a"],
    &["history", "a"],
    &["diff", "a@1", "a@2"],
    &["export", "a"],
    &["replay", "a"],
    &["watch", "a"],
    &["draw", "--thread", "a"],
    &["run", "1+1", "--thread", "a", "--model", "offline", "--no-memory"],
    &["resume", "a", "--model", "offline"],
    &["steer", "a", "hello"],
    &["pin", "a", "hello"],
    &["copy", "a", "b"],
    &["adopt", "a"],
    &["prune", "a", "--leaves", "--yes"],
    &["revert", "a", "--to", "1"],
    &["db", "check"],
    &["db", "prune", "--leaves", "--yes"],
    &["import", "a.jsonl", "--as", "c"],
];

/// Turns, every command, rotation, and a text that goes elsewhere, on any database.
async fn lives_encrypted(place: &Place, url: Option<&str>) {
    let ((one, one_id), (two, two_id)) = (new_key(place).await, new_key(place).await);
    assert_ne!(one, two);
    let user = User { url, ..User::new(place, &one) };
    let prompt = format!("What does notes.txt say about {PROMPT} and {RESULT}?");
    let run = ["run", &prompt, "--model", "offline", "--no-memory", "--thread", "a", "--json"];
    let ran = user.run(&run).await.ok();
    assert!(ran.stdout.contains(RESULT), "{ran:?}");
    let text = user.run(&["export", "a"]).await.ok().stdout;
    assert!(text.contains(PROMPT) && text.contains("the needle is here"), "{text}");
    place.file("a.jsonl", &text);

    // Without the key, and with another one.
    for (keys, hint) in [("", "SUPERSTEP_KEY"), (&*two, "SUPERSTEP_OLD_KEY")] {
        let stranger = user.with_keys(keys, "");
        for command in COMMANDS {
            let ran = stranger.run(command).await;
            let said = format!("{}{}", ran.stdout, ran.stderr);
            let expected = match command[0] {
                // Another key is right for another thread.
                "import" if !keys.is_empty() => {
                    ran.ok();
                    stranger.run(&["delete", "c", "--yes"]).await.ok();
                    continue;
                }
                "import" => format!("SS316: the database is encrypted with key `{one_id}`"),
                _ => format!("SS316: thread `a` is encrypted with key `{one_id}`"),
            };
            assert!(ran.code == Some(4) && said.contains(&expected), "{command:?}: {ran:?}");
            assert!(said.contains(hint) && !said.contains(PROMPT), "{command:?}: {ran:?}");
        }
        let listed = stranger.run(&["threads"]).await.ok();
        assert!(listed.stdout.contains("cannot be read") && listed.stderr.contains(&one_id), "{listed:?}");
        let stats = stranger.run(&["db", "stats", "--json"]).await.ok().lines().remove(0);
        assert_eq!((&stats["threads"], &stats["damaged_threads"]), (&json!(1), &json!(1)), "{stats}");
    }
    let plain = user.with_keys("", "");
    assert_refused(&plain.turn("new").await, 4, "thread `new` is not stored readable in it");

    // All commands with the key.
    for command in COMMANDS {
        let ran = user.run(command).await;
        assert!(!ran.stderr.contains("SS316"), "{command:?}: {ran:?}");
    }
    user.run(&["replay", "c", "--strict"]).await.ok();
    let moved = user.run(&["export", "c"]).await.ok().stdout;
    let lines = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&moved), lines(&text), "an import is the same thread");

    // Rotation.
    assert_refused(&user.with_keys(&two, "").run(&["db", "rekey"]).await, 4, &one_id);
    let both = user.with_keys(&two, &one);
    let (rekeyed, again) = (both.rekeyed().await, both.rekeyed().await);
    assert_eq!((&rekeyed["changed"], &rekeyed["failed"]), (&json!(3), &json!(false)), "{rekeyed}");
    assert_eq!((&again["changed"], &again["current"]), (&json!(0), &json!(3)), "{again}");
    let new = user.with_keys(&two, "");
    new.turn("a").await.ok();
    new.run(&["db", "check"]).await.ok();
    let stats = new.run(&["db", "stats", "--json"]).await.ok().lines().remove(0);
    assert_eq!((&stats["threads"], &stats["damaged_threads"]), (&json!(3), &json!(0)), "{stats}");
    assert_refused(&user.run(&["state", "a"]).await, 4, &format!("encrypted with key `{two_id}`"));

    // A thread whose key is lost can be deleted.
    plain.run(&["delete", "c", "--yes"]).await.ok();
    // Its text is readable elsewhere.
    let other = Place::new();
    other.file("a.jsonl", &text);
    other.run(&["import", "a.jsonl"]).await.ok();
    other.run(&["replay", "a", "--strict"]).await.ok();
    fs::remove_file(place.work().join("a.jsonl")).unwrap();
    for key in [&one, &two] {
        assert_absent(&place.beside(""), &[PROMPT, key], "no file");
    }
}

#[tokio::test]
async fn a_database_is_encrypted_rekeyed_and_useless_without_its_key() {
    let place = Place::new();
    let commands = commands(&place).await;
    let with_database = commands.iter().filter(|command| command.has_database());
    // These take any thread, have tests of their own, or read no thread.
    let others = [
        "acp",
        "chat",
        "db migrate",
        "db rekey",
        "db stats",
        "db vacuum",
        "delete",
        "doctor",
        "dream",
        "jobs",
        "memory",
        "serve",
        "threads",
        "usage",
        "worker",
    ];
    assert_all_tried(with_database, COMMANDS, &others);
    lives_encrypted(&place, None).await;
    assert_absent(&place.beside(""), &[PROMPT, RESULT], "notes.txt");
}

#[tokio::test]
async fn a_database_of_a_server_is_encrypted_as_well() {
    let Some(server) = server::shared() else { return };
    let (place, url) = (Place::new(), database(server, "encrypted"));
    lives_encrypted(&place, Some(&url)).await;
    let dump = process::Command::new("pg_dump")
        .args(["--username=test", "--host"])
        .arg(server.folder())
        .arg("encrypted")
        .output()
        .unwrap();
    let dump = String::from_utf8(dump.stdout).unwrap();
    assert!(dump.contains("$sealed") && !dump.contains(PROMPT) && !dump.contains(RESULT));
}

#[tokio::test]
async fn memories_in_a_database_are_encrypted_and_rekeyed() {
    let place = Place::new();
    let ((one, one_id), (two, _)) = (new_key(&place).await, new_key(&place).await);
    place.file("m.toml", CONFIG);
    let (user, config) = (User::new(&place, &one), ["--config", "m.toml"]);
    let memory = |args: &[&'static str]| [&["memory"], args, &config].concat();
    user.run(&memory(&["add", "I like swordfish"])).await.ok();
    assert_absent(&place.beside(""), &[PROMPT, &one], "no file");
    let found = user.run(&memory(&["search", "swordfish"])).await.ok();
    assert!(found.stdout.contains("I like swordfish"), "{found:?}");
    for (keys, error) in [("", "is encrypted with key"), (&*two, "SS316: the store is encrypted with key")] {
        let stranger = user.with_keys(keys, "");
        for args in [&["list"][..], &["add", "I like tea"]] {
            let refused = stranger.run(&memory(args)).await;
            assert_refused(&refused, 4, if args.len() > 1 { "SS316: the store is" } else { error });
            assert!(refused.stderr.contains(&one_id), "{refused:?}");
        }
    }
    let both = user.with_keys(&two, &one);
    assert_eq!(both.run(&memory(&["rekey"])).await.ok().stdout, "rekeyed the memory\n");
    assert_eq!(both.run(&memory(&["rekey"])).await.ok().stdout, "nothing to rekey\n");
    assert_refused(&both.run(&["memory", "rekey"]).await, 2, "only a memory with `store = \"sqlite\"`");
    let new = user.with_keys(&two, "");
    let turn = [&["run", "2+2", "--model", "offline", "-q", "--thread", "t"][..], &config].concat();
    new.run(&turn).await.ok();
    assert!(new.run(&memory(&["list"])).await.ok().stdout.contains("I like swordfish"));
}

#[tokio::test]
async fn readable_threads_continue_encrypted_unless_that_is_required() {
    let place = Place::new();
    let plain = User::new(&place, "");
    plain.turn("a").await.ok();
    plain.turn("b").await.ok();
    let (key, _) = new_key(&place).await;
    let user = User::new(&place, &key);
    let required = async |args: &[&str]| {
        let mut command = place.command(args);
        command.env("SUPERSTEP_REQUIRE_ENCRYPTION", "true");
        user.ended(command).await
    };
    let error = "SS317: checkpoint ";
    assert_refused(&required(&["state", "a"]).await, 4, error);
    assert_refused(&required(&["run", "1+1", "--model", "offline", "--thread", "a"]).await, 4, error);
    let rekeyed = user.run(&["db", "rekey"]).await.ok();
    assert_eq!(rekeyed.stdout, "rekeyed 0 threads, 0 had the key already, 2 not encrypted\n");
    user.run(&["state", "a"]).await.ok();
    user.turn("a").await.ok();
    let rekeyed = user.run(&["db", "rekey"]).await.ok();
    assert_eq!(rekeyed.stdout, "rekeyed 0 threads, 1 had the key already, 1 not encrypted\n");
    assert_refused(&plain.run(&["state", "a"]).await, 4, "SS316");
    // Its first turn is still readable, until it is pruned.
    assert_refused(&required(&["state", "a", "--at", "1"]).await, 4, error);
    user.run(&["prune", "a", "--keep-last", "1", "--yes"]).await.ok();
    required(&["replay", "a"]).await.ok();
    required(&["run", "1+1", "--model", "offline", "-q", "--thread", "a"]).await.ok();
    // The other is stored anew.
    let text = user.run(&["export", "b"]).await.ok().stdout;
    place.file("b.jsonl", &text);
    user.run(&["delete", "b", "--yes"]).await.ok();
    let imported = required(&["import", "b.jsonl"]).await.ok();
    assert!(imported.stdout.contains("imported thread `b`"), "{imported:?}");
    required(&["db", "check"]).await.ok();

    // What is never encrypted is not begun.
    place.file("f.toml", "[memory]\nstore = \"file\"\n");
    place.file("d.toml", "preset = \"cococat\"\n[dream]\n[memory]\nstore = \"file\"\n");
    for (args, what) in [
        (&["memory", "add", "I like tea"][..], "memories in files are not encrypted"),
        (
            &["run", "1+1", "--model", "offline", "--config", "f.toml"],
            "memories in files are not encrypted, and `SUPERSTEP_REQUIRE_ENCRYPTION` is set",
        ),
        (
            &["run", "1+1", "--model", "offline", "--config", "d.toml"],
            "turns recorded for dreams are not encrypted",
        ),
    ] {
        assert_refused(&required(args).await, 2, what);
    }
    let noted = required(&["run", "1+1", "--model", "offline"]).await.ok();
    assert!(noted.stderr.contains("no long-term memory: memories in files are not encrypted"), "{noted:?}");
}

#[tokio::test]
async fn wrong_variables_are_refused_without_the_key_in_the_message() {
    let place = Place::new();
    let run = async |variables: &[(&str, &str)]| {
        let mut command = place.command(&["threads"]);
        command.envs(variables.iter().copied());
        ended(&mut command).await
    };
    let secret = "c3VwZXIgc2VjcmV0";
    for (variables, expected) in [
        (
            &[("SUPERSTEP_KEY", secret)][..],
            "the variable `SUPERSTEP_KEY` is not valid: a key is 32 random bytes in Base64",
        ),
        (&[("SUPERSTEP_KEY", "")], "the variable `SUPERSTEP_KEY` is not valid: a key in it is empty"),
        (
            &[("SUPERSTEP_OLD_KEY", secret)],
            "the variable `SUPERSTEP_OLD_KEY` is set, and `SUPERSTEP_KEY` is not",
        ),
        (
            &[("SUPERSTEP_REQUIRE_ENCRYPTION", "true")],
            "the variable `SUPERSTEP_REQUIRE_ENCRYPTION` is set, and `SUPERSTEP_KEY` is not",
        ),
        (
            &[("SUPERSTEP_REQUIRE_ENCRYPTION", "yes")],
            "the variable `SUPERSTEP_REQUIRE_ENCRYPTION` is not valid: it is neither `true` nor `false`",
        ),
    ] {
        let refused = run(variables).await;
        assert_refused(&refused, 2, expected);
        assert!(!refused.stderr.contains(secret), "{refused:?}");
    }
    let (key, _) = new_key(&place).await;
    let old = User { old: secret, ..User::new(&place, &key) };
    assert_refused(&old.run(&["threads"]).await, 2, "the variable `SUPERSTEP_OLD_KEY` is not valid");
    assert_refused(&User::new(&place, &key).run(&["db", "rekey"]).await, 4, "does not exist");
}

#[tokio::test]
async fn commands_of_the_model_have_no_key() {
    let place = Place::new();
    let ((key, _), (old, _)) = (new_key(&place).await, new_key(&place).await);
    let user = User { old: &old, ..User::new(&place, &key) };
    let server = serve([call("c1", "shell", r#"{"command":"env; true"}"#), txt("done")]).await;
    let url = server.base_url();
    let args = ["run", "hi", "--yes", "--json", "--log", "debug", "--base-url", &url, "--model", "m"];
    user.run(&args).await.ok();
    let requests = server.requests();
    let sent = requests[1].to_string();
    assert!(sent.contains("PATH=") && !sent.contains("SUPERSTEP_KEY"), "{sent}");
    assert!(!sent.contains("SUPERSTEP_OLD_KEY") && !sent.contains(&key), "{sent}");
    assert_absent(&place.beside(""), &[&key, &old], "no file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_names_a_running_thread_and_a_later_one_changes_it() {
    let place = Place::new();
    let ((one, _), (two, _)) = (new_key(&place).await, new_key(&place).await);
    let user = User::new(&place, &one);
    for thread in ["a", "b"] {
        user.turn(thread).await.ok();
    }
    let server = serve([Answer::stream().stall(), Answer::stream().stall(), Answer::stream().stall()]).await;
    let url = server.base_url();
    let start = |user: &User<'_>, thread: &str| {
        let run = ["run", "hi", "--thread", thread, "--no-memory", "--base-url", &url, "--model", "m"];
        let mut command = place.command(&run);
        user.set(&mut command);
        Running::of(command)
    };
    let mut running = start(&user, "b");
    received(&server, 1).await;
    let both = user.with_keys(&two, &one);
    let rekeyed = both.run(&["db", "rekey", "--json"]).await;
    assert_eq!(rekeyed.code, Some(5), "{rekeyed:?}");
    assert!(rekeyed.stderr.contains("not rekeyed: ") && rekeyed.stderr.contains("`b`"), "{rekeyed:?}");
    let lines = rekeyed.lines();
    assert_eq!((&lines[0]["changed"], &lines[0]["failed"]), (&json!(1), &json!(true)), "{lines:?}");
    // A script that repeats the command while it ends with 5 ends: the key of another thread, before or after, is lost.
    let (lost, _) = new_key(&place).await;
    for thread in ["a0", "c"] {
        user.with_keys(&lost, "").turn(thread).await.ok();
        let rekeyed = both.run(&["db", "rekey"]).await;
        assert_refused(&rekeyed, 4, &format!("not rekeyed: SS316: thread `{thread}`"));
        assert!(rekeyed.stdout.starts_with("rekeyed 0 threads, 1 had"), "{rekeyed:?}");
        user.run(&["delete", thread, "--yes"]).await.ok();
    }
    running.child.kill().await.unwrap();
    let rekeyed = both.rekeyed().await;
    assert_eq!((&rekeyed["changed"], &rekeyed["current"]), (&json!(1), &json!(1)), "{rekeyed}");
    user.with_keys(&two, "").run(&["resume", "b", "--model", "offline", "--no-memory"]).await.ok();
    assert_refused(&user.run(&["resume", "b", "--model", "offline"]).await, 4, "SS316: thread `b`");

    // A running thread with nothing to change is skipped.
    let mut running = start(&user.with_keys(&two, ""), "b");
    received(&server, 2).await;
    let rekeyed = both.rekeyed().await;
    assert_eq!((&rekeyed["current"], &rekeyed["failed"]), (&json!(2), &json!(false)), "{rekeyed}");
    running.child.kill().await.unwrap();
    let plain = Place::new();
    let mut running = plain.start(&["run", "hi", "--no-memory", "--base-url", &url, "--model", "m"]);
    received(&server, 3).await;
    let rekeyed = both.of(&plain).rekeyed().await;
    assert_eq!((&rekeyed["not_encrypted"], &rekeyed["failed"]), (&json!(1), &json!(false)), "{rekeyed}");
    running.child.kill().await.unwrap();
}

#[tokio::test]
async fn a_rotation_whose_items_fail_prints_what_it_changed() {
    let place = Place::new();
    let ((one, _), (two, _), (lost, id)) =
        (new_key(&place).await, new_key(&place).await, new_key(&place).await);
    place.file("m.toml", "[memory]\nstore = \"sqlite\"\npath = \".superstep/threads.db\"\n");
    let user = User::new(&place, &one);
    user.turn("a").await.ok();
    user.with_keys(&lost, "").run(&["memory", "add", "I like tea", "--config", "m.toml"]).await.ok();
    let both = user.with_keys(&two, &one);
    let rekeyed = both.run(&["db", "rekey", "--json"]).await;
    assert_refused(&rekeyed, 4, "not rekeyed: SS316: the store is encrypted with key");
    assert!(rekeyed.stderr.contains(&id), "{rekeyed:?}");
    let summary = rekeyed.lines().remove(0);
    assert_eq!((&summary["changed"], &summary["failed"]), (&json!(1), &json!(true)), "{summary}");
    assert_eq!(summary["items_changed"], json!(false));
}

/// The kills meet the rotation at any moment, and the result is the same for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_that_is_killed_leaves_each_thread_with_one_of_the_keys_and_is_repeated() {
    let place = Place::new();
    let ((one, _), (two, _)) = (new_key(&place).await, new_key(&place).await);
    let user = User::new(&place, &one);
    user.turn("a0").await.ok();
    for nth in 1..8 {
        user.run(&["copy", "a0", &format!("a{nth}")]).await.ok();
    }
    let both = user.with_keys(&two, &one);
    for kill in 0..4_u32 {
        let mut command = place.command(&["db", "rekey", "--log", "superstep=trace"]);
        both.set(&mut command);
        let mut running = Running::of(command);
        for _ in 0..kill * 400 {
            tokio::task::yield_now().await;
        }
        // It may have ended.
        let _ = running.child.kill().await;
        let checked = both.run(&["db", "check", "--json"]).await.ok().lines().remove(0);
        assert_eq!(checked["threads"], 8, "{checked}");
    }
    let rekeyed = both.rekeyed().await;
    let (changed, current) = (rekeyed["changed"].as_u64(), rekeyed["current"].as_u64());
    assert_eq!(changed.unwrap() + current.unwrap(), 8, "{rekeyed}");
    let new = user.with_keys(&two, "");
    new.run(&["db", "check"]).await.ok();
    new.turn("a7").await.ok();
}

#[tokio::test]
async fn a_worker_runs_jobs_on_encrypted_threads_with_the_key_only() {
    let Some(server) = server::shared() else { return };
    let (place, url) = (Place::new(), database(server, "encrypted_jobs"));
    let ((key, id), (two, _)) = (new_key(&place).await, new_key(&place).await);
    let user = User { url: Some(&url), ..User::new(&place, &key) };
    let work = ["worker", "--once", "--model", "offline"];
    user.turn("t").await.ok();
    user.run(&["jobs", "run", "12 + 30", "--thread", "t"]).await.ok();
    user.with_keys("", "").run(&work).await.ok();
    let job = user.run(&["jobs", "list", "--json"]).await.ok().lines().remove(0);
    let error = job["last_error"].as_str().unwrap();
    assert!(error.contains(&format!("SS316: thread `t` is encrypted with key `{id}`")), "{job}");
    user.run(&["jobs", "retry", &job["id"].to_string()]).await.ok();
    user.run(&work).await.ok();
    let state = user.run(&["state", "t", "--json"]).await.ok().lines().remove(0);
    assert!(state["values"]["final_reply"].to_string().contains("42"), "{state}");

    // After a rotation, and with a program of one's own.
    let both = user.with_keys(&two, &key);
    let rekeyed = both.rekeyed().await;
    assert_eq!((&rekeyed["changed"], &rekeyed["failed"]), (&json!(1), &json!(false)), "{rekeyed}");
    let new = user.with_keys(&two, "");
    new.run(&["jobs", "run", "3 + 3", "--thread", "t"]).await.ok();
    new.run(&work).await.ok();
    assert_eq!(new.run(&["jobs", "list"]).await.ok().stdout, "no jobs\n");
    let order = r#"{"items": [{"name": "tea", "euros": 120}]}"#;
    new.own(&["jobs", "run", "orders", "--input", order, "--thread", "o", "--trust"]).await.ok();
    new.own(&["worker", "--once", "--trust", "orders"]).await.ok();
    let asked = new.own(&["state", "o", "--json"]).await.ok().lines();
    assert_eq!(asked[0]["tasks"][0]["waits"][0]["key"], "approve");
    assert_refused(&user.own(&["state", "o"]).await, 4, "SS316: thread `o`");

    // Jobs are not encrypted.
    for args in [
        &["jobs", "run", "2 + 2"][..],
        &["jobs", "schedule", "add", "daily", "@daily", "2 + 2"],
        &["jobs", "answer", "t", "--approve"],
    ] {
        let mut command = place.command(args);
        command.env("SUPERSTEP_REQUIRE_ENCRYPTION", "1");
        assert_refused(&new.ended(command).await, 2, "the inputs and answers of jobs are not encrypted");
    }
    // Nor are schedules that were stored before, so they make none.
    new.run(&["jobs", "schedule", "add", "daily", "@daily", "2 + 2", "--thread", "s"]).await.ok();
    new.own(&["jobs", "schedule", "add", "big", "@daily", "orders", "--input", order, "--thread", "p"])
        .await
        .ok();
    server.sql(
        "\\c encrypted_jobs\nUPDATE superstep_jobs._private_known_crontabs SET known_since = now() - interval '2 days'",
    );
    let own_work = ["worker", "--once", "--trust", "orders"];
    for mut command in [place.command(&work), place.own_command(&own_work)] {
        command.env("SUPERSTEP_REQUIRE_ENCRYPTION", "1");
        let worked = new.ended(command).await.ok();
        assert!(worked.stderr.contains("this worker does not run stored schedules"), "{worked:?}");
        assert!(worked.stderr.contains("0 jobs ran"), "{worked:?}");
    }
    assert!(new.run(&work).await.ok().stderr.contains("1 job ran"));
    assert!(new.own(&own_work).await.ok().stderr.contains("1 job ran"));
}

#[tokio::test]
async fn a_program_of_ones_own_encrypts_its_threads() {
    let place = Place::new();
    let ((one, _), (two, _)) = (new_key(&place).await, new_key(&place).await);
    let user = User::new(&place, &one);
    let order = r#"{"items": [{"name": "swordfish", "euros": 120}]}"#;
    user.own(&["run", "orders", "--input", order, "--thread", "o"]).await;
    assert_absent(&place.work(), &[PROMPT], "no file");
    let made = user.own(&["db", "key"]).await.ok();
    assert_eq!(made.stdout.trim().len(), 44, "{made:?}");
    let tried = [
        &["state", "o"][..],
        &["history", "o"],
        &["diff", "o@1", "@2"],
        &["watch", "o"],
        &["draw", "--thread", "o"],
        &["replay", "o"],
        &["run", "orders", "--thread", "o"],
        &["answer", "o", "approve", "true"],
        &["resume", "o"],
        &["export", "o"],
        &["fork", "o", "--at", "1"],
        &["edit", "o", "--update", "{}"],
        &["db", "prune", "--leaves", "--yes"],
    ];
    let commands = own_commands(&place).await;
    let with_database = commands.iter().filter(|command| command.has_database());
    // The test of the agent's program tries these; both have them from the same functions.
    let others = [
        "db check",
        "db migrate",
        "db rekey",
        "db stats",
        "db vacuum",
        "import",
        "jobs",
        "serve",
        "threads",
        "worker",
    ];
    assert_all_tried(with_database, tried, &others);
    for args in tried {
        assert_refused(&user.with_keys(&two, "").own(args).await, 4, "SS316: thread `o`");
    }
    let rekeyed = user.with_keys(&two, &one).own(&["db", "rekey"]).await.ok();
    assert!(rekeyed.stdout.starts_with("rekeyed 1 thread, 0 had"), "{rekeyed:?}");
    let new = user.with_keys(&two, "");
    new.own(&["answer", "o", "approve", "true"]).await.ok();
    let state = new.own(&["state", "o", "--json"]).await.ok().lines();
    assert_eq!(state[0]["values"]["status"], "paid");
}
