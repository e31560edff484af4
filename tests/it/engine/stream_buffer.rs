//! The run of a stream continues without its consumer, and its events are bounded.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use serde_json::json;
use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, Cx, END, Event, MemoryCheckpointer, OnUnfinished, Route,
    RunError, START, State, StateGraph, Status, StreamMode, Streaming, ThreadId,
    checkpoint::{CheckpointError, Commit},
    node::Persistence,
};
use superstep_testing::wrapped::{Wrapped, Wrapper};
use tokio::{
    runtime::Builder,
    sync::{Notify, Semaphore},
};

use crate::support::{Plain, Stuck, head, line, names, on_every_store, say};

#[derive(State, Clone, Debug, Default)]
struct Count {
    n: u64,
}

#[derive(Route, Clone, Copy)]
enum Turn {
    On,
    Over,
}

/// Builds a node that emits its number `says` times, `turns` times over; then `last` is notified.
fn counting(turns: u64, says: u64, last: Arc<Notify>) -> CompiledGraph<Count> {
    let mut graph = StateGraph::<Count>::new("counting");
    let turn = graph.add_node("turn", move |state: Count, cx: Cx| async move {
        (0..says).for_each(|say| cx.emit("n", state.n * says + say));
        Count::update().n(state.n + 1)
    });
    let told = graph.add_node("told", move |_, _| {
        last.notify_one();
        async {}
    });
    graph.add_edge(START, turn);
    let more = move |state: &Count| if state.n < turns { Turn::On } else { Turn::Over };
    graph.add_conditional_edges(turn, more, |next| match next {
        Turn::On => turn,
        Turn::Over => told,
    });
    graph.add_edge(told, END);
    graph.compile().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_stops_listening_does_not_stop_the_run_and_its_events_are_bounded() {
    let last = Arc::new(Notify::new());
    let graph = counting(200, 3, last.clone());
    let streaming = Streaming::from(StreamMode::Custom).buffer(8);
    let mut stream = graph.without_thread().step_limit(1_000_000).stream(Count::update(), streaming);
    assert!(matches!(stream.next().await, Some(Event::Custom { .. })));
    last.notified().await;

    let left: Vec<_> = stream.by_ref().collect().await;
    let Some((Event::Lagged { skipped }, told)) = left.split_first() else { panic!("{left:?}") };
    assert_eq!((*skipped, told.len()), (600 - 1 - 8, 8), "one was taken, eight wait");
    let numbers: Vec<_> = told.iter().map(number).collect();
    assert_eq!(numbers, (592..600).collect::<Vec<_>>(), "the newest are kept, in order");
    assert_eq!(stream.outcome().await.unwrap().state.n, 200);
}

fn number(event: &Event<Count>) -> u64 {
    let Event::Custom { data, .. } = event else { panic!("{event:?}") };
    data.as_u64().unwrap()
}

#[tokio::test]
async fn a_consumer_that_listens_hears_each_of_100_000_events_of_a_long_run() {
    let graph = counting(1_000, 100, Arc::default());
    let stream = graph.without_thread().step_limit(1_000_000).stream(Count::update(), [StreamMode::Custom]);
    let numbers: Vec<_> = stream.map(|event| number(&event)).collect().await;
    assert!(numbers.into_iter().eq(0..100_000));
}

#[tokio::test]
async fn a_consumer_that_listens_hears_each_event_of_a_wide_superstep() {
    const WIDE: usize = 20_000;
    let mut graph = StateGraph::<Plain>::new("wide");
    let work = graph.add_worker("work", async |item: usize, _: Plain, cx: Cx| cx.emit("item", item));
    graph.add_fan_out(START, |_: &Plain| (0..WIDE).collect::<Vec<_>>(), work);
    let graph = graph.compile().unwrap();
    for modes in [
        vec![StreamMode::Custom],
        vec![StreamMode::Updates],
        vec![StreamMode::Tasks, StreamMode::Custom, StreamMode::Updates, StreamMode::Debug],
    ] {
        let expected = WIDE * if modes.len() == 1 { 1 } else { 6 };
        let stream = graph.stream(Plain::update(), modes.clone());
        let mut heard = 0;
        let all = stream.for_each(|event| {
            assert!(!matches!(event, Event::Lagged { .. }), "{event:?} with {modes:?}");
            heard += 1;
            std::future::ready(())
        });
        all.await;
        assert_eq!(heard, expected, "{modes:?}");
    }
}

/// Builds a node that emits this number of words, one at a time.
fn talking(words: u64) -> CompiledGraph<Count> {
    let mut graph = StateGraph::<Count>::new("talking");
    let talk = graph.add_node("talk", move |_: Count, cx: Cx| async move {
        for word in 0..words {
            cx.emit("n", word);
            tokio::task::yield_now().await;
        }
    });
    graph.add_edge(START, talk);
    graph.compile().unwrap()
}

/// A consumer on another thread than the run reads all available events, none of which may be lost.
#[test]
fn a_consumer_on_another_thread_receives_each_event_with_any_buffer() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for buffer in [2, 16, 256] {
            let streaming = |modes: &[StreamMode]| Streaming::from(modes).buffer(buffer).subgraphs();
            let talk = talking(20_000).stream(Count::update(), streaming(&[StreamMode::Custom]));
            let numbers: Vec<_> = talk.map(|event| number(&event)).collect().await;
            assert!(numbers.into_iter().eq(0..20_000), "a node that talks, buffer {buffer}");

            let turns = counting(5_000, 1, Arc::default());
            let turns = turns
                .without_thread()
                .step_limit(1_000_000)
                .stream(Count::update(), streaming(&[StreamMode::Custom]));
            let numbers: Vec<_> = turns.map(|event| number(&event)).collect().await;
            assert!(numbers.into_iter().eq(0..5_000), "many supersteps, buffer {buffer}");

            let mut outer = StateGraph::<Count>::new("outer");
            let inner = outer.add_subgraph("inner", &talking(5_000));
            outer.add_edge(START, inner);
            let outer = outer.compile().unwrap();
            let heard = outer.stream(Count::update(), streaming(&[StreamMode::Custom]));
            let heard: Vec<_> = heard.collect().await;
            assert!(heard.iter().all(|event| matches!(event, Event::Subgraph { .. })), "buffer {buffer}");
            assert_eq!(heard.len(), 5_000, "a subgraph, buffer {buffer}");
        }
    });
}

/// It takes time for each event, on the same thread as the run.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_slow_but_listens_hears_each_event() {
    for buffer in [1, 16] {
        let streaming = Streaming::from(StreamMode::Custom).buffer(buffer);
        let mut stream = talking(200).stream(Count::update(), streaming);
        let mut numbers = Vec::new();
        while let Some(event) = stream.next().await {
            numbers.push(number(&event));
            tokio::time::sleep(Duration::from_millis(900)).await;
        }
        assert!(numbers.iter().copied().eq(0..200), "buffer {buffer}: {numbers:?}");
    }
}

on_every_store! {
    async fn questions_and_discards_are_never_lost(backend: Backend) {
        let mut graph = StateGraph::<Plain>::new("g");
        for name in ["a", "b", "c"] {
            let ask = graph.add_node(name, async |_: Plain, cx: Cx| {
                cx.emit("noise", 1);
                cx.emit("noise", 2);
                cx.interrupt::<bool>("ok", "?").await;
            });
            graph.add_edge(START, ask);
        }
        let graph = backend.keep(graph.compile().unwrap());
        let streaming = || Streaming::from(StreamMode::Custom).buffer(0);
        let mut stream = graph.thread("t").stream(say("in"), streaming());
        // What is begun by the first poll goes on without another one.
        assert!(futures::poll!(stream.next()).is_pending());
        while head(&graph).await.tasks.iter().filter(|task| !task.interrupts.is_empty()).count() < 3 {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let told: Vec<_> = stream.by_ref().collect().await;
        let asked = told.iter().filter(|event| matches!(event, Event::Interrupt(_))).count();
        let lost: u64 = told.iter().map(|event| if let Event::Lagged { skipped } = event { *skipped } else { 0 }).sum();
        let noise = told.iter().filter(|event| matches!(event, Event::Custom { .. })).count() as u64;
        assert_eq!((asked, lost + noise), (3, 6), "{told:?}");
        assert!(noise <= 1, "{told:?}");
        assert_eq!(stream.outcome().await.unwrap().status, Status::Interrupted);

        let told: Vec<_> = graph.thread("t").on_unfinished(OnUnfinished::Discard).stream(say("again"), streaming()).collect().await;
        assert!(told.iter().any(|event| matches!(event, Event::Discarded { nodes } if nodes.len() == 3)), "{told:?}");
    }

    /// A graph with one thread, whose task of the first turn is interrupted when the second turn calls it.
    async fn discards_in_a_subgraph_are_never_lost(backend: Backend) {
        let mut inner = StateGraph::<Plain>::new("inner");
        let ask = inner.add_node("ask", async |_: Plain, cx: Cx| {
            (0..9).for_each(|noise| cx.emit("noise", noise));
            cx.interrupt::<bool>("ok", "?").await;
        });
        inner.add_edge(START, ask);
        let inner = inner.compile().unwrap().with_persistence(Persistence::PerNode);
        let mut graph = StateGraph::<Plain>::new("g");
        let call = graph.add_node_with("call", inner, async |inner, _: Plain, cx: Cx| {
            cx.call(&inner, Plain::update()).await.map(|_| ())
        });
        graph.add_edge(START, call);
        let graph = backend.keep(graph.compile().unwrap());
        graph.thread("t").run(say("in")).await.unwrap();
        let first = head(&graph).await.checkpoint.unwrap().id;
        let streaming = Streaming::from(StreamMode::Custom).buffer(0).subgraphs();
        let mut stream = graph.thread("t").on_unfinished(OnUnfinished::Discard).stream(say("again"), streaming);
        assert!(futures::poll!(stream.next()).is_pending());
        let asks_again = async || {
            let head = head(&graph).await;
            head.checkpoint.unwrap().id > first && head.tasks.iter().any(|task| !task.interrupts.is_empty())
        };
        while !asks_again().await {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let told: Vec<_> = stream.collect().await;
        let discarded = |event: &Event<Plain>| match event {
            Event::Subgraph { event, .. } => event["event"] == "discarded" && event["data"]["nodes"] == json!(["ask"]),
            _ => false,
        };
        assert!(told.iter().any(discarded), "{told:?}");
    }

    async fn a_stream_that_is_dropped_leaves_its_thread_free_at_once(backend: Backend) {
        let stuck = Stuck::default();
        let mut graph = StateGraph::<Plain>::new("line");
        let a = crate::support::logging_node(&mut graph, "a");
        let b = graph.add_node_with("b", stuck.clone(), async |stuck: Stuck, _: Plain, _: Cx| stuck.here().await);
        graph.add_edge(START, a);
        graph.add_edge(a, b);
        let graph = backend.keep(graph.compile().unwrap());
        let mut stream = graph.thread("t").stream(say("in"), []);
        assert!(futures::poll!(stream.next()).is_pending());
        stuck.reached().await;
        drop(stream);

        let graph = backend.keep(line(&["a", "b"]));
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!(end.state.log_text(), "in a b");
    }

    async fn a_stream_that_is_not_polled_runs_nothing(backend: Backend) {
        let graph = backend.keep(line(&["a"]));
        drop(graph.thread("t").stream(say("in"), [StreamMode::Updates]));
        let stream = graph.thread("t").stream(say("in"), [StreamMode::Updates]);
        tokio::task::yield_now().await;
        assert_eq!(head(&graph).await.checkpoint, None);
        assert_eq!(names(&head(&graph).await.next), "");
        assert_eq!(stream.outcome().await.unwrap().state.log_text(), "in a");
    }
}

/// The run may be polled on another thread when its stream is dropped.
#[test]
fn a_stream_that_is_dropped_on_another_thread_leaves_its_thread_free_at_once() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for backend in [
        crate::support::Backend::memory(),
        #[cfg(feature = "sqlite")]
        crate::support::Backend::sqlite(),
    ] {
        let graph = backend.keep(line(&["a", "b", "c", "d", "e", "f"]));
        runtime.block_on(async {
            for turn in 0..200_u64 {
                let mut stream = graph.thread(turn).stream(say("in"), [StreamMode::Updates]);
                assert!(stream.next().await.is_some());
                drop(stream);
                assert_eq!(graph.thread(turn).resume().await.unwrap().state.log_text(), "in a b c d e f");
            }
        });
    }
}

/// A store with slow commits.
struct Slow(MemoryCheckpointer);

impl Wrapper for Slow {
    fn store(&self) -> &dyn Checkpointer {
        &self.0
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.0.commit(&thread, expected, next).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn events_imply_that_their_data_is_stored() {
    let store = Arc::new(Wrapped(Slow(MemoryCheckpointer::new())));
    let graph = line(&["a", "b", "c"]).with_checkpointer(store);
    let mut stream = graph.thread("t").stream(say("in"), [StreamMode::Values, StreamMode::Updates]);
    for (node, said, next) in [("", "in", "a"), ("a", "in a", "b"), ("", "in a", "b"), ("b", "in a b", "c")] {
        let event = stream.next().await.unwrap();
        match &event {
            Event::Update { node: updated, .. } => assert_eq!(updated.as_str(), node),
            Event::Values { state, .. } => assert_eq!((state.log_text().as_str(), ""), (said, node)),
            other => panic!("{other:?}"),
        }
        let head = head(&graph).await;
        assert_eq!((head.values.log_text().as_str(), names(&head.next).as_str()), (said, next), "{event:?}");
    }
    drop(stream);
    assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "in a b c");
}

/// A value that cannot be cloned after it is armed.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Fragile(bool);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(!self.0, "this cannot be cloned");
        Self(self.0)
    }
}

#[derive(State, Clone, Debug, Default)]
struct Brittle {
    fragile: Fragile,
}

#[tokio::test]
async fn a_panic_outside_nodes_reaches_the_caller_of_the_outcome() {
    let mut graph = StateGraph::<Brittle>::new("g");
    let a = graph.add_node("a", async |_: Brittle, _| ());
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    let mut stream = graph.stream(Brittle::update().fragile(Fragile(true)), [StreamMode::Tasks]);
    while stream.next().await.is_some() {}
    let outcome = tokio::spawn(async move { stream.outcome().await.map(drop) });
    let panic = outcome.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"this cannot be cloned"));
}

#[test]
fn a_run_ends_with_its_runtime_and_an_error() {
    let stuck = Stuck::default();
    let mut graph = StateGraph::<Plain>::new("g");
    let a = graph.add_node_with("a", stuck.clone(), async |stuck: Stuck, _: Plain, _: Cx| stuck.here().await);
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    let mut stream = graph.stream(say("in"), [StreamMode::Updates]);
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    first.block_on(async {
        assert!(futures::poll!(stream.next()).is_pending());
        stuck.reached().await;
    });
    drop(first);
    runtime().block_on(async {
        assert!(stream.next().await.is_none());
        let error = stream.outcome().await.err();
        assert!(matches!(error, Some(RunError::RuntimeGone)), "{error:?}");
    });
}

#[tokio::test(start_paused = true)]
async fn dropping_a_stream_drops_its_nodes_where_they_stand() {
    let permits = Arc::new(Semaphore::new(1));
    let mut graph = StateGraph::<Plain>::new("g");
    let held = permits.clone();
    let a = graph.add_node("a", move |_, _| {
        let held = held.clone();
        async move {
            let _permit = held.acquire().await;
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    });
    graph.add_edge(START, a);
    let graph = graph.compile().unwrap();
    let mut stream = graph.stream(say("in"), []);
    assert!(futures::poll!(stream.next()).is_pending());
    while permits.available_permits() == 1 {
        tokio::task::yield_now().await;
    }
    drop(stream);
    assert_eq!(permits.available_permits(), 1, "not a moment later");
}
