//! Threads whose runs stopped or failed, and called graphs that did not complete.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use superstep::{
    Checkpointer, Command, CompiledGraph, Cx, Durability, MemoryCheckpointer, NodeError, NodeFailure,
    NodeOptions, RetryPolicy, Route, START, StateGraph, Status, node::Persistence, replay::At,
};
use tokio::time;

use super::{Outside, Ticks, found, kept, replayed};
use crate::support::{Plain, PlainUpdate, logging_node, say};

/// `a → b → c`, stopped before `b` by the graph and after it by the node.
pub(super) fn stopping(last: &'static str, store: Arc<dyn Checkpointer>) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("stops");
    let a = logging_node(&mut graph, "a");
    let b = graph.add_node("b", async |_: Plain, cx: Cx| {
        cx.drain("enough for now");
        say("b")
    });
    let c = graph.add_node("c", async move |_: Plain, _: Cx| say(last));
    graph.stop_before(b);
    graph.add_edge(START, a);
    graph.add_edge(a, b);
    graph.add_edge(b, c);
    graph.compile().unwrap().with_checkpointer(store)
}

#[tokio::test]
async fn a_replay_continues_where_runs_stopped() {
    let store = Arc::new(MemoryCheckpointer::new());
    let graph = stopping("c", store.clone());
    let ends = [
        graph.thread("t").run(say("in")).await.unwrap().status,
        graph.thread("t").resume().await.unwrap().status,
        graph.thread("t").resume().await.unwrap().status,
    ];
    assert_eq!(ends, [Status::Interrupted, Status::Drained, Status::Completed]);
    let whole = replayed(&graph).await;
    whole.assert_same();
    assert_eq!(whole.supersteps, 4);
    let found = found(&stopping("C", store)).await;
    assert_eq!((found.node.as_str(), found.at), ("c", At::Channel("log".into())));
}

/// Builds a graph that calls another one, and continues with this one if it fails or takes longer than a
/// second.
pub(super) fn calls(inner: &CompiledGraph<Plain>) -> CompiledGraph<Plain> {
    let mut outer = StateGraph::<Plain>::new("outer");
    let inner = inner.clone();
    let call = outer.add_node_with("call", inner, async |inner: CompiledGraph<Plain>, _: Plain, cx: Cx| {
        match time::timeout(Duration::from_secs(1), cx.call(&inner, say("to inner")).key("k")).await {
            Err(_) => say("late"),
            Ok(Err(_)) => say("failed"),
            Ok(Ok(end)) => say(&end.log_text()),
        }
    });
    outer.add_edge(START, call);
    kept(&outer.compile().unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_adopts_the_callers_update() {
    for persistence in [Persistence::PerTask, Persistence::PerNode, Persistence::Ephemeral] {
        let mut inner = StateGraph::<Plain>::new("inner");
        let quick = logging_node(&mut inner, "quick");
        let slow = inner.add_node("slow", async |_: Plain, cx: Cx| {
            cx.sleep(Duration::from_secs(3600)).await;
            say("slow")
        });
        inner.add_edge(START, quick);
        inner.add_edge(quick, slow);
        let graph = calls(&inner.compile().unwrap().with_persistence(persistence));
        assert_eq!(graph.thread("t").run(say("in")).await.unwrap().state.log_text(), "in late");
        let replayed = replayed(&graph).await;
        assert_eq!((replayed.taken, replayed.divergence), (1, None), "{persistence:?}");
    }
}

#[tokio::test]
async fn of_a_call_that_came_to_its_step_limit_the_callers_update_is_taken() {
    for persistence in [Persistence::PerTask, Persistence::Ephemeral] {
        let mut inner = StateGraph::<Plain>::new("inner");
        let again = logging_node(&mut inner, "again");
        inner.add_edge(START, again);
        inner.add_edge(again, again);
        let graph = calls(&inner.compile().unwrap().with_persistence(persistence));
        let end = graph.thread("t").step_limit(5).run(say("in")).await.unwrap();
        assert_eq!(end.state.log_text(), "in failed");
        let replayed = replayed(&graph).await;
        assert_eq!((replayed.taken, replayed.divergence), (1, None), "{persistence:?}");
    }
}

#[tokio::test]
async fn effects_of_a_failed_ephemeral_graph_are_not_repeated() {
    let outside = Outside::default();
    let mut inner = StateGraph::<Plain>::new("inner");
    let work = inner.add_node_with("work", outside.clone(), async |outside: Outside, _: Plain, cx: Cx| {
        let times = cx.recorded("times", async || outside.done()).await;
        Err::<PlainUpdate, _>(NodeError::new(format!("down {times}")).fatal())
    });
    inner.add_edge(START, work);
    let graph = calls(&inner.compile().unwrap().with_persistence(Persistence::Ephemeral));
    assert_eq!(graph.thread("t").run(say("in")).await.unwrap().state.log_text(), "in failed");
    let replayed = replayed(&graph).await;
    assert_eq!((replayed.taken, replayed.divergence, outside.times()), (1, None, 1));
}

#[tokio::test]
async fn an_ephemeral_graph_has_its_recorded_time() {
    let mut inner = StateGraph::<Plain>::new("inner");
    let look = inner.add_node("look", async |_: Plain, cx: Cx| {
        let (first, second) = (cx.now_ms(), cx.now_ms());
        say(&format!("{first} {second}"))
    });
    inner.add_edge(START, look);
    let graph = calls(&inner.compile().unwrap().with_persistence(Persistence::Ephemeral));
    graph.thread("t").clock(Ticks::default()).run(say("in")).await.unwrap();
    replayed(&graph).await.assert_same();
}

#[tokio::test(start_paused = true)]
async fn beside_an_abandoned_call_every_task_is_compared() {
    let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
    let graph = |says: &'static str| {
        let mut inner = StateGraph::<Plain>::new("inner");
        let slow = inner.add_node("slow", async |_: Plain, cx: Cx| {
            cx.sleep(Duration::from_secs(3600)).await;
            say("slow")
        });
        inner.add_edge(START, slow);
        let inner = inner.compile().unwrap();
        let mut outer = StateGraph::<Plain>::new("outer");
        for name in ["c1", "c2"] {
            let inner = inner.clone();
            let call =
                outer.add_node_with(name, inner, async |inner: CompiledGraph<Plain>, _: Plain, cx: Cx| {
                    let called =
                        time::timeout(Duration::from_secs(1), cx.call(&inner, say("to inner")).key("k"));
                    say(if called.await.is_err() { "late" } else { "in time" })
                });
            outer.add_edge(START, call);
        }
        let tell = outer.add_node("tell", async move |_: Plain, _: Cx| say(says));
        outer.add_edge(START, tell);
        outer.compile().unwrap().with_checkpointer(store.clone())
    };
    graph("b").thread("t").run(say("in")).await.unwrap();
    let same = replayed(&graph("b")).await;
    assert_eq!((same.supersteps, same.taken, same.divergence), (4, 2, None));
    let found = found(&graph("B")).await;
    assert_eq!((found.node.as_str(), found.at), ("tell", At::Channel("log".into())));
}

#[derive(Route, Clone, Copy)]
enum Next {
    C,
    D,
}

/// Builds `a → b → c` and `d`, where `b` fails. Its error handler leads to `d` if it `routes`, and otherwise to nothing.
fn handled(outside: &Outside, routes: bool) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("handled");
    let [a, c, d] = ["a", "c", "d"].map(|name| logging_node(&mut graph, name));
    let b = graph.add_node_with("b", outside.clone(), async |outside: Outside, _: Plain, _: Cx| {
        outside.done();
        Err::<PlainUpdate, _>(NodeError::new("down"))
    });
    for (from, to) in [(START, a), (a, b), (b, c), (c, d)] {
        graph.add_edge(from, to);
    }
    if routes {
        let h = graph.add_routing_error_handler(b, "h", async |failure: NodeFailure, _: Plain, _: Cx| {
            Command::<Plain, Next>::update(say(&failure.message)).goto(Next::D)
        });
        graph.add_routes(h, move |next| match next {
            Next::C => c,
            Next::D => d,
        });
    } else {
        graph.add_error_handler(b, "h", async |failure: NodeFailure, _: Plain, _: Cx| say(&failure.message));
    }
    kept(&graph.compile().unwrap())
}

#[tokio::test]
async fn the_update_of_an_error_handler_is_adopted_if_its_failure_is_not_recorded() {
    for routes in [false, true] {
        let (outside, said) = (Outside::default(), if routes { "in a down d" } else { "in a down" });
        let graph = handled(&outside, routes);
        let thread = graph.thread("t");
        assert_eq!(thread.recording(false).run(say("in")).await.unwrap().state.log_text(), said);
        let replayed = replayed(&graph).await;
        assert_eq!((replayed.taken, replayed.divergence), (1, None), "recording, {routes}");

        // A superstep that is stored with its run has no record of the failure either.
        let graph = handled(&outside, routes);
        let thread = graph.thread("t");
        thread.break_before(["b"]).run(say("in")).await.unwrap();
        thread.durability(Durability::Exit).break_after(["b"]).resume().await.unwrap();
        assert_eq!(thread.resume().await.unwrap().state.log_text(), said);
        let replayed = super::replayed(&graph).await;
        assert_eq!((replayed.taken, replayed.divergence), (1, None), "durability, {routes}");
        assert_eq!(outside.times(), 2, "the node that failed was not repeated");
    }
}

#[tokio::test]
async fn a_graph_that_was_left_after_a_failure_is_replayed() {
    for attempts in [1, 2] {
        let mut inner = StateGraph::<Plain>::new("inner");
        let is_down = Arc::new(AtomicBool::new(true));
        let guard =
            inner.add_node_with("guard", is_down, async |is_down: Arc<AtomicBool>, _: Plain, cx: Cx| {
                if is_down.swap(false, Ordering::Relaxed) {
                    return Err(NodeError::new("down"));
                }
                Ok(cx
                    .leave::<_, _, PlainUpdate>(Command::<Plain, Next>::update(say("left")).goto(Next::C))
                    .await)
            });
        let retry = RetryPolicy::attempts(attempts).initial(Duration::ZERO).jitter(Duration::ZERO);
        inner.configure(guard, NodeOptions::new().retry(retry));
        inner.add_edge(START, guard);

        let mut graph = StateGraph::<Plain>::new("outer");
        let [c, d] = ["c", "d"].map(|name| logging_node(&mut graph, name));
        let call = graph.add_routing_subgraph::<Next>("call", &inner.compile().unwrap());
        graph.add_routes(call, move |next| match next {
            Next::C => c,
            Next::D => d,
        });
        graph.add_edge(START, call);
        let graph = kept(&graph.compile().unwrap());
        let first = graph.thread("t").run(say("in")).await;
        assert_eq!(first.is_err(), attempts == 1);
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "in left c");
        assert_eq!(replayed(&graph).await.divergence, None, "{attempts}");
    }
}
