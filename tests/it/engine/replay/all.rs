//! Replays of many threads as one test.

use std::{path::Path, sync::Arc};

use superstep::{
    Checkpointer, CompiledGraph, MemoryCheckpointer,
    checkpoint::text::{self, ExportOptions, Redaction},
};
use superstep_testing::{
    replay_all,
    replays::{ReplayAllError, ReplayOutcome, ReplayReport},
};

use crate::support::{Plain, line, say};

async fn recorded(names: &[&str], nodes: &[&'static str]) -> Arc<MemoryCheckpointer> {
    let store = Arc::new(MemoryCheckpointer::new());
    let graph = line(nodes).with_checkpointer(store.clone());
    for name in names {
        graph.thread(*name).run(say("in")).await.unwrap();
    }
    store
}

async fn export(store: &dyn Checkpointer, thread: &str, folder: &Path, redaction: Redaction) {
    let options = ExportOptions::new().redaction(redaction);
    let text = text::export(store, &thread.into(), &options).await.unwrap();
    std::fs::write(folder.join(format!("{thread}.thread.jsonl")), text).unwrap();
}

fn names(report: &ReplayReport) -> Vec<&str> {
    report.threads.iter().map(|thread| thread.thread.as_str()).collect()
}

fn changed() -> CompiledGraph<Plain> {
    line(&["a", "c"])
}

#[tokio::test]
async fn every_thread_of_a_store_a_folder_and_a_file_is_replayed_in_order() {
    let store = recorded(&["two", "one", "three"], &["a", "b"]).await;
    let same = replay_all(&line(&["a", "b"]), store.clone()).await.unwrap();
    assert_eq!(names(&same), ["one", "three", "two"]);
    same.assert_same();
    assert_eq!(same.to_string(), "3 threads replayed, no divergence");

    let folder = tempfile::tempdir().unwrap();
    for name in ["two", "one", "three"] {
        export(&*store, name, folder.path(), Redaction::new()).await;
    }
    let same = replay_all(&line(&["a", "b"]), folder.path()).await.unwrap();
    assert_eq!(names(&same), ["one", "three", "two"]);
    same.assert_same();
    let file = folder.path().join("two.thread.jsonl");
    let same = replay_all(&line(&["a", "b"]), &*file).await.unwrap();
    assert_eq!((names(&same), same.threads[0].file.as_deref()), (vec!["two"], Some(&*file)));
    same.assert_same();

    let other = replay_all(&changed(), store).await.unwrap();
    assert!(!other.is_same());
    let divergence = other.threads[1].divergence().unwrap();
    assert_eq!((divergence.node.as_str(), divergence.kind.name()), ("a", "route"));
    let text = other.to_string();
    assert!(
        text.starts_with("3 of 3 threads did not replay as stored\nthread `one` diverged\n  superstep 1"),
        "{text}"
    );
    assert!(text.contains("\nthread `two` diverged\n"), "{text}");
}

#[test]
fn a_test_that_is_not_asynchronous_waits_for_the_replays() {
    let store = futures_executor::block_on(recorded(&["t"], &["a"]));
    replay_all(&line(&["a"]), store).blocking().unwrap().assert_same();
}

#[tokio::test]
async fn threads_that_cannot_be_replayed_are_reported_with_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = recorded(&["good", "redacted"], &["a"]).await;
    export(&*store, "good", folder.path(), Redaction::new()).await;
    export(&*store, "redacted", folder.path(), Redaction::new().secret("in")).await;
    std::fs::write(folder.path().join("broken.thread.jsonl"), "{}\n").unwrap();
    let report = replay_all(&line(&["a"]), folder.path()).await.unwrap();
    assert_eq!(names(&report), ["broken", "good", "redacted"]);
    let text = report.to_string();
    assert!(text.starts_with("2 of 3 threads did not replay as stored\nthread `broken` ("), "{text}");
    assert!(text.contains("cannot be replayed\n  SS312: line 1") && text.contains("  SS199: "), "{text}");
    assert!(report.threads[1].is_same());
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| report.assert_same())).unwrap_err();
    assert_eq!(panicked.downcast_ref::<String>(), Some(&text));
}

#[tokio::test]
async fn a_report_shows_no_control_characters_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let store = recorded(&["t"], &["a"]).await;
    export(&*store, "t", folder.path(), Redaction::new()).await;
    let file = folder.path().join("t.thread.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let forged =
        text.replace("\"t\"", r#""t\u001b[2J\n1 thread replayed""#).replace("in", r"\u009b31min\u202e");
    std::fs::write(folder.path().join("x\u{1b}[2J\ny.thread.jsonl"), forged).unwrap();
    std::fs::write(&file, text.replace("\"in\"", r#""\u009b31min\u202e""#)).unwrap();
    let text = replay_all(&changed(), folder.path()).await.unwrap().to_string();
    let hidden = |c: char| c != '\n' && !superstep::llm::text::is_printable(c);
    assert!(!text.contains(hidden) && !text.contains("\n1 thread"), "{text:?}");
    assert!(text.contains("\\u{1b}"), "{text}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_leads_nowhere_is_an_error_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let store = recorded(&["good"], &["a"]).await;
    export(&*store, "good", folder.path(), Redaction::new()).await;
    std::os::unix::fs::symlink("nowhere", folder.path().join("gone.thread.jsonl")).unwrap();
    let report = replay_all(&line(&["a"]), folder.path()).await.unwrap();
    assert_eq!(names(&report), ["gone", "good"]);
    assert!(!report.threads[0].is_same() && report.threads[1].is_same());
    assert!(report.to_string().contains("gone.thread.jsonl"), "{report}");
}

#[tokio::test]
async fn threads_of_other_graphs_are_errors_or_skipped() {
    let store = recorded(&["t"], &["a"]).await;
    let mut graph = superstep::StateGraph::<Plain>::new("another");
    let a = graph.add_node("a", async |_: Plain, _| say("a"));
    graph.add_edge(superstep::START, a);
    let graph = graph.compile().unwrap();
    let report = replay_all(&graph, store.clone()).await.unwrap();
    assert!(
        matches!(&report.threads[0].outcome, ReplayOutcome::NotReplayable(error) if error.to_string().contains("SS176"))
    );
    let skipped = replay_all(&graph, store.clone()).skip_other_graphs().await.unwrap();
    assert!(matches!(skipped.threads[0].outcome, ReplayOutcome::OtherGraph(_)));
    // A test that replays nothing proves nothing.
    assert!(!skipped.is_same());
    assert_eq!(skipped.to_string(), "no thread was replayed");
    graph.with_checkpointer(store.clone()).thread("u").run(say("in")).await.unwrap();
    replay_all(&line(&["a"]), store).skip_other_graphs().await.unwrap().assert_same();
}

#[tokio::test]
async fn a_folder_that_is_missing_is_an_error_and_an_empty_one_replays_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let missing = replay_all(&line(&["a"]), folder.path().join("no")).await;
    assert!(matches!(missing, Err(ReplayAllError::Unreadable { .. })), "{missing:?}");
    assert!(!replay_all(&line(&["a"]), folder.path()).await.unwrap().is_same());
}
