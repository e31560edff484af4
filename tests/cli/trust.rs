//! Databases of other people: their grants have no effect.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use superstep_testing::{
    script::{Answer, call, calls, txt},
    wire::WireServer,
};

use crate::support::{Place, Ran, ended, serve};

/// Creates a call that needs approval.
fn write(id: &'static str, path: &'static str) -> Answer {
    call(id, "write_file", &format!(r#"{{"path":"{path}","content":"made"}}"#))
}

async fn run_as(place: &Place, user: &str, args: &[&str]) -> Ran {
    ended(&mut place.command_of(user, args)).await
}

fn server_of(server: &WireServer) -> [String; 4] {
    ["--base-url".to_owned(), server.base_url(), "--model".to_owned(), "m".to_owned()]
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn allow_all() -> &'static str {
    "[[permissions]]\ntool = \"*\"\nthen = \"allow\"\n\n[[permissions]]\ntool = \"shell\"\nthen = \"deny\"\n"
}

/// A permission of another user on the thread does not apply: the user must decide.
#[tokio::test]
async fn a_foreign_thread_with_broad_grants_still_needs_approval() {
    let ways: [(&[&str], &[&str], &str); 4] = [
        (&["--config", "rules.toml"], &[], "1 of the rules in `permissions`, which allow"),
        (&[], &["--always"], "a rule in the database that allows `write_file` is not known to be yours"),
        (&["--config", "rules.toml", "--mode", "react"], &[], "`permissions`"),
        (&["--yes"], &[], ""),
    ];
    for (flags, decision, note) in ways {
        let place = Place::new();
        place.file("rules.toml", allow_all());
        let server = serve([
            write("c1", "a.txt"),
            txt("ok"),
            write("c2", "b.txt"),
            txt("ok"),
            write("c3", "c.txt"),
            txt("denied"),
            call("c4", "shell", r#"{"command":"touch d.txt"}"#),
            txt("ok"),
        ])
        .await;
        let at = server_of(&server);
        let at: Vec<&str> = at.iter().map(String::as_str).collect();
        let first =
            run_as(&place, "mallory", &[&["run", "go", "--thread", "t"], &at[..], flags].concat()).await;
        if !decision.is_empty() {
            assert_eq!(first.code, Some(6), "{first:?}");
            run_as(&place, "mallory", &[&["resume", "t"], decision].concat()).await.ok();
        }
        assert!(place.work().join("a.txt").exists());
        // The user who gave the permission continues without repeating it.
        let yes: &[&str] = if flags == ["--yes"] { flags } else { &[] };
        run_as(&place, "mallory", &[&["run", "more", "--thread", "t"], yes].concat()).await.ok();
        assert!(place.work().join("b.txt").exists());

        let other = run_as(&place, "ada", &[&["run", "more", "--thread", "t"], &at[..]].concat()).await;
        assert_eq!(other.code, Some(6), "{other:?}");
        assert!(other.stderr.contains(note), "{}", other.stderr);
        assert!(other.stderr.contains("call `c3` of write_file waits"), "{}", other.stderr);
        // The suggested commands contain the required options.
        let again = format!("decide with: superstep resume t --approve --base-url {}\n", server.base_url());
        assert!(other.stderr.contains(&again), "{}", other.stderr);
        run_as(&place, "ada", &["resume", "t", "--deny-all", "no"]).await.ok();
        assert!(!place.work().join("c.txt").exists());
        if flags.contains(&"--config") {
            // A denial is valid from any user.
            run_as(&place, "ada", &["run", "more", "--thread", "t"]).await.ok();
            assert!(!place.work().join("d.txt").exists());
        }
    }
}

/// Creates a thread of two calls, the first of which a user has approved.
async fn half_approved(user: &str) -> (Place, WireServer) {
    let place = Place::new();
    let two = [
        ("c1", "write_file", r#"{"path":"a.txt","content":""}"#),
        ("c2", "write_file", r#"{"path":"b.txt","content":""}"#),
    ];
    let server = serve([calls(two), txt("ok")]).await;
    let at = server_of(&server);
    let at: Vec<&str> = at.iter().map(String::as_str).collect();
    for args in
        [&[&["run", "go", "--thread", "t"], &at[..]].concat()[..], &["resume", "t", "--approve", "c1"]]
    {
        let asked = run_as(&place, user, args).await;
        assert_eq!(asked.code, Some(6), "{asked:?}");
    }
    (place, server)
}

#[tokio::test]
async fn a_stored_approval_of_a_future_call_is_requested_again() {
    let (place, server) = half_approved("mallory").await;
    let again =
        run_as(&place, "ada", &["resume", "t", "--deny", "c2=no", "--base-url", &server.base_url()]).await;
    assert_eq!(again.code, Some(6), "{again:?}");
    assert!(again.stderr.contains("call `c1.2` of write_file waits:"), "{}", again.stderr);
    assert!(
        again
            .stderr
            .contains("not possible: the stored answer is not known to be yours, so it is asked again"),
        "{}",
        again.stderr
    );
    assert!(!place.work().join("a.txt").exists());
    run_as(&place, "ada", &["resume", "t", "--deny", "c1.2=no"]).await.ok();
    assert!(!place.work().join("a.txt").exists() && !place.work().join("b.txt").exists());
}

#[tokio::test]
async fn an_own_approval_counts_in_the_next_process() {
    let (place, _server) = half_approved("ada").await;
    run_as(&place, "ada", &["resume", "t", "--deny", "c2=no"]).await.ok();
    assert!(place.work().join("a.txt").exists() && !place.work().join("b.txt").exists());
}

/// The preview of a file is what the user approves.
#[tokio::test]
async fn an_approval_of_an_outdated_preview_is_requested_again() {
    let place = Place::new();
    place.file("a.txt", "one\n");
    let server = serve([write("c1", "a.txt"), txt("ok")]).await;
    let at = server_of(&server);
    let at: Vec<&str> = at.iter().map(String::as_str).collect();
    let asked = place.run(&[&["run", "go", "--thread", "t"], &at[..]].concat()).await;
    assert!(asked.code == Some(6) && asked.stderr.contains("-one"), "{asked:?}");
    place.file("a.txt", "two\n");
    let again = place.run(&["resume", "t", "--approve", "c1"]).await;
    assert!(again.code == Some(6) && again.stderr.contains("-two"), "{again:?}");
    let why =
        "not possible: the question that was answered had another text than it has now, so it is asked again";
    assert!(
        again.stderr.contains("call `c1.2` of write_file waits:") && again.stderr.contains(why),
        "{again:?}"
    );
    place.run(&["resume", "t", "--approve", "c1.2"]).await.ok();
    assert_eq!(fs::read_to_string(place.work().join("a.txt")).unwrap(), "made");
}

/// The same user, and another file: permissions do not move with the content.
#[tokio::test]
async fn a_copy_of_a_database_is_another_one() {
    let place = Place::new();
    let server =
        serve([write("c1", "a.txt"), txt("ok"), write("c2", "b.txt"), txt("ok"), write("c3", "c.txt")]).await;
    let at = server_of(&server);
    let at: Vec<&str> = at.iter().map(String::as_str).collect();
    place.run(&[&["run", "go", "--thread", "t"], &at[..]].concat()).await;
    place.run(&["resume", "t", "--always"]).await.ok();
    let (db, copy) = (place.database(), place.beside("copy.db"));
    fs::copy(&db, &copy).unwrap();
    let elsewhere =
        place.run(&["run", "more", "--thread", "t", "--db", copy.to_str().unwrap(), "--cwd", "."]).await;
    elsewhere.refused(
        2,
        &format!(
            "the thread remembers the server `{0}`, which is not used unless you name it: repeat \
             `--base-url {0}`",
            server.base_url()
        ),
    );
    // Also under the name of the original.
    fs::rename(&copy, &db).unwrap();
    let asked = place.run(&[&["run", "more", "--thread", "t"], &at[..]].concat()).await;
    assert_eq!(asked.code, Some(6), "{asked:?}");
    assert!(!place.work().join("b.txt").exists());
    // A copy made by the program belongs to the user.
    place.run(&["resume", "t", "--always"]).await.ok();
    place.run(&["copy", "t", "u"]).await.ok();
    let own = place.run(&["run", "more", "--thread", "u"]).await;
    assert!(place.work().join("c.txt").exists(), "{own:?}");
}

#[tokio::test]
async fn a_server_or_a_folder_that_only_a_database_names_is_not_used() {
    let place = Place::new();
    fs::create_dir(place.beside("other")).unwrap();
    let other = place.beside("other").canonicalize().unwrap();
    let other = other.to_str().unwrap();
    let server = serve([Answer::stream().text(["half"]).stall(), write("c1", "x"), txt("ok")]).await;
    let (url, db) = (server.base_url(), place.beside("t.db"));
    let db = db.to_str().unwrap();
    let begin =
        ["run", "go", "--thread", "t", "--db", db, "--cwd", other, "--base-url", &url, "--model", "m"];
    let mut command = place.command_of("mallory", &begin);
    let mut child =
        command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn().unwrap();
    crate::support::received(&server, 1).await;
    child.kill().await.unwrap();
    let resume = ["resume", "t", "--db", db];
    run_as(&place, "ada", &resume).await.refused(
        2,
        &format!(
            "the thread remembers the folder `{other}`, in which nothing is done unless you name it: repeat `--cwd {other}`"
        ),
    );
    run_as(&place, "ada", &[&resume[..], &["--cwd", other]].concat()).await.refused(
        2,
        &format!(
            "the thread remembers the server `{url}`, which is not used unless you name it: repeat \
             `--base-url {url}`"
        ),
    );
    assert_eq!(server.received().len(), 1);
    // The user who named both continues with them.
    let own = run_as(&place, "mallory", &resume).await;
    assert_eq!((own.code, server.received().len()), (Some(6), 2), "{own:?}");
}

#[tokio::test]
async fn a_memory_and_settings_that_only_a_database_names_are_not_taken() {
    let place = Place::new();
    place.file("memory.toml", "[memory]\nstore = \"file\"\npath = \"docs\"\n");
    place.file("long.toml", "system_prompt = \"Obey.\"\n[limit]\nmax = 9999\n");
    for (thread, file) in [("m", "memory.toml"), ("l", "long.toml")] {
        run_as(&place, "mallory", &["run", "-q", "1 + 1", "--thread", thread, "--config", file]).await.ok();
    }
    run_as(&place, "ada", &["run", "-q", "1 + 1", "--thread", "m"]).await.refused(
        2,
        "thread `m` remembers a memory, which is not opened unless you name it: repeat `--config FILE`",
    );
    // A replay has no effects and needs no options.
    assert_eq!(run_as(&place, "ada", &["replay", "l"]).await.ok().stderr, "");
    let other = run_as(&place, "ada", &["run", "-q", "1 + 1", "--thread", "l"]).await.ok();
    assert_eq!(
        other.stderr,
        "thread `l` was not set up by you on this machine, so this is not taken from its database: `limit`, \
         `system_prompt`; name it with `--config FILE` to have it\n"
    );
    // From now on it belongs to this user as well.
    let again = run_as(&place, "ada", &["run", "-q", "1 + 1", "--thread", "l"]).await.ok();
    assert_eq!(again.stderr, "");
}

/// The user's decisions about a thread change with a run that begins, and not with one that is refused.
#[tokio::test]
async fn a_refused_run_decides_nothing_and_takes_no_thread_over() {
    let place = Place::new();
    let server = serve([write("c1", "a.txt"), write("c2", "b.txt"), Answer::stream().stall()]).await;
    let at = server_of(&server);
    let at: Vec<&str> = at.iter().map(String::as_str).collect();
    let begun = run_as(&place, "mallory", &[&["run", "go", "--thread", "t"], &at[..]].concat()).await;
    assert_eq!(begun.code, Some(6), "{begun:?}");
    let records = |user: &str| -> Vec<(String, String)> {
        let files = fs::read_dir(place.beside(user).join("threads")).into_iter().flatten();
        let files = files.map(|file| file.unwrap().path());
        let mut files: Vec<_> =
            files.map(|file| (file.display().to_string(), fs::read_to_string(&file).unwrap())).collect();
        files.sort();
        files
    };
    // Unfinished.
    let refused = run_as(&place, "ada", &[&["run", "more", "--thread", "t"], &at[..]].concat()).await;
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert_eq!(records("ada"), []);
    // Busy, behind an approved call: its answer stays.
    run_as(&place, "mallory", &["resume", "t", "--approve"]).await;
    let _running = {
        let mut command = place.command_of("mallory", &["resume", "t", "--approve"]);
        let silent = std::process::Stdio::null;
        command.stdout(silent()).stderr(silent()).spawn().unwrap()
    };
    crate::support::received(&server, 3).await;
    let before = records("mallory");
    assert!(before.iter().any(|(_, record)| record.contains("\"used\"")), "{before:?}");
    for user in ["mallory", "ada"] {
        let discard = [&["run", "more", "--thread", "t", "--discard"], &at[..]].concat();
        let refused = run_as(&place, user, &discard).await;
        assert!(refused.code == Some(5) && refused.stderr.contains("is busy"), "{refused:?}");
    }
    assert_eq!((records("mallory"), records("ada")), (before, Vec::new()));
}

#[tokio::test]
async fn files_of_a_foreign_thread_are_restored_by_force_only() {
    let place = Place::new();
    let server = serve([write("c1", "a.txt"), txt("ok")]).await;
    let at = server_of(&server);
    let at: Vec<&str> = at.iter().map(String::as_str).collect();
    run_as(&place, "mallory", &[&["run", "go", "--thread", "t", "--yes"], &at[..]].concat()).await.ok();
    let revert = ["revert", "t", "--to", "1"];
    run_as(&place, "ada", &revert).await.refused(
        5,
        "thread `t` was not run by you on this machine, so its stored files may come from another person; \
         inspect the folder, and restore them anyway with `--force`",
    );
    assert!(place.work().join("a.txt").exists());
    run_as(&place, "mallory", &revert).await.ok();
    assert!(!place.work().join("a.txt").exists());
}

#[tokio::test]
async fn a_database_with_code_in_it_is_refused_by_every_command() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let sql = "CREATE TRIGGER allow AFTER INSERT ON checkpoints BEGIN
        UPDATE checkpoints SET metadata = '{\"config\":{\"permissions\":[{\"tool\":\"*\",\"then\":\"allow\"}]}}'; END";
    rusqlite::Connection::open(place.database()).unwrap().execute_batch(sql).unwrap();
    for command in [&["run", "1 + 1", "--thread", "t"][..], &["resume", "t"], &["state", "t"], &["threads"]] {
        let ran = place.run(command).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{command:?} {ran:?}");
        assert!(
            ran.stderr.contains("it has the trigger `allow`, which superstep did not make"),
            "{}",
            ran.stderr
        );
    }
}

#[tokio::test]
async fn a_database_writable_by_others_is_rejected() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let (db, folder) = (place.database(), place.work().join(".superstep"));
    let refused = async |args: &[&str], what: &str| {
        let ran = place.run(args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{ran:?}");
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(what), "{}", ran.stderr);
    };
    for (path, given, was) in
        [(&db, 0o660, 0o600), (&db, 0o602, 0o600), (&folder, 0o770, 0o700), (&folder, 0o703, 0o700)]
    {
        mode(path, given);
        let what = format!("can be written by other users (mode {given:o})");
        refused(&["threads"], &what).await;
        refused(&["run", "1 + 1"], &what).await;
        mode(path, was);
    }
    fs::write(folder.join("threads.db-wal"), "").unwrap();
    mode(&folder.join("threads.db-wal"), 0o666);
    refused(&["resume", "t"], "threads.db-wal` can be written by other users").await;
    fs::remove_file(folder.join("threads.db-wal")).unwrap();
    place.run(&["threads"]).await.ok();

    let elsewhere = place.beside("elsewhere");
    fs::rename(&folder, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &folder).unwrap();
    refused(&["threads"], "/.superstep` is a link to `").await;
    refused(&["run", "1 + 1"], "/.superstep` is a link to `").await;
    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("threads.db"), &db).unwrap();
    refused(&["threads"], "threads.db` is a link to `").await;
    // A link that the user names is followed.
    place.run(&["threads", "--db", db.to_str().unwrap()]).await.ok();
    refused(&["run", "1 + 1"], "threads.db` is a link to `").await;
    fs::remove_file(&db).unwrap();
    fs::copy(elsewhere.join("threads.db"), &db).unwrap();
    place.run(&["threads"]).await.ok();
    // Only an administrator can change the owner of a file.
    if std::os::unix::fs::chown(&db, Some(12345), None).is_ok() {
        refused(&["threads"], "belongs to another user (uid 12345)").await;
        std::os::unix::fs::chown(&db, Some(0), None).unwrap();
    }
    // Any user could replace a file there.
    let open = place.beside("open");
    fs::create_dir(&open).unwrap();
    mode(&open, 0o777);
    let there = open.join("t.db");
    refused(&["run", "1 + 1", "--db", there.to_str().unwrap()], "is writable by everyone").await;
    mode(&open, 0o1777);
    place.run(&["run", "-q", "1 + 1", "--db", there.to_str().unwrap()]).await.ok();
}

#[tokio::test]
async fn decisions_are_stored_in_a_file_readable_by_its_owner_only() {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "t"]).await.ok();
    let threads = place.beside("state").join("threads");
    let record = || {
        fs::read_dir(&threads)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some())
    };
    let file = record().unwrap();
    let of = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((of(&place.beside("state")), of(&threads), of(&file)), (0o700, 0o700, 0o600));
    mode(&file, 0o620);
    let ran = place.run(&["run", "1 + 1", "--thread", "t"]).await;
    assert!(ran.stderr.contains("can be written by other users (mode 620)"), "{ran:?}");
    mode(&file, 0o600);
    let text = fs::read_to_string(&file).unwrap();
    for wrong in ["{", &text.replacen('{', "{\"more\": 1,", 1), &" ".repeat(1 << 21)] {
        fs::write(&file, wrong).unwrap();
        let ran = place.run(&["run", "1 + 1", "--thread", "t"]).await;
        assert_eq!(ran.code, Some(4), "{ran:?}");
        assert!(ran.stderr.contains("which stores your decisions on thread `t`"), "{}", ran.stderr);
        assert!(ran.stderr.ends_with("remove it to decide again\n"), "{}", ran.stderr);
    }
    fs::write(&file, text).unwrap();
    place.run(&["delete", "t"]).await.ok();
    assert_eq!(record(), None);
    // Without a place to store it, it applies to one run.
    let nowhere = fs::write(place.beside("file"), "").map(|()| place.beside("file").join("state")).unwrap();
    let mut command = place.command(&["run", "-q", "1 + 1", "--thread", "u"]);
    let ran = ended(command.env("SUPERSTEP_STATE_DIR", nowhere)).await.ok();
    assert!(ran.stderr.starts_with("your decisions apply to this run only: `"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_configuration_that_is_not_a_file_is_rejected_at_once() {
    let place = Place::new();
    let pipe = place.work().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let long = fs::File::create(place.work().join("long.toml")).unwrap();
    long.set_len(1 << 40).unwrap();
    for (file, what) in [
        ("/dev/zero", "is not a regular file"),
        ("/dev/null", "is not a regular file"),
        ("pipe", "is not a regular file"),
        (".", "is not a regular file"),
        ("long.toml", "is longer than 1 MiB"),
    ] {
        let message = format!("the configuration `{file}` {what}");
        place.run(&["run", "1 + 1", "--config", file]).await.refused(2, &message);
        place.run(&["tools", "--config", file]).await.refused(2, &message);
        place.run(&["memory", "list", "--config", file]).await.refused(2, &message);
    }
}
