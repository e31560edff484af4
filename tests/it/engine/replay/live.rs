//! Replays with live nodes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use superstep::{
    Checkpointer, CompiledGraph, Cx, MemoryCheckpointer, MemoryStore, START, StateGraph, Status, ThreadId,
    checkpoint::{CheckpointError, Lease},
    node::Persistence,
};
use superstep_testing::wrapped::{Wrapped, Wrapper};

use super::{
    Outside,
    ends::{calls, stopping},
    kept, one, replayed,
};
use crate::support::{Plain, logging_node, say};

/// `START → ask → END`, which says the number of its questions.
fn asking(outside: &Outside) -> CompiledGraph<Plain> {
    let outside = outside.clone();
    one(move |_, cx| {
        let outside = outside.clone();
        async move { Ok(say(&cx.recorded("nth", async || outside.done()).await.to_string())) }
    })
}

#[tokio::test]
async fn after_a_live_replay_a_thread_stands_where_it_stood() {
    let outside = Outside::default();
    let graph = asking(&outside);
    graph.thread("t").run(say("in")).await.unwrap();
    let live = graph.thread("t").replay().live(["a"]).run().await.unwrap();
    assert_eq!(live.divergence.map(|found| found.got), Some("2".into()));
    assert_eq!(graph.thread("t").state().await.unwrap().values.log_text(), "in 1");
    assert_eq!(graph.thread("t").run(say("next")).await.unwrap().state.log_text(), "in 1 next 3");
    let whole = replayed(&graph).await;
    whole.assert_same();
    assert_eq!(whole.supersteps, 4);
}

#[tokio::test]
async fn after_a_live_replay_a_thread_retains_its_settings() {
    let graph = asking(&Outside::default());
    for who in ["first", "second"] {
        graph.thread("t").metadata("who", who).run(say("in")).await.unwrap();
    }
    let live = graph.thread("t").replay().live(["a"]).run().await.unwrap();
    let history = graph.thread("t").history().checkpoints().await.unwrap();
    assert_eq!(history[0].metadata["who"], "second");
    let fork = history.iter().find(|meta| Some(meta.id) == live.fork).unwrap();
    assert_eq!(fork.metadata["who"], "first");
}

/// A store that counts the leases of threads.
struct Leases(MemoryCheckpointer, Arc<AtomicUsize>);

impl Wrapper for Leases {
    fn store(&self) -> &dyn Checkpointer {
        &self.0
    }

    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.lease(thread)
    }
}

#[tokio::test]
async fn a_live_replay_holds_the_thread_until_it_is_restored() {
    let leases = Arc::new(AtomicUsize::new(0));
    let store = Wrapped(Leases(MemoryCheckpointer::new(), leases.clone()));
    let graph = asking(&Outside::default()).with_checkpointer(Arc::new(store));
    graph.thread("t").run(say("in")).await.unwrap();
    let before = leases.load(Ordering::SeqCst);
    let live = graph.thread("t").replay().live(["a"]).run().await.unwrap();
    assert_eq!(live.divergence.map(|found| found.got), Some("2".into()));
    assert_eq!(leases.load(Ordering::SeqCst) - before, 1);
    graph.thread("t").run(say("next")).await.unwrap();
}

#[tokio::test]
async fn nothing_is_put_into_the_store_of_the_graph() {
    let had = Outside::default();
    let mut graph = StateGraph::<Plain>::new("saves");
    let ask = graph
        .add_node("ask", async |_: Plain, cx: Cx| say(&cx.recorded("number", async || 1).await.to_string()));
    let save = graph.add_node_with("save", had.clone(), async |had: Outside, _: Plain, cx: Cx| {
        if cx.store().is_ok() {
            had.done();
        }
        say("saved")
    });
    graph.add_edge(START, ask);
    graph.add_edge(ask, save);
    let graph = kept(&graph.compile().unwrap()).with_store(Arc::new(MemoryStore::new()));
    graph.thread("t").run(say("in")).await.unwrap();
    assert_eq!(had.times(), 1);
    graph.thread("t").replay().live(["ask"]).run().await.unwrap().assert_same();
    assert_eq!(had.times(), 1);
    let given = Arc::new(MemoryStore::new());
    graph.thread("t").replay().live(["ask"]).store(given).run().await.unwrap().assert_same();
    assert_eq!(had.times(), 2);
}

#[tokio::test]
async fn a_live_replay_reports_unreached_nodes() {
    let graph = one(async |_, cx: Cx| Ok(say(&cx.recorded("n", async || 1).await.to_string())));
    for word in ["in", "again"] {
        graph.thread("t").run(say(word)).await.unwrap();
    }
    let live = graph.thread("t").replay().live(["a"]).run().await.unwrap();
    assert_eq!((live.supersteps, live.left, live.divergence.as_ref()), (2, 2, None));
    let told = live.to_string();
    assert!(told.ends_with("; 2 supersteps after that not replayed, for a live replay ends there"), "{told}");
    let told = std::panic::catch_unwind(|| live.assert_same()).unwrap_err();
    let told = told.downcast_ref::<String>().unwrap();
    assert!(told.contains("not all of the thread was replayed"), "{told}");
}

#[tokio::test]
async fn unsuitable_threads_are_rejected_and_stay_unchanged() {
    let graph = asking(&Outside::default());
    graph.thread("t").run(say("in")).await.unwrap();
    let error = graph.thread("t").replay().live(["ask"]).run().await.unwrap_err().to_string();
    assert!(error.starts_with("SS197: unknown live node `ask`: not found in graph `one`"), "{error}");

    let stopped = stopping("c", Arc::new(MemoryCheckpointer::new()));
    stopped.thread("t").run(say("in")).await.unwrap();
    let error = stopped.thread("t").replay().live(["a"]).run().await.unwrap_err().to_string();
    assert!(error.starts_with("SS195: thread `t` is not finished, `b` would be next;"), "{error}");
    assert_eq!(stopped.thread("t").resume().await.unwrap().status, Status::Drained);

    let mut inner = StateGraph::<Plain>::new("inner");
    let work = logging_node(&mut inner, "work");
    inner.add_edge(START, work);
    let own = calls(&inner.compile().unwrap().with_persistence(Persistence::PerNode));
    own.thread("t").run(say("in")).await.unwrap();
    let error = own.thread("t").replay().live(["call"]).run().await.unwrap_err().to_string();
    assert!(error.starts_with("SS196: node `call` calls a graph with `Persistence::PerNode`"), "{error}");
    assert!(own.thread("t").state().await.unwrap().next.is_empty());
    replayed(&own).await.assert_same();
    let end = own.thread("t").run(say("more")).await.unwrap().state;
    assert_eq!(
        end.log_text(),
        "in to inner work more to inner work to inner work",
        "the memory of `inner` remains"
    );
}
