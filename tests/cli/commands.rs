//! Every command that opens a database, on databases that a killed process has just begun, and on read-only
//! places.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use superstep_testing::script::Answer;

use crate::{
    listed::{assert_all_tried, commands},
    support::{Place, Ran, ended, received, serve},
};

const UNKNOWN: &str = "thread `t` does not exist in `";
const READ_ONLY: &str = "it is read-only; make the file and its folder writable, or use another file";
const UNFINISHED: &str = "thread `t` is not finished";
const NO_KEY: End = (2, "no key is set");
const NO_JOBS: End = (2, "jobs need a PostgreSQL database");

/// A memory in a database next to that of the threads.
const CONFIG: &str = "[memory]\nstore = \"sqlite\"\npath = \"m.db\"\n";

/// The end of a command: its code, and a part of its output.
type End = (i32, &'static str);

/// A command with its ends: on a database without threads; with the finished thread `t` on a read-only place;
/// and with a thread `t` that was killed while it waited for its model.
struct Case(&'static [&'static str], End, End, End);

const CASES: [Case; 48] = [
    // Its client leaves at once.
    Case(&["acp"], (0, ""), (0, ""), (0, "")),
    Case(&["threads"], (0, "no threads yet"), (0, "finished"), (0, "agent")),
    Case(&["doctor", "--model", "offline"], (0, "database: "), (0, "with 1 thread"), (0, "with 1 thread")),
    Case(&["usage"], (0, "no turns yet"), (0, "TURNS"), (0, "no turns yet")),
    Case(&["state", "t"], (5, UNKNOWN), (0, "finished"), (0, "agent")),
    Case(&["history", "t"], (5, UNKNOWN), (0, "finalize"), (0, "agent")),
    Case(&["diff", "t", "t"], (5, UNKNOWN), (0, "no differences"), (0, "no differences")),
    Case(&["watch", "t"], (5, UNKNOWN), (0, "is finished"), (5, "no process runs thread `t`")),
    Case(&["draw", "--thread", "t"], (5, UNKNOWN), (0, "finalize"), (0, "agent")),
    Case(&["replay", "t"], (5, UNKNOWN), (0, "no divergence"), (0, "no divergence")),
    Case(&["export", "t"], (5, UNKNOWN), (0, "\"total\":"), (0, "\"total\":")),
    Case(
        &["import", "case.jsonl"],
        (0, "imported thread `t`"),
        (4, READ_ONLY),
        (5, "thread `t` already exists"),
    ),
    Case(&["memory", "list", "--config", "m.toml"], (0, "nothing"), (0, "I like tea"), (0, "I like tea")),
    Case(
        &["memory", "search", "tea", "--config", "m.toml"],
        (0, "nothing"),
        (0, "I like tea"),
        (0, "I like tea"),
    ),
    Case(&["run", "2 + 2", "--thread", "t"], (0, "= 4"), (4, READ_ONLY), (5, UNFINISHED)),
    Case(
        &["run", "2 + 2", "--thread", "t", "--discard", "--model", "offline"],
        (0, "= 4"),
        (4, READ_ONLY),
        (0, "= 4"),
    ),
    Case(&["chat", "2 + 2", "--thread", "t", "--model", "offline"], (0, "= 4"), (4, READ_ONLY), (0, "= 4")),
    Case(&["resume", "t", "--model", "offline"], (5, UNKNOWN), (4, READ_ONLY), (0, "= 2")),
    Case(&["replay", "t", "--live-tools"], (5, UNKNOWN), (4, READ_ONLY), (5, "SS195")),
    Case(&["steer", "t", "hello"], (5, UNKNOWN), (4, READ_ONLY), (0, "")),
    Case(&["pin", "t", "hello"], (5, UNKNOWN), (4, READ_ONLY), (5, "has an unfinished turn")),
    Case(&["copy", "t", "u"], (5, UNKNOWN), (4, READ_ONLY), (0, "copied")),
    Case(&["adopt", "t"], (5, UNKNOWN), (4, READ_ONLY), (0, "belongs to the agent")),
    Case(&["prune", "t", "--leaves"], (5, UNKNOWN), (4, READ_ONLY), (0, "pruned")),
    Case(
        &["db", "check"],
        (0, "0 threads and 0 checkpoints are intact"),
        (0, "1 thread and"),
        (0, "1 thread and"),
    ),
    Case(&["db", "stats"], (0, "0 threads"), (0, "SQLite, version 4"), (0, "1 thread")),
    Case(&["db", "migrate"], (0, "version 4"), (0, "version 4"), (0, "version 4")),
    Case(&["db", "prune", "--leaves"], (0, "pruned 0 checkpoints"), (4, READ_ONLY), (0, "pruned")),
    Case(&["db", "vacuum"], (0, "before"), (4, READ_ONLY), (0, "before")),
    Case(&["db", "rekey"], NO_KEY, NO_KEY, NO_KEY),
    Case(&["revert", "t", "--to", "1"], (5, UNKNOWN), (4, READ_ONLY), (5, UNFINISHED)),
    Case(&["delete", "t"], (5, UNKNOWN), (4, READ_ONLY), (0, "deleted")),
    Case(&["dream", "--model", "m"], (3, "no server"), (4, READ_ONLY), (3, "no server")),
    Case(
        &["memory", "add", "I like tea", "--config", "m.toml"],
        (0, "I like tea"),
        (4, READ_ONLY),
        (0, "I like tea"),
    ),
    Case(
        &["memory", "forget", "x", "--config", "m.toml"],
        (1, "no entry `x`"),
        (4, READ_ONLY),
        (1, "no entry `x`"),
    ),
    Case(&["memory", "rekey", "--config", "m.toml"], NO_KEY, NO_KEY, NO_KEY),
    Case(&["jobs", "run", "2 + 2"], NO_JOBS, NO_JOBS, NO_JOBS),
    Case(&["jobs", "resume", "t"], NO_JOBS, NO_JOBS, NO_JOBS),
    Case(&["jobs", "answer", "t", "--approve"], NO_JOBS, NO_JOBS, NO_JOBS),
    Case(&["jobs", "list"], NO_JOBS, NO_JOBS, NO_JOBS),
    Case(&["jobs", "retry", "7"], NO_JOBS, NO_JOBS, NO_JOBS),
    Case(&["jobs", "cancel", "7"], NO_JOBS, NO_JOBS, NO_JOBS),
    Case(&["jobs", "schedule", "add", "daily", "@daily", "2 + 2"], NO_JOBS, NO_JOBS, NO_JOBS),
    Case(&["jobs", "schedule", "list"], NO_JOBS, NO_JOBS, NO_JOBS),
    Case(&["jobs", "schedule", "remove", "daily"], NO_JOBS, NO_JOBS, NO_JOBS),
    Case(&["jobs", "schedule", "pause", "daily"], NO_JOBS, NO_JOBS, NO_JOBS),
    Case(&["jobs", "schedule", "resume", "daily"], NO_JOBS, NO_JOBS, NO_JOBS),
    Case(&["worker", "--once", "--model", "offline"], NO_JOBS, NO_JOBS, NO_JOBS),
];

#[track_caller]
fn ends(ran: &Ran, (code, text): End, what: &str) {
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(ran.code == Some(code) && said.contains(text), "{what}: wanted {code} and {text:?}, got {ran:?}");
}

fn private(path: &Path) {
    fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
}

/// A function that leaves something in the place of a database.
type Begin = fn(&Path);

/// Creates a folder for a database with files that a kill may leave.
fn begun(begin: Begin) -> Place {
    let place = Place::new();
    place.file("m.toml", CONFIG);
    place.file("case.jsonl", include_str!("../it/fixtures/thread_1.jsonl"));
    fs::DirBuilder::new().mode(0o700).create(place.work().join(".superstep")).unwrap();
    begin(&place.database());
    place
}

/// Leaves a database whose first tables were not committed, with its journal.
fn uncommitted(db: &Path) {
    let other = tempfile::tempdir().unwrap();
    let other = other.path().join("threads.db");
    let making = rusqlite::Connection::open(&other).unwrap();
    let schema = superstep::sqlite::SCHEMA;
    making.execute_batch(&format!("PRAGMA cache_size = 1; BEGIN; {schema}; CREATE TABLE more (x);")).unwrap();
    making.execute("INSERT INTO more VALUES (zeroblob(100000))", []).unwrap();
    for end in ["", "-journal"] {
        let beside = |path: &Path| PathBuf::from(format!("{}{end}", path.display()));
        private(&beside(db));
        fs::write(beside(db), fs::read(beside(&other)).unwrap()).unwrap();
    }
}

#[tokio::test]
async fn every_command_with_a_database_is_tried() {
    let commands = commands(&Place::new()).await;
    let with_database = commands.iter().filter(|command| command.has_database());
    assert_all_tried(with_database, CASES.iter().map(|Case(words, ..)| words), &["serve"]);
}

#[tokio::test]
async fn a_configuration_sets_when_the_database_is_synced_and_its_thread_stores_it() {
    let place = Place::new();
    for level in ["full", "off"] {
        place.file(&format!("{level}.toml"), &format!("[db]\nsynchronous = \"{level}\"\n"));
    }
    let wrong = "the configuration `off.toml` does not fit: line 2, column 15: `db.synchronous`: unknown variant `off`, expected \
         `normal` or `full`";
    place.run(&["run", "1 + 1", "--thread", "t", "--config", "off.toml"]).await.refused(2, wrong);
    for more in [&["--config", "full.toml"][..], &[]] {
        place.run(&[&["run", "-q", "1 + 1", "--thread", "t"], more].concat()).await.ok();
        let history = place.run(&["history", "t", "--json"]).await.ok().lines();
        let newest = history.iter().find(|line| line["source"] == "input").unwrap();
        assert_eq!(newest["metadata"]["config"]["db"], serde_json::json!({ "synchronous": "full" }));
    }
}

#[tokio::test]
async fn every_command_completes_a_half_created_database() {
    let states: [(&str, Begin); 4] = [
        ("an empty file", private),
        ("a file with a header and no tables", |db| {
            private(db);
            rusqlite::Connection::open(db).unwrap().execute_batch("PRAGMA journal_mode = WAL").unwrap();
        }),
        ("tables that were not committed", uncommitted),
        ("no file", |_| {}),
    ];
    for (what, begin) in states {
        for Case(words, end, ..) in &CASES {
            let place = begun(begin);
            let what = format!("{what}, {words:?}");
            let end = match words[0] {
                // Without a database there is no input for a dream.
                "dream" if what.starts_with("no file") => (0, ""),
                "db" if what.starts_with("no file") => (4, "does not exist"),
                _ => *end,
            };
            ends(&place.run(words).await, end, &what);
            ends(&place.run(&["run", "-q", "1 + 1", "--thread", "new"]).await, (0, "= 2"), &what);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_takes_a_thread_that_was_killed_in_its_first_turn() {
    for Case(words, .., end) in &CASES {
        let place = begun(|_| {});
        kill_a_run(&place).await;
        ends(&place.run(words).await, *end, &format!("{words:?}"));
    }
}

/// Kills the first turn of the thread `t` while it waits for its model.
async fn kill_a_run(place: &Place) {
    place.run(&["memory", "add", "I like tea", "--config", "m.toml"]).await.ok();
    let server = serve([Answer::stream().stall()]).await;
    let url = server.base_url();
    let mut running = place.start(&["run", "1 + 1", "--thread", "t", "--base-url", &url, "--model", "m"]);
    received(&server, 1).await;
    running.child.kill().await.unwrap();
}

/// On a read-only place, commands that only read succeed, and commands that write report the reason.
#[tokio::test]
async fn on_a_medium_that_cannot_be_written_every_command_reads_or_refuses() {
    let place = begun(|_| {});
    place.run(&["run", "-q", "1 + 1", "--thread", "t", "--config", "m.toml"]).await.ok();
    place.run(&["memory", "add", "I like tea", "--config", "m.toml"]).await.ok();
    read_only(&place, |Case(_, _, end, _)| *end).await;
    // The first tables were not committed.
    let place = begun(uncommitted);
    fs::create_dir(place.state_folder()).unwrap();
    read_only(&place, |Case(words, begun, end, _)| match *end {
        (0, _) => *begun,
        // By then it is known whether the thread or the entry exists.
        _ if begun.0 == 5 || words[..2] == ["memory", "forget"] => *begun,
        (refused, _) => (refused, ""),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_medium_that_cannot_be_written_a_killed_run_is_read() {
    let place = begun(|_| {});
    kill_a_run(&place).await;
    read_only(&place, |Case(_, _, end, killed)| if end.0 == 0 { *killed } else { *end }).await;
}

/// Tries every command on a place that is made read-only.
async fn read_only(place: &Place, wanted: impl Fn(&Case) -> End) {
    // Permissions do not stop an administrator, who therefore runs the program as another user.
    let is_root = rustix::process::getuid().is_root();
    let program = place.beside("superstep");
    fs::copy(env!("CARGO_BIN_EXE_superstep"), &program).unwrap();
    let all = everything(place.beside(""));
    for path in &all {
        if is_root {
            std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mode = fs::symlink_metadata(path).unwrap().permissions().mode();
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7555)).unwrap();
    }
    let before = all.iter().map(|path| fs::read(path).ok()).collect::<Vec<_>>();
    for case in &CASES {
        let mut command = place.bare(&program);
        command.args(case.0);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        ends(&ended(&mut command).await, wanted(case), &format!("{:?}", case.0));
    }
    assert_eq!(everything(place.beside("")), all, "nothing was made");
    assert!(all.iter().map(|path| fs::read(path).ok()).eq(before), "nothing was changed");
    for path in all.iter().filter(|path| path.is_dir()) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

/// A user without any rights.
const NOBODY: u32 = 65_534;

/// Returns a folder and all that is below it.
fn everything(folder: PathBuf) -> Vec<PathBuf> {
    let below: BTreeSet<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let below = below.into_iter().flat_map(|path| {
        let is_folder = fs::symlink_metadata(&path).unwrap().is_dir();
        if is_folder { everything(path) } else { vec![path] }
    });
    [folder].into_iter().chain(below).collect()
}
