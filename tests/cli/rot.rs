//! Flipped bits in stored rows: a command names the row and its thread, or has the same result as before.
//!
//! `just rot` tries more of them.

use std::{collections::BTreeMap, env, fs, path::Path};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use superstep_testing::{
    script::{Answer, call, calls, txt},
    wire::WireServer,
};

use crate::{
    listed::{assert_all_tried, commands},
    support::{Place, Ran, serve},
};

/// Long enough to be found in the file.
const THREAD: &str = "thread-that-rots";

/// The text columns with most of the content of a database.
const TEXTS: [(&str, &str); 6] = [
    ("threads", "name"),
    ("checkpoints", "control"),
    ("checkpoints", "metadata"),
    ("checkpoints", "applied"),
    ("checkpoints", "snapshot"),
    ("tasks", "record"),
];

/// The size of a page in bytes.
const PAGE: usize = 4096;

/// The commands on the thread, which has a waiting call, and whether they change data.
const COMMANDS: [&[&str]; 13] = [
    &["threads", "--json"],
    &["state", THREAD, "--json"],
    &["history", THREAD, "--json"],
    &["diff", "thread-that-rots@1", "@4"],
    &["watch", THREAD],
    &["export", THREAD],
    &["draw", "--thread", THREAD],
    &["replay", THREAD],
    &["resume", THREAD],
    &["resume", THREAD, "--approve"],
    &["copy", THREAD, "u"],
    &["prune", THREAD, "--keep-last", "2"],
    &["revert", THREAD, "--to", "3"],
];

/// All files of a database.
type Files = BTreeMap<&'static str, Vec<u8>>;

fn files(db: &Path) -> Files {
    let beside = |end: &&str| fs::read(format!("{}{end}", db.display())).ok();
    ["", "-wal", "-shm"].into_iter().filter_map(|end| Some((end, beside(&end)?))).collect()
}

/// Restores a database, in the same file.
fn restore(db: &Path, files: &Files) {
    for end in ["", "-wal", "-shm"] {
        let path = format!("{}{end}", db.display());
        match files.get(end) {
            Some(content) => fs::write(path, content).unwrap(),
            None => drop(fs::remove_file(path)),
        }
    }
}

/// Flips a bit of a text of some row; returns the text's place, or `None` if the text is not unique.
fn flip(db: &Path, chance: &mut StdRng) -> Option<String> {
    let (table, column) = TEXTS[chance.random_range(0..TEXTS.len())];
    let texts: Vec<String> = {
        let sql = rusqlite::Connection::open(db).unwrap();
        let mut rows = sql.prepare(&format!("SELECT {column} FROM {table} WHERE {column} <> ''")).unwrap();
        rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let text = texts.get(chance.random_range(0..texts.len().max(1)))?.as_bytes();
    let at = chance.random_range(0..text.len());
    let (from, to) = (at.saturating_sub(12), text.len().min(at + 12));
    let mut all = fs::read(db).unwrap();
    if to - from < 8 {
        return None;
    }
    // The first page has the schema, whose comments show such texts.
    let found: Vec<usize> = all
        .windows(to - from)
        .enumerate()
        .skip(PAGE)
        .filter(|(_, piece)| *piece == &text[from..to])
        .map(|(at, _)| at)
        .collect();
    let place = found.get(chance.random_range(0..found.len().max(1)))? + at - from;
    all[place] ^= 1 << chance.random_range(0..8);
    fs::write(db, all).unwrap();
    Some(format!("byte {at} of {table}.{column}, at {place}"))
}

async fn tried(place: &Place, command: &[&str], url: &str) -> Ran {
    let at = ["--base-url", url, "--model", "m"];
    place.run(&[command, if command[0] == "resume" { &at } else { &[] }].concat()).await
}

async fn answering() -> WireServer {
    serve(std::iter::repeat_with(|| txt("ok")).take(1_000)).await
}

#[tokio::test]
async fn a_flipped_bit_is_named_by_every_command_or_changes_nothing() {
    let tries = env::var("SUPERSTEP_ROT").ok().and_then(|tries| tries.parse().ok()).unwrap_or(12);
    let place = Place::new();
    let round: Answer = calls([
        ("c1", "calculate", r#"{"expression":"2+3"}"#),
        ("c2", "read_file", r#"{"path":"notes.txt"}"#),
    ]);
    let server = serve([round, txt("five"), call("c3", "write_file", r#"{"path":"a","content":"x"}"#)]).await;
    let url = server.base_url();
    for prompt in ["what is it?", "write it"] {
        place.run(&["run", prompt, "--thread", THREAD, "--base-url", &url, "--model", "m"]).await;
    }
    let (db, server) = (place.database(), answering().await);
    let (stored, url) = (files(&db), server.base_url());
    let records: Vec<_> = fs::read_dir(place.state_folder().join("threads"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let records: Vec<_> = records.into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
    // With the user's records, which would notice that the database is set back.
    let restore = |db: &Path, files: &Files| {
        restore(db, files);
        records.iter().for_each(|(record, path)| fs::write(path, record).unwrap());
    };
    let mut whole = Vec::new();
    for command in COMMANDS {
        let ran = tried(&place, command, &url).await;
        assert!(!ran.stderr.contains("damaged"), "{command:?} {ran:?}");
        whole.push((ran.code, ran.stdout));
        restore(&db, &stored);
    }
    // The others read no more of a row, or nothing of a thread but its name.
    let others = [
        "acp", "adopt", "chat", "delete", "doctor", "dream", "import", "jobs", "memory", "pin", "run",
        "serve", "steer", "usage", "worker",
    ];
    let on_all = ["db check", "db migrate", "db prune", "db rekey", "db stats", "db vacuum"];
    let commands = commands(&place).await;
    let with_database = commands.iter().filter(|command| command.has_database());
    assert_all_tried(with_database, COMMANDS, &[&others[..], &on_all].concat());

    let (mut chance, mut named) = (StdRng::seed_from_u64(7), 0);
    for nth in 0..tries {
        for (command, whole) in COMMANDS.into_iter().zip(&whole) {
            restore(&db, &stored);
            let Some(hit) = flip(&db, &mut chance) else { continue };
            let ran = tried(&place, command, &url).await;
            if (ran.code, &ran.stdout) == (whole.0, &whole.1) {
                continue;
            }
            // The list of threads includes damaged ones, with the problem.
            let (said, may_go_on) = match command[0] {
                "threads" => (format!("{}{}", ran.stdout, ran.stderr), true),
                _ => (ran.stderr.clone(), false),
            };
            let names = |word: &str| said.contains(word);
            let row = names("thread `") && (names("checkpoint ") || names("row "))
                || names("row ") && names("`threads`");
            assert!(
                row && names("is damaged") && (may_go_on || ran.code != Some(0)),
                "{nth}: {hit}: {command:?} gave {ran:?} instead of {whole:?}"
            );
            named += 1;
        }
        let _ = fs::remove_file(place.work().join("a"));
    }
    assert!(named > tries, "only {named} were found");
}
