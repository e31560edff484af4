//! Threads that are deleted, copied and pruned.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use superstep_testing::script::{Answer, call, txt};

use crate::support::{Place, ended, received, serve};

/// Creates a place with finished threads of 8 checkpoints each.
async fn with_threads(threads: &[&str]) -> Place {
    let place = Place::new();
    for thread in threads {
        place.run(&["run", "-q", "1 + 1", "--no-memory", "--thread", thread]).await.ok();
    }
    place
}

async fn names(place: &Place) -> Vec<Value> {
    let listed = place.run(&["threads", "--json"]).await.ok().lines();
    listed.into_iter().map(|line| line["thread"].clone()).collect()
}

#[tokio::test]
async fn threads_are_deleted_all_or_none() {
    let place = with_threads(&["one", "two", "three"]).await;
    let db = place.database().canonicalize().unwrap();
    let unknown = format!("thread `nobody` does not exist in `{}`; see `superstep threads`", db.display());
    place.run(&["delete", "one", "nobody"]).await.refused(5, &unknown);
    assert_eq!(names(&place).await, ["three", "two", "one"]);
    let told = place.run(&["delete", "one", "three", "one"]).await.ok().stdout;
    assert_eq!(told, "deleted threads `one`, `three`\n");
    assert_eq!(names(&place).await, ["two"]);
    assert_eq!(
        place.run(&["delete", "two", "--yes", "--json"]).await.ok().lines(),
        [json!({ "deleted": "two" })]
    );
    assert!(names(&place).await.is_empty());
}

#[tokio::test]
async fn long_results_are_stored_and_deleted_with_their_thread() {
    let place = Place::new();
    let page = "needle\n".repeat(4_000);
    place.file("long.txt", &page);
    let reads = call("c1", "read_file", r#"{"path":"long.txt"}"#);
    let server = serve([reads, txt("ok")]).await;
    let url = server.base_url();
    let args = ["run", "read", "--json", "--thread", "long", "--base-url", &url, "--model", "m"];
    let events = place.run(&args).await.ok().lines();
    let spilled = events.iter().find(|event| event["event"] == "spilled").unwrap();
    assert_eq!(spilled["data"]["path"], ".superstep/results/long/c1.txt");
    let kept = place.work().join(".superstep/results/long/c1.txt");
    assert!(std::fs::read_to_string(&kept).unwrap().contains("needle"));
    place.run(&["delete", "long"]).await.ok();
    assert!(!kept.parent().unwrap().exists());
}

#[tokio::test]
async fn a_copy_is_independent() {
    let place = with_threads(&["one"]).await;
    let told = place.run(&["copy", "one", "two"]).await.ok().stdout;
    assert_eq!(told, "copied thread `one` to thread `two`\n");
    assert_eq!(place.state("two").await["values"], place.state("one").await["values"]);
    place.run(&["run", "-q", "2 + 2", "--thread", "two"]).await.ok();
    assert_eq!(place.steps("one").await.len(), 8, "the other one does not know of it");
    assert!(place.steps("two").await.len() > 8);
    let exists = "SS310: thread `two` already exists; use another name, or delete that thread first";
    place.run(&["copy", "one", "two"]).await.refused(5, exists);
    place.run(&["copy", "one", "one"]).await.refused(5, &exists.replace("two", "one"));
    let copied = place.run(&["copy", "one", "three", "--json"]).await.ok().lines();
    assert_eq!(copied, [json!({ "thread": "one", "copy": "three" })]);
    let unknown = place.run(&["copy", "nobody", "four"]).await;
    assert!(
        unknown.code == Some(5) && unknown.stderr.contains("thread `nobody` does not exist"),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn a_pruned_thread_can_be_continued() {
    let place = with_threads(&["t"]).await;
    let before = place.state("t").await;
    let told = place.run(&["prune", "t", "--older-than", "1h"]).await.ok().stdout;
    assert_eq!(told, "pruned 0 checkpoints of thread `t`, 8 left\n");
    let told = place.run(&["prune", "t", "--keep-last", "2"]).await.ok().stdout;
    assert_eq!(told, "pruned 6 checkpoints of thread `t`, 2 left\n");
    assert_eq!(place.state("t").await["values"], before["values"]);
    let tree = place.run(&["history", "t"]).await.ok().stdout;
    let rows: Vec<_> = tree.lines().filter(|line| line.starts_with("● ")).collect();
    assert!(rows.len() == 2 && rows[0].contains("after 6 (pruned)") && !rows[1].contains("pruned"), "{tree}");
    let pruned = place.run(&["prune", "t", "--leaves", "--json", "--yes"]).await.ok().lines();
    assert_eq!(pruned, [json!({ "thread": "t", "pruned": 1, "left": 1, "files": 0 })]);
    let told = place.run(&["prune", "t", "--older-than", "0s"]).await.ok().stdout;
    assert_eq!(told, "pruned 0 checkpoints of thread `t`, 1 left\n", "the newest is kept");
    place.run(&["run", "-q", "2 + 2", "--thread", "t"]).await.ok();
    assert_eq!(place.state("t").await["values"]["messages"][0]["content"], "1 + 1");
}

#[tokio::test]
async fn a_pruned_thread_retains_its_settings() {
    let place = Place::new();
    let server = serve([txt("one"), txt("two"), txt("three")]).await;
    let url = server.base_url();
    let ask =
        ["run", "a", "--thread", "t", "--base-url", &url, "--model", "m", "--max-steps", "3", "--quiet"];
    place.run(&ask).await.ok();
    for (keep, answer) in [(&["--keep-last", "2"][..], "two\n"), (&["--leaves"], "three\n")] {
        for _ in 0..2 {
            place.run(&[&["prune", "t", "--yes"][..], keep].concat()).await.ok();
        }
        assert_eq!(place.run(&["run", "b", "--thread", "t", "--quiet"]).await.ok().stdout, answer);
        assert_eq!(place.state("t").await["values"]["max_steps"], 3);
    }
    assert_eq!(server.check(), Ok(()));
}

#[tokio::test]
async fn a_prune_requires_a_retention() {
    let place = with_threads(&["t"]).await;
    for (args, wanted) in [
        (&["prune", "t"][..], "--keep-last"),
        (&["prune", "t", "--leaves", "--keep-last", "1"], "cannot be used with"),
        (&["prune", "t", "--keep-last", "0"], "0 is not in 1.."),
        (
            &["prune", "t", "--older-than", "soon"],
            "invalid duration `soon`; write a number and one of s, m, h, d, w",
        ),
    ] {
        let ran = place.run(args).await;
        assert!(ran.code == Some(2) && ran.stderr.contains(wanted), "{ran:?}");
    }
    let unknown = place.run(&["prune", "nobody", "--leaves"]).await;
    assert!(
        unknown.code == Some(5) && unknown.stderr.contains("thread `nobody` does not exist"),
        "{unknown:?}"
    );
    let empty = Place::new();
    let unknown = empty.run(&["delete", "nobody"]).await;
    assert!(unknown.code == Some(5) && !empty.database().exists(), "{unknown:?}");
}

#[tokio::test]
async fn a_thread_that_is_busy_is_left_alone() {
    let place = with_threads(&["idle"]).await;
    let server = serve([Answer::stream().stall(), txt("unused")]).await;
    let running =
        place.start(&["run", "hi", "--thread", "t", "--base-url", &server.base_url(), "--model", "m"]);
    received(&server, 1).await;
    let busy =
        "SS301: thread `t` is busy, another run is working on it; wait for it to end or use another thread";
    for args in [&["delete", "idle", "t"][..], &["copy", "t", "u"], &["prune", "t", "--leaves"]] {
        place.run(args).await.refused(5, busy);
    }
    assert_eq!(names(&place).await.len(), 2, "nothing is deleted");
    running.signal("KILL");
}

/// Creates a thread with a turn in each of two folders, in a database of their own.
async fn in_two_folders(place: &Place, user: &str) -> [PathBuf; 2] {
    let write =
        |id: &str, name: &str| call(id, "write_file", &json!({ "path": name, "content": "x\n" }).to_string());
    let server = serve([write("c1", "one"), txt("ok"), write("c2", "two"), txt("ok")]).await;
    let url = server.base_url();
    let folders = ["a", "b"].map(|name| place.work().canonicalize().unwrap().join(name));
    for folder in &folders {
        std::fs::create_dir(folder).unwrap();
        let cwd = folder.to_str().unwrap();
        let args = ["run", "go", "--thread", "t", "--base-url", &url, "--model", "m", "--no-memory", "--yes"];
        let at = ["--db", "all.db", "--cwd", cwd];
        ended(&mut place.command_of(user, &[&args[..], &at].concat())).await.ok();
    }
    assert!(folders[0].join("one").exists() && folders[1].join("two").exists());
    folders
}

fn has_files(folder: &Path, thread: &str) -> bool {
    folder.join(".superstep/files").join(thread).exists()
}

#[tokio::test]
async fn a_thread_that_worked_in_two_folders_is_copied_pruned_and_deleted_in_both() {
    let place = Place::new();
    let [a, b] = in_two_folders(&place, "ada").await;
    let ada = async |args: &[&str]| {
        ended(&mut place.command_of("ada", &[args, &["--db", "all.db"]].concat())).await
    };
    ada(&["copy", "t", "u"]).await.ok();
    assert!([&a, &b].iter().all(|folder| has_files(folder, "t") && has_files(folder, "u")));
    // Only the newest checkpoint is left, which does not name the first folder.
    ada(&["prune", "t", "--leaves", "--yes"]).await.ok();
    let left = ada(&["history", "t", "--json"]).await.ok().stdout;
    assert!(!left.contains(a.to_str().unwrap()), "{left}");
    // The copy has all of it: its last round is taken back, and the files of the first folder are whole.
    let history = ada(&["history", "u", "--json"]).await.ok().lines();
    let first_turn =
        history.iter().rev().find(|line| line["control"]["next"] == json!([])).unwrap()["id"].to_string();
    ada(&["revert", "u", "--to", &first_turn, "--yes"]).await.ok();
    assert!(!b.join("two").exists() && a.join("one").exists());
    for thread in ["u", "t"] {
        ada(&["delete", thread, "--yes"]).await.ok();
        assert!(!has_files(&a, thread) && !has_files(&b, thread), "{thread}");
    }
}

#[tokio::test]
async fn a_damaged_thread_is_deleted_with_its_files_in_the_folders_where_its_user_ran_it() {
    for (user, is_whole) in [("ada", false), ("mallory", true)] {
        let place = Place::new();
        let [a, b] = in_two_folders(&place, user).await;
        let db = place.work().join("all.db");
        let ada = async |args: &[&str]| {
            ended(&mut place.command_of("ada", &[args, &["--db", "all.db"]].concat())).await
        };
        // Every step of every checkpoint.
        let mut bytes = std::fs::read(&db).unwrap();
        let head = br#"{"step":"#;
        let steps: Vec<_> =
            (0..bytes.len() - head.len()).filter(|at| bytes[*at..].starts_with(head)).collect();
        assert!(!steps.is_empty());
        for at in steps {
            bytes[at] = b'!';
        }
        std::fs::write(&db, bytes).unwrap();
        let state = ada(&["state", "t"]).await;
        assert!(state.code == Some(4) && state.stderr.contains("SS304: "), "{state:?}");
        ada(&["delete", "t", "--yes"]).await.ok();
        assert_eq!([has_files(&a, "t"), has_files(&b, "t")], [is_whole; 2], "{user}");
    }
}

#[tokio::test]
async fn folders_that_only_the_database_names_are_left_alone() {
    let place = Place::new();
    let [a, b] = in_two_folders(&place, "mallory").await;
    let ada = async |args: &[&str]| {
        ended(&mut place.command_of("ada", &[args, &["--db", "all.db"]].concat())).await
    };
    ada(&["copy", "t", "u"]).await.ok();
    ada(&["prune", "t", "--leaves", "--yes"]).await.ok();
    assert!(!has_files(&a, "u") && !has_files(&b, "u"));
    ada(&["delete", "t", "--yes"]).await.ok();
    assert!(has_files(&a, "t") && has_files(&b, "t"));
}

#[tokio::test]
async fn the_files_of_a_folder_with_a_database_of_its_own_are_left_to_that_database() {
    let place = Place::new();
    let [a, b] = in_two_folders(&place, "ada").await;
    let server = serve([txt("ok")]).await;
    let url = server.base_url();
    let args = ["run", "go", "--thread", "t", "--base-url", &url, "--model", "m", "--no-memory", "--cwd"];
    ended(&mut place.command_of("ada", &[&args[..], &[a.to_str().unwrap()]].concat())).await.ok();
    ended(&mut place.command_of("ada", &["delete", "t", "--yes", "--db", "all.db"])).await.ok();
    assert!(has_files(&a, "t") && !has_files(&b, "t"));
}
