//! A run continues from the state that the run before it left, and only from that of its own thread.

use std::sync::Arc;

use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, END, NodeError, START, StateGraph, ThreadId,
    checkpoint::LoadedHead, sqlite::SqliteCheckpointer,
};

use crate::support::{Plain, line, logging_node, on_every_store, say};

/// Returns whether the next run of `t` continues without folding its thread. Debug builds compare the two states in each run.
async fn is_remembered(store: &dyn Checkpointer) -> bool {
    let LoadedHead { loaded, state } = store.load_head(&ThreadId::from("t")).await.unwrap().unwrap();
    assert_eq!(state.is_some(), loaded.commits.is_empty() && loaded.snapshot.is_none());
    state.is_some()
}

async fn log_after(graph: &CompiledGraph<Plain>, text: &str) -> String {
    graph.thread("t").run(say(text)).await.unwrap().state.log_text()
}

on_every_store! {
    async fn a_turn_continues_from_the_state_that_the_last_one_left(backend: Backend) {
        let store = backend.open();
        let graph = line(&["a", "b"]).with_checkpointer(store.clone());
        assert_eq!(log_after(&graph, "1").await, "1 a b");
        assert_eq!(is_remembered(&*store).await, backend.remembers_heads());
        assert_eq!(log_after(&graph, "2").await, "1 a b 2 a b");
        assert_eq!(is_remembered(&*store).await, backend.remembers_heads());
    }

    async fn an_edit_or_another_branch_is_never_overlooked(backend: Backend) {
        let store = backend.open();
        let graph = line(&["a", "b"]).with_checkpointer(store.clone());
        log_after(&graph, "1").await;
        graph.thread("t").update(say("edit")).await.unwrap();
        assert!(!is_remembered(&*store).await);
        assert_eq!(log_after(&graph, "2").await, "1 a b edit 2 a b");
        graph.thread("t").at(CheckpointId(3)).resume().await.unwrap();
        assert_eq!(log_after(&graph, "3").await, "1 a b 3 a b");
    }

    async fn a_thread_that_took_the_place_of_another_has_its_own_state(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        log_after(&graph, "1").await;
        graph.thread("other").run(say("2")).await.unwrap();
        graph.thread("t").delete().await.unwrap();
        graph.thread("other").copy_to("t").await.unwrap();
        assert_eq!(log_after(&graph, "3").await, "2 a b 3 a b");
    }

    async fn an_adopted_thread_continues_from_its_last_state_and_replays(backend: Backend) {
        let store = backend.open();
        let graph = line(&["a", "b"]).with_checkpointer(store.clone());
        log_after(&graph, "1").await;
        let mut other = StateGraph::new("other");
        let [a, b] = ["a", "b"].map(|name| logging_node(&mut other, name));
        other.add_edge(START, a);
        other.add_edge(a, b);
        other.add_edge(b, END);
        let other = other.compile().unwrap().with_checkpointer(store.clone());
        assert!(other.thread("t").run(say("2")).await.is_err(), "the thread belongs to another graph");
        other.thread("t").adopt().await.unwrap();
        assert_eq!(log_after(&other, "2").await, "1 a b 2 a b");
        assert_eq!(is_remembered(&*store).await, backend.remembers_heads());
        other.thread("t").replay().run().await.unwrap().assert_same();
        assert!(graph.thread("t").run(say("3")).await.is_err(), "nor does it any longer belong to this one");
        assert_eq!(log_after(&other, "3").await, "1 a b 2 a b 3 a b");
    }

    async fn a_message_to_a_remembered_thread_is_read_by_its_next_run_once(backend: Backend) {
        let store = backend.open();
        let mut graph = StateGraph::<Plain>::new("reads");
        let reads = graph.add_node("reads", async |state: Plain, cx: Cx| {
            let found = cx.inbox(u64::try_from(state.x)?).await?;
            let last = found.last().map_or(state.x, |last| last.number as i64);
            Ok::<_, NodeError>(say(&format!("read {}", found.len())).x(last))
        });
        graph.add_edge(START, reads);
        graph.add_edge(reads, END);
        let graph = graph.compile().unwrap().with_checkpointer(store.clone());
        assert_eq!(log_after(&graph, "1").await, "1 read 0");
        graph.thread("t").post("now").await.unwrap();
        assert_eq!(is_remembered(&*store).await, backend.remembers_heads(), "the inbox is a thread of its own");
        assert_eq!(log_after(&graph, "2").await, "1 read 0 2 read 1");
        assert_eq!(log_after(&graph, "3").await, "1 read 0 2 read 1 3 read 0");
        graph.thread("t").replay().run().await.unwrap().assert_same();
    }

    async fn another_graph_of_the_same_state_folds_the_thread_itself(backend: Backend) {
        let store = backend.open();
        let [graph, again] = [(); 2].map(|()| line(&["a", "b"]).with_checkpointer(store.clone()));
        log_after(&graph, "1").await;
        assert_eq!(log_after(&again, "2").await, "1 a b 2 a b");
        assert_eq!(log_after(&graph, "3").await, "1 a b 2 a b 3 a b");
    }
}

#[tokio::test]
async fn a_write_through_another_connection_makes_the_next_run_fold_its_thread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("threads.db");
    let [one, other] = [(); 2].map(|()| Arc::new(SqliteCheckpointer::open(&path).unwrap()));
    let [graph, elsewhere] = [&one, &other].map(|store| line(&["a", "b"]).with_checkpointer(store.clone()));
    log_after(&graph, "1").await;
    assert!(is_remembered(&*one).await);
    elsewhere.thread("elsewhere").run(say("x")).await.unwrap();
    assert!(!is_remembered(&*one).await);
    log_after(&graph, "2").await;
    let elsewhere_too = ThreadId::from("t");
    elsewhere.thread(&elsewhere_too).run(say("3")).await.unwrap();
    assert_eq!(log_after(&graph, "4").await, "1 a b 2 a b 3 a b 4 a b");
}
