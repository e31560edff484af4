//! Graphs in graphs in graphs: at any depth, with a small stack.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use futures::StreamExt;
use superstep::{
    CompiledGraph, Cx, END, Event, MemoryCheckpointer, NodeError, RunError, RunOptions, START, State,
    StateGraph, Status, StreamMode, Streaming, node::Persistence,
};
use tokio::{runtime::Builder, sync::Notify};

use crate::support::{Plain, failed, say, t};

const LEVELS: i64 = 1_000;

/// Runs on a thread with the stack size of tokio and of the test harness.
fn on_a_small_stack<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let body = move || Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
    thread::Builder::new().stack_size(2 << 20).spawn(body).unwrap().join().unwrap();
}

/// Builds a graph that calls itself to the depth in its state, where it asks or waits if configured.
fn recursive(
    persistence: Persistence,
    bottom: fn(Cx) -> futures::future::BoxFuture<'static, ()>,
) -> CompiledGraph<Plain> {
    let own: Arc<OnceLock<CompiledGraph<Plain>>> = Arc::default();
    let mut graph = StateGraph::<Plain>::new("deep");
    let node = graph.add_node_with(
        "down",
        own.clone(),
        move |own: Arc<OnceLock<_>>, state: Plain, cx: Cx| async move {
            if state.x == 0 {
                bottom(cx.clone()).await;
                return Ok::<_, NodeError>(Plain::update().x(1));
            }
            let graph: &CompiledGraph<Plain> = own.get().unwrap();
            let below = cx.call(graph, Plain::update().x(state.x - 1)).await?;
            Ok(Plain::update().x(below.x + 1))
        },
    );
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    let graph = graph.compile().unwrap().with_persistence(persistence);
    own.set(graph.clone()).unwrap();
    graph
}

fn nothing(_: Cx) -> futures::future::BoxFuture<'static, ()> {
    Box::pin(async {})
}

fn deeper(config: RunOptions) -> RunOptions {
    config.depth_limit(usize::MAX)
}

#[test]
fn a_thousand_graphs_inside_of_each_other_run_on_a_small_stack() {
    on_a_small_stack(async || {
        let graph = recursive(Persistence::PerTask, nothing);
        let end = graph.run(Plain::update().x(LEVELS)).await.unwrap();
        assert_eq!(end.state.x, LEVELS + 1);
        for persistence in [Persistence::PerTask, Persistence::PerNode, Persistence::Ephemeral] {
            let graph =
                recursive(persistence, nothing).with_checkpointer(Arc::new(MemoryCheckpointer::new()));
            let end = graph.thread("t").run(Plain::update().x(LEVELS)).await.unwrap();
            assert_eq!(end.state.x, LEVELS + 1, "{persistence:?}");
            assert_eq!(graph.thread("t").state().await.unwrap().values.x, LEVELS + 1);
        }
    });
}

#[test]
fn a_thousand_graphs_that_are_nodes_of_each_other_run_and_are_dropped_on_a_small_stack() {
    on_a_small_stack(async || {
        let mut graph = StateGraph::<Plain>::new("bottom");
        let node = graph.add_node("node", async |_: Plain, _| say("bottom"));
        graph.add_edge(START, node);
        let mut graph = graph.compile().unwrap();
        for _ in 0..LEVELS {
            let mut outer = StateGraph::<Plain>::new("outer");
            let sub = outer.add_subgraph("sub", &graph);
            outer.add_edge(START, sub);
            outer.add_edge(sub, END);
            graph = outer.compile().unwrap();
        }
        let graph = graph.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
        assert_eq!(graph.thread("t").run(say("in")).await.unwrap().state.log_text(), "in bottom");
        drop(graph);
    });
}

#[test]
fn a_stream_has_the_events_of_a_thousand_nested_graphs() {
    on_a_small_stack(async || {
        let graph = recursive(Persistence::PerTask, |cx| {
            cx.emit("bottom", cx.path().0.len());
            nothing(cx)
        });
        let streaming = Streaming::from(StreamMode::Custom).subgraphs();
        let stream = graph.stream(Plain::update().x(LEVELS), streaming);
        let told: Vec<_> = stream.collect().await;
        let [Event::Subgraph { path, event }] = &told[..] else { panic!("{told:?}") };
        assert_eq!((path.0.len(), &event["data"]["data"]), (1_000, &serde_json::json!(1_000)));
    });
}

#[test]
fn the_innermost_of_a_thousand_graphs_asks_and_is_answered() {
    on_a_small_stack(async || {
        let graph = recursive(Persistence::PerTask, |cx| {
            Box::pin(async move {
                let _: bool = cx.interrupt("ok", "?").await;
            })
        });
        let graph = graph.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
        let asked = graph.thread("t").run(Plain::update().x(LEVELS)).await.unwrap();
        assert_eq!((asked.status, asked.interrupts.len()), (Status::Interrupted, 1));
        let end = graph.thread("t").answer("ok", true).resume().await.unwrap();
        assert_eq!((end.status, end.state.x), (Status::Completed, LEVELS + 1));
    });
}

/// The number of nodes that reached the bottom, and the test that waits for one.
static AT_BOTTOM: AtomicUsize = AtomicUsize::new(0);
static ARRIVED: Notify = Notify::const_new();

struct There;

impl Drop for There {
    fn drop(&mut self) {
        AT_BOTTOM.fetch_sub(1, Ordering::SeqCst);
    }
}

fn stays(_: Cx) -> futures::future::BoxFuture<'static, ()> {
    Box::pin(async {
        AT_BOTTOM.fetch_add(1, Ordering::SeqCst);
        let _there = There;
        ARRIVED.notify_one();
        std::future::pending().await
    })
}

#[test]
fn a_run_that_is_dropped_or_cancelled_takes_the_innermost_of_a_thousand_graphs_with_it() {
    on_a_small_stack(async || {
        let graph = recursive(Persistence::PerTask, stays);
        let graph = graph.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
        // Dropped where it stands: gone at once, and the thread free.
        let mut run = Box::pin(graph.thread("t").run(Plain::update().x(LEVELS)));
        tokio::select! {
            _ = &mut run => panic!("it does not end"),
            () = ARRIVED.notified() => {}
        }
        assert_eq!(AT_BOTTOM.load(Ordering::SeqCst), 1);
        drop(run);
        assert_eq!(AT_BOTTOM.load(Ordering::SeqCst), 0);
        // It continues from its stored state, and is cancelled.
        let config = t();
        let cancel = config.get_cancel().clone();
        let mut run = Box::pin(graph.configured(config).resume());
        tokio::select! {
            _ = &mut run => panic!("it does not end"),
            () = ARRIVED.notified() => {}
        }
        cancel.cancel();
        assert_eq!(run.await.unwrap().status, Status::Cancelled);
        assert_eq!(AT_BOTTOM.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_panic_in_the_innermost_graph_is_an_error_of_its_node() {
    on_a_small_stack(async || {
        let graph = recursive(Persistence::PerTask, |_| Box::pin(async { panic!("at the bottom") }));
        let error = failed(graph.run(Plain::update().x(9)).await);
        let text = superstep::error::chain(&error);
        assert!(text.ends_with("panicked: at the bottom"), "{text}");
    });
}

#[test]
fn a_graph_that_calls_itself_without_end_is_an_error() {
    on_a_small_stack(async || {
        let graph = recursive(Persistence::PerTask, nothing);
        for (graph, config) in [
            (graph.clone(), RunOptions::new()),
            (graph.with_checkpointer(Arc::new(MemoryCheckpointer::new())), t()),
        ] {
            let error = failed(graph.configured(config.clone()).run(Plain::update().x(i64::MAX)).await);
            assert!(matches!(&error, RunError::Node { step: 1, attempts: 1, .. }), "{error:?}");
            assert_eq!(
                superstep::error::chain(&error),
                "SS101: superstep 1: node `down` failed after 1 attempt: SS177: node `down` calls a graph inside of 1000 others; \
                 end the recursion, or raise `Thread::depth_limit`"
            );
            let none = config.clone().depth_limit(0).thread("t0");
            let error = failed(graph.configured(none.clone()).run(Plain::update().x(1)).await);
            assert!(
                superstep::error::chain(&error)
                    .contains("SS177: node `down` calls a graph inside of 0 others"),
                "{error:?}"
            );
            let more = deeper(config.thread("t1"));
            assert_eq!(
                graph.configured(more).run(Plain::update().x(LEVELS + 7)).await.unwrap().state.x,
                LEVELS + 8
            );
        }
    });
}
