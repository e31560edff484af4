//! Commands that a program with graphs of its own rejects.

use std::sync::Arc;

use superstep::{CheckpointId, llm::text::is_printable, prelude::*};

use crate::{
    listed::{assert_all_tried, own_commands},
    support::{Place, ended},
};

const LARGE: &str = r#"{"items": [{"name": "tea", "euros": 100}]}"#;

#[derive(State, Clone, Debug, Default)]
struct Other {
    text: String,
}

/// The commands that read no thread which the command line names, and those that need a PostgreSQL database.
const WITHOUT_THREAD: [&str; 12] = [
    "db check",
    "db migrate",
    "db prune",
    "db rekey",
    "db stats",
    "db vacuum",
    "import",
    "jobs",
    "run",
    "serve",
    "threads",
    "worker",
];

/// Asserts that these commands are all that open a database, but those that read no thread.
async fn assert_all_of_a_thread(place: &Place, tried: &[&[&'static str]]) {
    let commands = own_commands(place).await;
    assert_all_tried(commands.iter().filter(|command| command.has_database()), tried, &WITHOUT_THREAD);
}

/// Asserts that these commands are all with the flag `--trust`, but those that need a PostgreSQL database or serve until they are stopped.
async fn assert_all_with_trust(place: &Place, tried: &[&[&'static str]]) {
    let commands = own_commands(place).await;
    assert_all_tried(
        commands.iter().filter(|command| command.flags().any(|flag| flag == "--trust")),
        tried,
        &["db check", "jobs", "serve", "worker"],
    );
}

/// Stores a thread of a graph with this name.
async fn stored(place: &Place, graph: &str, thread: &str, text: &str) {
    std::fs::create_dir_all(place.database().parent().unwrap()).unwrap();
    let mut other = StateGraph::<Other>::new(graph);
    let node = other.add_node("write", async |_: Other, _: Cx| ());
    other.add_edge(START, node);
    other.add_edge(node, END);
    let store = SqliteCheckpointer::open(place.database()).unwrap();
    let other = other.compile().unwrap().with_checkpointer(Arc::new(store));
    other.thread(thread).run(Other::update().text(text)).await.unwrap();
}

#[tokio::test]
async fn a_wrong_input_names_its_place_and_stores_nothing() {
    let place = Place::new();
    for (input, error) in [
        (r#"{"itms": []}"#, "the input has the unknown channel `itms`; did you mean `items`?"),
        (
            r#"{"x": 1}"#,
            "the input has the unknown channel `x`; the channels are `items`, `total`, `status`, `notes`",
        ),
        (
            r#"{"items": [{"name": "tea", "euros": "3"}]}"#,
            "the input does not fit the state: `items[0].euros`: invalid type: string \"3\", expected u32",
        ),
        (
            r#"{"total": -1}"#,
            "the input does not fit the state: `total`: invalid value: integer `-1`, expected u32",
        ),
        ("[]", "the input is a list, and must be an object with an entry for each written channel"),
        (r#"{"total": 1"#, "the input is not valid JSON: EOF while parsing an object at line 1 column 11"),
        ("@missing.json", "the input `missing.json` cannot be read: No such file or directory (os error 2)"),
    ] {
        place.own(&["run", "orders", "--input", input]).await.refused(2, error);
    }
    assert!(!place.database().exists());
}

#[tokio::test]
async fn unknown_names_are_refused_with_the_one_that_was_meant() {
    let place = Place::new();
    place.own(&["run"]).await.refused(2, "name a graph: `orders`, `digest`");
    place.own(&["run", "order"]).await.refused(2, "unknown graph `order`; did you mean `orders`?");
    place.own(&["draw", "x"]).await.refused(2, "unknown graph `x`; the graphs are `orders`, `digest`");
    let unknown = |thread: &str| {
        let db = place.work().canonicalize().unwrap().join(".superstep/threads.db");
        format!("thread `{thread}` does not exist in `{}`; see `own_program threads`", db.display())
    };
    let tried = [
        &["resume", "t"][..],
        &["answer", "t", "k", "1"],
        &["state", "t"],
        &["history", "t"],
        &["diff", "t", "t"],
        &["fork", "t", "--at", "1"],
        &["edit", "t", "--update", "{}"],
        &["draw", "--thread", "t"],
        &["replay", "t"],
        &["watch", "t"],
        &["export", "t"],
    ];
    assert_all_of_a_thread(&place, &tried).await;
    for args in tried {
        place.own(args).await.refused(5, &unknown("t"));
    }
    assert!(!place.database().exists(), "looking makes nothing");

    place.own(&["run", "orders", "--input", LARGE, "--thread", "o"]).await;
    for args in [
        &["state", "o", "--at", "99"][..],
        &["fork", "o", "--at", "99"],
        &["diff", "o", "@99"],
        &["resume", "o", "--from", "99"],
    ] {
        place
            .own(args)
            .await
            .refused(5, "SS111: thread `o` has no checkpoint 99; its history lists those it has");
    }
    place
        .own(&["diff", "@1", "@2"])
        .await
        .refused(2, "the first state has no thread: write `THREAD@CHECKPOINT`");
    let edit = ["edit", "o", "--update", "{}", "--as", "aprove"];
    place.own(&edit).await.refused(2, "graph `orders` has no node `aprove`; did you mean `approve`?");
    let edit = ["edit", "o", "--update", r#"{"statu": ""}"#];
    place.own(&edit).await.refused(2, "the update has the unknown channel `statu`; did you mean `status`?");
    let fork = ["fork", "o", "--at", "1", "--as", "o"];
    place
        .own(&fork)
        .await
        .refused(5, "SS310: thread `o` already exists; use another name, or delete that thread first");
    let replay = place.own(&["replay", "o", "--live", "x"]).await;
    assert!(replay.code == Some(5) && replay.stderr.contains("SS19"), "{replay:?}");
}

#[tokio::test]
async fn an_answer_needs_a_waiting_question_and_its_type() {
    let place = Place::new();
    place.own(&["run", "orders", "--input", LARGE, "--thread", "o"]).await;
    place
        .own(&["answer", "o", "aprove", "true"])
        .await
        .refused(2, "no question `aprove` waits; did you mean `approve`?");
    place.own(&["answer", "o", "approve", "yes"]).await.refused(
        2,
        "the answer is not valid JSON: expected value at line 1 column 1; a text is in quotes: '\"yes\"'",
    );
    let unfit = place.own(&["answer", "o", "approve", "5"]).await;
    assert!(unfit.code == Some(2) && unfit.stderr.contains("SS120"), "{unfit:?}");
    place.own(&["answer", "o", "approve", "true"]).await.ok();
    place
        .own(&["answer", "o", "approve", "true"])
        .await
        .refused(5, "no question of thread `o` waits for an answer");
    let replay = place.own(&["replay", "o", "--live", "x"]).await;
    assert!(replay.code == Some(2) && replay.stderr.contains("SS197: "), "{replay:?}");
    place.own(&["resume", "o"]).await.refused(
        5,
        "thread `o` is finished; run it again with: own_program run orders --thread o --input JSON",
    );
}

#[tokio::test]
async fn a_thread_of_another_graph_is_refused_and_its_texts_are_escaped() {
    const HOSTILE: &str = "a\u{202e}b\u{2066}\u{2028}c\u{200b}d\u{e0041}";
    let place = Place::new();
    place.own(&["run", "digest", "--thread", "d"]).await.ok();
    stored(&place, HOSTILE, "other", "x").await;
    let named = place.own(&["run", "orders", "--thread", "d"]).await;
    assert!(named.code == Some(5) && named.stderr.contains("SS176"), "{named:?}");
    let tried = [
        &["state", "other"][..],
        &["history", "other"],
        &["resume", "other"],
        &["answer", "other", "k", "1"],
        &["diff", "other", "d"],
        &["fork", "other", "--at", "1"],
        &["edit", "other", "--update", "{}"],
        &["draw", "--thread", "other"],
        &["replay", "other"],
        &["watch", "other"],
        &["export", "other"],
    ];
    assert_all_of_a_thread(&place, &tried).await;
    for args in tried {
        let ran = place.own(args).await;
        assert!(ran.code == Some(5) && ran.stderr.contains("belongs to graph"), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("and this program has `orders`, `digest`"), "{ran:?}");
        assert!(ran.stderr.chars().all(is_printable_or_line), "{ran:?}");
    }
    // A graph that has the name of the program's, with other channels and nodes.
    stored(&place, "digest", HOSTILE, HOSTILE).await;
    for args in [&["threads"][..], &["threads", "--json"]] {
        let ran = place.own(args).await.ok();
        assert!(ran.stdout.chars().all(is_printable_or_line), "{ran:?}");
    }
    place
        .own(&[
            "run",
            "digest",
            "--thread",
            "h",
            "--input",
            &serde_json::json!({"summary": HOSTILE}).to_string(),
        ])
        .await
        .ok();
    for args in [
        &["state", "h"][..],
        &["state", "h", "--json"],
        &["history", "h"],
        &["diff", "h", "d"],
        &["watch", "h"],
    ] {
        let ran = place.own(args).await.ok();
        assert!(ran.stdout.chars().all(is_printable_or_line), "{ran:?}");
    }
    let state = place.own(&["state", "h"]).await.ok().stdout;
    let (_, values) = state.split_once("\n\n").unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(values).unwrap()["texts"], serde_json::json!([]));
}

fn is_printable_or_line(c: char) -> bool {
    c == '\n' || is_printable(c)
}

#[tokio::test]
async fn threads_of_a_foreign_database_run_only_if_it_is_trusted() {
    let place = Place::new();
    place.own(&["run", "orders", "--input", LARGE, "--thread", "o"]).await;
    let stranger = |args: &[&str]| {
        let mut command = place.own_command(args);
        command.env("SUPERSTEP_STATE_DIR", place.beside("stranger"));
        command
    };
    let db = place.work().canonicalize().unwrap().join(".superstep/threads.db");
    let refused = format!(
        "this program did not create the database `{}` on this machine, so thread `o` may come from someone else; \
         inspect it with `own_program state o`, and repeat the command with `--trust` to run it",
        db.display()
    );
    let tried = [
        &["run", "orders", "--thread", "o", "--discard"][..],
        &["resume", "o"],
        &["answer", "o", "approve", "true"],
        &["replay", "o"],
    ];
    assert_all_with_trust(&place, &tried).await;
    for args in tried {
        ended(&mut stranger(args)).await.refused(2, &refused);
    }
    ended(&mut stranger(&["state", "o"])).await.ok();
    // A refused run trusts nothing.
    let unfinished = ended(&mut stranger(&["run", "orders", "--thread", "o", "--trust"])).await;
    assert_eq!(unfinished.code, Some(5), "{unfinished:?}");
    ended(&mut stranger(tried[2])).await.refused(2, &refused);
    ended(&mut stranger(&["run", "digest", "--thread", "new"])).await.ok();
    ended(&mut stranger(&["answer", "o", "approve", "true", "--trust"])).await.ok();
    ended(&mut stranger(&["replay", "o"])).await.ok();
}

/// The database is the user's own, but this thread is the text of a foreign file.
#[tokio::test]
async fn an_imported_thread_and_its_copies_run_only_if_they_are_trusted() {
    let place = Place::new();
    place.own(&["run", "orders", "--input", LARGE, "--thread", "o"]).await;
    place.file("o.jsonl", &place.run(&["export", "o"]).await.ok().stdout);
    place.run(&["import", "o.jsonl", "--as", "forged"]).await.ok();
    place.run(&["copy", "forged", "copy"]).await.ok();
    place.own(&["fork", "copy", "--at", "1", "--as", "fork"]).await.ok();
    for thread in ["forged", "copy", "fork"] {
        let refused = format!(
            "thread `{thread}` was imported from a file, so it may come from someone else; inspect it with \
             `own_program state {thread}`, and repeat the command with `--trust` to run it"
        );
        let tried = [
            &["run", "orders", "--thread", thread, "--discard"][..],
            &["resume", thread],
            &["answer", thread, "approve", "true"],
            &["replay", thread],
        ];
        assert_all_with_trust(&place, &tried).await;
        for args in tried {
            // A fork of the input has no question yet.
            if (thread, args[0]) != ("fork", "answer") {
                place.own(args).await.refused(2, &refused);
            }
        }
    }
    // An import that was killed leaves a thread that nothing is recorded about.
    let left = "o (import 0123456789abcdef)";
    let store = SqliteCheckpointer::open(place.database()).unwrap();
    store.copy(&"o".into(), &left.into()).await.unwrap();
    drop(store);
    assert_eq!(place.own(&["answer", left, "approve", "true"]).await.code, Some(2));
    place.own(&["answer", left, "approve", "true", "--trust"]).await.ok();
    place.own(&["replay", left]).await.ok();
    // Trust in one of them is not trust in another.
    place.own(&["answer", "forged", "approve", "true", "--trust"]).await.ok();
    place.own(&["replay", "forged"]).await.ok();
    assert_eq!(place.own(&["replay", "copy"]).await.code, Some(2));
    // A thread of the user's own may get the name of a deleted one.
    place.run(&["delete", "fork", "--yes"]).await.ok();
    place.own(&["run", "orders", "--input", LARGE, "--thread", "fork"]).await;
    place.own(&["answer", "fork", "approve", "true"]).await.ok();
    place.own(&["answer", "o", "approve", "true"]).await.ok();
}

#[cfg(unix)]
#[tokio::test]
async fn a_database_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.own(&["run", "digest", "--thread", "d"]).await.ok();
    std::fs::set_permissions(place.database(), std::fs::Permissions::from_mode(0o666)).unwrap();
    for args in [&["state", "d"][..], &["threads"], &["run", "digest"]] {
        let ran = place.own(args).await;
        assert!(ran.code == Some(4) && ran.stderr.contains("can be written by other users"), "{ran:?}");
    }
}

/// Neither `--trust` nor a database of one's own makes them a part of the new thread.
#[tokio::test]
async fn a_run_continues_nothing_of_a_thread_that_has_no_checkpoints() {
    let place = Place::new();
    place.own(&["run", "digest", "--thread", "d"]).await.ok();
    let store = SqliteCheckpointer::open(place.database()).unwrap();
    let commit = store.read_commit(&"d".into(), CheckpointId(1)).await.unwrap().unwrap();
    for child in ["left\u{1f}$inbox", "left\u{1f}pay:0@2"] {
        store.commit(&child.into(), None, commit.clone()).await.unwrap();
    }
    drop(store);
    let refused = "SS318: thread `left` has no checkpoints, but something below it is stored: `left/$inbox`, `left/pay:0@2`; a \
                   new thread does not continue what a deleted thread or another program left: delete thread `left`, or use \
                   another name";
    place.own(&["run", "digest", "--thread", "left"]).await.refused(5, refused);
    place.own(&["run", "digest", "--thread", "left", "--trust"]).await.refused(5, refused);
    let mut stranger = place.own_command(&["run", "digest", "--thread", "left"]);
    stranger.env("SUPERSTEP_STATE_DIR", place.beside("stranger"));
    ended(&mut stranger).await.refused(5, refused);
    place.run(&["run", "hello", "--model", "offline", "--thread", "left"]).await.refused(5, refused);
    for listed in [place.own(&["threads"]).await.ok(), place.run(&["threads"]).await.ok()] {
        let line = listed.stdout.lines().find(|line| line.split_whitespace().next() == Some("left")).unwrap();
        assert!(line.contains("  has no checkpoints"), "{line}");
    }
    let json = place.own(&["threads", "--json"]).await.ok().lines();
    assert_eq!((&json[1]["thread"], &json[1]["error"]), (&"left".into(), &refused.into()));
    for check in [place.own(&["db", "check"]).await, place.run(&["db", "check"]).await] {
        assert_eq!(check.code, Some(4), "{check:?}");
        let damage = format!("damaged: {refused}\n1 thread and ");
        assert!(check.stdout.starts_with(&damage), "{check:?}");
        assert!(check.stdout.ends_with(" are intact; 1 damage\n"), "{check:?}");
    }
    place.run(&["delete", "left", "--yes"]).await.ok();
    place.own(&["db", "check"]).await.ok();
    place.own(&["run", "digest", "--thread", "left"]).await.ok();
}
