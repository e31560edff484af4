//! F: the events of a run.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::StreamExt;
use superstep::{
    CompiledGraph, Cx, END, Event, NodeError, Route, RunOptions, START, State, StateGraph, StreamMode,
};

use crate::support::{Plain, Stuck, head, line, logging_node, names, on_every_store, say, t, told};

/// The modes without messages and debug events, which `stream_modes` tests.
const COMBINED: [StreamMode; 5] =
    [StreamMode::Values, StreamMode::Updates, StreamMode::Custom, StreamMode::Tasks, StreamMode::Checkpoints];

/// `START → w → z → END`; w emits two events.
fn chatty() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let w = graph.add_node("w", async |_: Plain, cx: Cx| {
        cx.emit("progress", 1);
        cx.emit("progress", 2);
        say("w")
    });
    let z = logging_node(&mut graph, "z");
    graph.add_edge(START, w);
    graph.add_edge(w, z);
    graph.add_edge(z, END);
    graph.compile().unwrap()
}

on_every_store! {
    async fn combined_modes_come_in_one_order(backend: Backend) {
        let graph = backend.keep(chatty());
        assert_eq!(
            told(&graph, say("in"), t(), &COMBINED).await,
            [
                "checkpoint input -1 -> [__start__]",
                "values 0: [in]",
                "checkpoint loop 0 -> [w]",
                "start 1 w #1",
                "custom w progress: 1",
                "custom w progress: 2",
                r#"update 1 w: {"log":["w"]}"#,
                "end 1 w #1",
                "values 1: [in w]",
                "checkpoint loop 1 -> [z]",
                "start 2 z #1",
                r#"update 2 z: {"log":["z"]}"#,
                "end 2 z #1",
                "values 2: [in w z]",
                "checkpoint loop 2 -> []",
            ]
        );
    }

    async fn a_consumer_that_leaves_stops_the_run_and_a_resume_finishes_it(backend: Backend) {
        let stuck = Stuck::default();
        let mut graph = StateGraph::<Plain>::new("line");
        let a = logging_node(&mut graph, "a");
        let b = graph.add_node_with("b", stuck, async |stuck: Stuck, _: Plain, _: Cx| stuck.here().await);
        graph.add_edge(START, a);
        graph.add_edge(a, b);
        let graph = backend.keep(graph.compile().unwrap());
        let mut stream = graph.thread("t").stream(say("in"), [StreamMode::Updates]);
        let first = stream.next().await.unwrap();
        assert!(matches!(&first, Event::Update { node, .. } if node.as_str() == "a"), "{first:?}");
        drop(stream);

        let graph = backend.keep(line(&["a", "b"]));
        assert_eq!(names(&head(&graph).await.next), "b");
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "in a b");
    }

    async fn a_resumed_run_tells_what_it_runs_itself(backend: Backend) {
        let graph = backend.keep(line(&["a", "b"]));
        crate::support::failed(graph.thread("t").step_limit(1).run(say("in")).await);
        let stream = graph.thread("t").resume_stream([StreamMode::Values]);
        let lines: Vec<_> = stream.map(|event| crate::support::line_of(&event)).collect().await;
        assert_eq!(lines, ["values 2: [in a b]"]);
    }
}

#[tokio::test]
async fn without_a_mode_a_stream_ends_without_events_and_has_an_outcome() {
    let mut stream = chatty().stream(say("in"), []);
    assert!(stream.next().await.is_none());
    assert!(stream.next().await.is_none(), "and stays at its end");
    assert_eq!(stream.outcome().await.unwrap().state.log_text(), "in w z");
}

#[derive(State, Clone, Debug, Default)]
struct Shared {
    kept: Arc<String>,
    turns: u32,
}

#[derive(Route, Clone, Copy)]
enum Turn {
    On,
    Over,
}

#[tokio::test]
async fn unread_events_do_not_pile_up() {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let mut graph = StateGraph::<Shared>::new("g");
    let turn = graph.add_node("turn", move |state: Shared, _| {
        seen.fetch_max(Arc::strong_count(&state.kept), Ordering::Relaxed);
        async move { Shared::update().turns(state.turns + 1) }
    });
    graph.add_edge(START, turn);
    let more = |state: &Shared| if state.turns < 100 { Turn::On } else { Turn::Over };
    graph.add_conditional_edges(turn, more, |next| match next {
        Turn::On => turn,
        Turn::Over => END,
    });
    let graph = graph.compile().unwrap();
    let input = Shared::update().kept("x".to_owned());
    let stream = graph.stream(input, [StreamMode::Values]);
    assert_eq!(stream.outcome().await.unwrap().state.turns, 100);
    let most = most.load(Ordering::Relaxed);
    assert!(most < 10, "{most} states are alive at the same time");
}

#[tokio::test(start_paused = true)]
async fn attempts_are_reported_with_their_errors() {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, cx: Cx| match cx.attempt() {
        1 => Err(NodeError::new("no luck")),
        _ => Ok(say("a")),
    });
    let retry = superstep::RetryPolicy::default();
    graph.configure(a, superstep::NodeOptions::new().retry(retry));
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    assert_eq!(
        told(&graph, Plain::update(), RunOptions::new(), &[StreamMode::Tasks]).await,
        ["start 1 a #1", "end 1 a #1: no luck", "start 1 a #2", "end 1 a #2"]
    );
}

/// Work started by a node may outlive the run, and its context with it.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_run_even_if_a_node_left_something_behind() {
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node("a", async |_: Plain, cx: Cx| {
        tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(cx);
        });
    });
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    let stream = graph.stream(Plain::update(), [StreamMode::Custom, StreamMode::Updates]);
    let all = tokio::time::timeout(std::time::Duration::from_secs(5), stream.collect::<Vec<_>>()).await;
    assert_eq!(all.expect("the stream ends").len(), 1);
}
