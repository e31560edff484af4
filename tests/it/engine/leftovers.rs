//! Threads without checkpoints of which something else is stored: a thread of a subgraph, or an inbox.

use std::sync::Arc;

use superstep::{
    Checkpointer, CompiledGraph, Cx, END, MemoryCheckpointer, NodeError, RunError, START, StateGraph,
    ThreadId, checkpoint::CheckpointError,
};

use super::subgraphs::{asking, parent};
use crate::support::{Calls, Plain, failed, on_every_store, say};

/// Copies the thread of a subgraph, or an inbox, to a store without its root.
async fn plant(from: &MemoryCheckpointer, to: &dyn Checkpointer, child: &ThreadId) {
    let mut ids: Vec<_> =
        from.history(child, Default::default()).await.unwrap().iter().map(|meta| meta.id).collect();
    ids.reverse();
    let mut head = None;
    for id in ids {
        let commit = from.read_commit(child, id).await.unwrap().unwrap();
        head = Some(to.commit(child, head, commit).await.unwrap());
    }
}

/// `listen`, which says everything that was posted.
fn listening() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("parent");
    let listen = graph.add_node("listen", async |_: Plain, cx: Cx| {
        let posted = cx.inbox(0).await?;
        let words: Vec<_> = posted.iter().map(|posted| posted.item.to_string()).collect();
        Ok::<_, NodeError>(say(&words.join(" ")))
    });
    graph.add_edge(START, listen);
    graph.add_edge(listen, END);
    graph.compile().unwrap()
}

/// Returns what is stored below thread `t` of a graph that ran, and posted if it `posts`.
async fn left_by(graph: CompiledGraph<Plain>, posts: bool) -> (Arc<MemoryCheckpointer>, Vec<ThreadId>) {
    let store = Arc::new(MemoryCheckpointer::new());
    let thread = graph.with_checkpointer(store.clone()).thread("t");
    thread.run(say("in")).await.unwrap();
    if posts {
        thread.post("forged").await.unwrap();
    }
    let children = store.children(&"t".into()).await.unwrap();
    (store, children)
}

async fn refuses_and_begins_after_a_delete(
    store: Arc<dyn Checkpointer>,
    graph: CompiledGraph<Plain>,
    children: &[ThreadId],
) {
    let thread = graph.with_checkpointer(store.clone()).thread("t");
    let stored = store.children(&"t".into()).await.unwrap();
    assert_eq!(stored, children);
    for _ in 0..2 {
        let error = failed(thread.run(say("in")).await);
        assert!(matches!(error, RunError::Checkpoint(CheckpointError::Leftovers { .. })), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("stored: `{}`;", children[0])), "{text}");
        assert_eq!(store.orphans().await.unwrap(), ["t".into()]);
    }
    assert!(matches!(failed(thread.resume().await), RunError::EmptyThread { .. }));
    thread.delete().await.unwrap();
    assert_eq!(store.orphans().await.unwrap(), []);
    thread.run(say("in")).await.unwrap();
}

on_every_store! {
    async fn a_new_run_continues_no_subgraph_that_was_there_before(backend: Backend) {
        let calls = Calls::default();
        let (from, children) = left_by(parent(&calls, &asking(&calls)), false).await;
        let store = backend.open();
        plant(&from, &*store, &children[0]).await;
        assert_eq!(calls.all(), "p s1 s2");
        refuses_and_begins_after_a_delete(store, parent(&calls, &asking(&calls)), &children).await;
        assert_eq!(calls.all(), "p s1 s2 p s1 s2");
    }

    async fn a_new_run_reads_no_inbox_that_was_there_before(backend: Backend) {
        let (from, children) = left_by(listening(), true).await;
        let store = backend.open();
        plant(&from, &*store, &children[0]).await;
        refuses_and_begins_after_a_delete(store.clone(), listening(), &children).await;
        let state = listening().with_checkpointer(store).thread("t").state().await.unwrap();
        assert_eq!(state.values.log_text(), "in ");
    }
}
