//! Threads as text: `export` and `import`.

use std::{collections::BTreeSet, ffi::OsString, fs, path::Path};

use serde_json::json;
use superstep_testing::script::{call, txt};

use crate::support::{Place, Ran, ended, serve};

/// Creates a place with the finished thread `t`.
async fn with_thread() -> Place {
    let place = Place::new();
    place.run(&["run", "-q", "12 + 30", "--no-memory", "--thread", "t"]).await.ok();
    place
}

async fn exported(place: &Place, args: &[&str]) -> String {
    place.run(&[&["export", "t"], args].concat()).await.ok().stdout
}

/// Returns the names of the files in the folder of the database.
fn beside(database: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(database.parent().unwrap()).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

#[tokio::test]
async fn an_exported_thread_is_imported_elsewhere() {
    let here = with_thread().await;
    let text = exported(&here, &[]).await;
    assert!(text.starts_with(r#"{"superstep":"thread","format":1,"thread":"t","mark":{"graph":"#), "{text}");
    let there = Place::new();
    there.file("case.jsonl", &text);
    let said = there.run(&["import", "case.jsonl"]).await.ok().stdout;
    assert_eq!(said, "imported thread `t` with 8 checkpoints\n");
    assert_eq!(exported(&there, &[]).await, text);
    let [mut one, mut other] = [here.state("t").await, there.state("t").await];
    for state in [&mut one, &mut other] {
        state["checkpoint"]["metadata"].take();
    }
    assert_eq!(one, other);
    assert_eq!(here.steps("t").await, there.steps("t").await);
    let replayed = there.run(&["replay", "t", "--strict"]).await.ok().stdout;
    assert!(replayed.contains("no divergence"), "{replayed}");

    let copied = there.run(&["import", "case.jsonl", "--as", "u", "--json"]).await.ok().lines();
    assert_eq!(copied, [json!({"thread": "u", "threads": 1, "checkpoints": 8})]);
    there.run(&["run", "-q", "2 + 2", "--thread", "u"]).await.ok();
    assert_eq!(there.steps("t").await.len(), 8);
    there
        .run(&["import", "case.jsonl"])
        .await
        .refused(5, "SS310: thread `t` already exists; use another name, or delete that thread first");
    let all = exported(&here, &["--snapshots"]).await;
    assert!(all.len() >= text.len());
}

#[tokio::test]
async fn a_redaction_that_replaces_nothing_is_refused_before_anything_is_written() {
    let place = with_thread().await;
    for rule in ["mesages", "messages.*.contnt", "messages.*.content.x"] {
        let error = format!(
            "`--redact {rule}` replaces nothing, because thread `t` stores no such value; nothing was written. Correct the name or omit \
             it; `state` shows the channels of a thread"
        );
        place.run(&["export", "t", "--redact", "answer", "--redact", rule]).await.refused(2, &error);
    }
    exported(&place, &["--redact", "messages", "--redact", "messages.*.content", "--redact", "answer"]).await;
}

#[tokio::test]
async fn a_wrong_file_is_refused_and_nothing_is_made() {
    let place = with_thread().await;
    let text = exported(&place, &[]).await;
    let there = Place::new();
    let cut = &text[..text.trim_end().rfind('\n').unwrap() + 1];
    let lines = text.lines().count();
    let newer = text.replacen("\"format\":1", "\"format\":7", 1);
    let named = text.replacen("\"thread\":\"t\"", "\"thread\":\"a\\u202eb\"", 1);
    let files: [(&str, &[u8], &str); 5] = [
        (
            "cut",
            cut.as_bytes(),
            &format!(
                "SS312: line {lines} of the thread file: the file ends here, without its last line, `total`: it is incomplete"
            ),
        ),
        (
            "other",
            b"hello\n",
            "SS312: line 1 of the thread file: it is not the first line of a thread's text, which begins with `{\"superstep\":\"thread\",`",
        ),
        ("empty", b"", "SS312: line 0 of the thread file: the file is empty"),
        (
            "newer",
            newer.as_bytes(),
            "SS312: line 1 of the thread file: the file has format 7, and this program knows format 1; use a newer superstep",
        ),
        (
            "name",
            named.as_bytes(),
            "a thread's name has no characters that cannot be seen; choose one with `--as`",
        ),
    ];
    for (name, content, wanted) in files {
        fs::write(there.work().join(name), content).unwrap();
        let ran = there.run(&["import", name]).await;
        let wanted = if name == "name" { wanted.to_owned() } else { format!("`{name}`: {wanted}") };
        ran.refused(2, &wanted);
    }
    let ran = there.run(&["import", "none.jsonl"]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("cannot read `none.jsonl`: No such file"), "{ran:?}");
    there.run(&["import", "."]).await.refused(2, "cannot read `.`: it is not a regular file");
    assert!(!there.database().exists(), "nothing is made");
    let unknown = place.run(&["export", "u"]).await;
    assert!(
        unknown.code == Some(5) && unknown.stderr.contains("thread `u` does not exist in"),
        "{unknown:?}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_pipe_in_place_of_a_file_is_refused_without_waiting_for_its_writer() {
    let place = Place::new();
    let pipe = place.work().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    place.run(&["import", "pipe"]).await.refused(2, "cannot read `pipe`: it is not a regular file");
    let replayed = place.run(&["replay", "--all", "pipe"]).await;
    assert_eq!(replayed.code, Some(1), "{replayed:?}");
    assert!(replayed.stdout.contains("cannot read `pipe`: it is not a regular file"), "{replayed:?}");
}

#[tokio::test]
async fn a_redacted_thread_is_not_replayed() {
    let place = with_thread().await;
    let hidden = exported(&place, &["--redact", "messages", "--redact", "answer"]).await;
    assert!(hidden.contains(r#""messages":{"$redacted":"channel messages"}"#), "{hidden}");
    let mut command = place.command(&["export", "t", "--redact-env", "SECRET"]);
    let hidden = ended(command.env("SECRET", "12 + 30")).await.ok().stdout;
    assert!(!hidden.contains("12 + 30") && hidden.contains("[redacted]"), "{hidden}");
    place
        .run(&["export", "t", "--redact-env", "NO_SUCH"])
        .await
        .refused(2, "the environment variable `NO_SUCH` is not set");
    let there = Place::new();
    there.file("case.jsonl", &hidden);
    there.run(&["import", "case.jsonl"]).await.ok();
    there.run(&["state", "t"]).await.ok();
    there.run(&["replay", "t"]).await.refused(
        5,
        "SS199: thread `t` was redacted when it was exported (secrets), so the values that a replay compares are missing; replay \
         the thread that was exported",
    );
}

/// Grants, rules and decisions of an imported thread are not the user's.
#[tokio::test]
async fn an_imported_thread_allows_nothing() {
    let write = |id: &'static str, path: &str| {
        call(id, "write_file", &format!(r#"{{"path":"{path}","content":"made"}}"#))
    };
    let server =
        serve([write("c1", "a.txt"), txt("ok"), write("c2", "b.txt"), txt("ok"), write("c3", "c.txt")]).await;
    let url = server.base_url();
    let at = ["--base-url", &url, "--model", "m"];
    let place = Place::new();
    place.file("rules.toml", "[[permissions]]\ntool = \"*\"\nthen = \"allow\"\n");
    let run = async |args: &[&str]| -> Ran { place.run(&[args, &at[..]].concat()).await };
    run(&["run", "go", "--thread", "t", "--config", "rules.toml"]).await.ok();
    run(&["run", "more", "--thread", "t"]).await.ok();
    assert!(place.work().join("b.txt").exists(), "the user's own rules apply to the user's own thread");

    let text = exported(&place, &[]).await;
    place.file("case.jsonl", &text);
    // Not by the command, so that the user's decisions on the thread remain.
    let store = superstep::sqlite::SqliteCheckpointer::open(place.database()).unwrap();
    superstep::Checkpointer::delete(&store, &"t".into()).await.unwrap();
    drop(store);
    place.run(&["import", "case.jsonl"]).await.ok();
    let ran = run(&["run", "again", "--thread", "t"]).await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.stderr.contains("call `c3` of write_file waits"), "{}", ran.stderr);
    assert!(!place.work().join("c.txt").exists());
    let ran = place.run(&["resume", "t"]).await;
    assert!(ran.code != Some(0) && !place.work().join("c.txt").exists(), "{ran:?}");
}

#[tokio::test]
async fn reading_leaves_no_file_beside_the_database() {
    let place = with_thread().await;
    let before = beside(&place.database());
    let content = fs::read(place.database()).unwrap();
    assert!(!before.iter().any(|name| name.to_string_lossy().contains("-wal")), "{before:?}");
    for args in [
        &["threads"][..],
        &["state", "t"],
        &["history", "t"],
        &["replay", "t"],
        &["export", "t"],
        &["draw", "--thread", "t"],
        &["state", "unknown"],
    ] {
        place.run(args).await;
        assert_eq!(beside(&place.database()), before, "{args:?}");
    }
    assert!(fs::read(place.database()).unwrap() == content, "the database is as it was");
}

#[tokio::test]
async fn a_byte_order_mark_before_a_thread_or_a_prompt_is_no_part_of_it() {
    let here = with_thread().await;
    let text = exported(&here, &[]).await;
    let there = Place::new();
    there.file("case.jsonl", &format!("\u{feff}{text}"));
    there.run(&["import", "case.jsonl"]).await.ok();
    assert_eq!(exported(&there, &[]).await, text);
    let server = serve([txt("ok")]).await;
    let args = ["run", "-", "-q", "--base-url", &server.base_url(), "--model", "m"];
    there.run_with_stdin(&args, "\u{feff}hello\n".as_bytes()).await.ok();
    let messages = server.requests()[0]["messages"].as_array().unwrap().clone();
    assert_eq!(messages.last().unwrap()["content"], "hello");
}
