//! The remains of a run that stopped in the middle of a superstep, and external causes of a stop.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future::BoxFuture};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use superstep::{
    Checkpointer, Command, CompiledGraph, Cx, END, Event, MemoryCheckpointer, NodeError, NodeFailure,
    NodeOptions, RetryPolicy, Route, RunError, RunOptions, START, State, StateGraph, Status, StreamMode,
    checkpoint::{CheckpointError, TaskKey, TaskRecord},
    error::chain,
    node::Persistence,
};
use superstep_testing::wrapped::{Wrapped, Wrapper};
use tokio::{runtime::Builder, task::yield_now};

use crate::support::{Calls, Plain, PlainUpdate, failed, head, logging_node, names, on_every_store, say};

type First = fn(Cx) -> BoxFuture<'static, Result<PlainUpdate, NodeError>>;

/// `b`, `c` and `d` in parallel to `a`, which does something else; all of them are finished or wait before
/// the run processes one.
fn beside(calls: &Calls, first: First) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("beside");
    for name in ["a", "b", "c", "d"] {
        let calls = calls.clone();
        let node = graph.add_node(name, move |_: Plain, cx: Cx| {
            let calls = calls.clone();
            async move {
                calls.add(&cx);
                if name == "a" { first(cx).await } else { Ok(say(name)) }
            }
        });
        graph.add_edge(START, node);
        graph.add_edge(node, END);
    }
    graph.compile().unwrap()
}

#[derive(Route, Clone, Copy)]
enum To {
    T,
}

/// `a` fails beside `b`, which has a route to `t` only if it is repaired.
fn routed(calls: &Calls, by_router: bool, repaired: bool) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("routed");
    let log = calls.clone();
    let a = graph.add_node("a", move |_: Plain, cx: Cx| {
        log.add(&cx);
        let result = if repaired { Ok(say("a")) } else { Err(NodeError::new("down").fatal()) };
        async { result }
    });
    let t = logging_node(&mut graph, "t");
    let log = calls.clone();
    if by_router {
        let b = graph.add_node("b", move |_: Plain, cx: Cx| {
            log.add(&cx);
            async { say("b") }
        });
        let routes = move |_: &Plain| if repaired { vec![To::T] } else { Vec::new() };
        graph.add_conditional_edges(b, routes, move |To::T| t);
        graph.add_edge(START, b);
    } else {
        let b = graph.add_routing_node("b", move |_: Plain, cx: Cx| {
            log.add(&cx);
            let command = Command::<Plain, To>::update(say("b"));
            async move { if repaired { command.goto(To::T) } else { command } }
        });
        graph.add_routes(b, move |To::T| t);
        graph.add_edge(START, b);
    }
    graph.add_edge(START, a);
    graph.add_edge(a, END);
    graph.add_edge(t, END);
    graph.compile().unwrap()
}

/// Asks `k`, and writes 1 if the answer is yes.
fn asking() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("asking");
    let ask = graph.add_node("ask", async |_: Plain, cx: Cx| {
        Plain::update().x(i64::from(cx.interrupt::<bool>("k", "?").await))
    });
    graph.add_edge(START, ask);
    graph.compile().unwrap().with_persistence(Persistence::Ephemeral)
}

on_every_store! {
    async fn what_was_over_when_a_sibling_failed_does_not_run_again(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(beside(&calls, |_| Box::pin(async { Err(NodeError::new(std::fmt::Error).fatal()) })));
        failed(graph.thread("t").run(say("in")).await);
        let stopped = head(&graph).await;
        assert_eq!((stopped.values.log_text().as_str(), calls.all().as_str()), ("in b c d", "a b c d"));
        let graph = backend.keep(beside(&calls, |_| Box::pin(async { Ok(say("a")) })));
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("in a b c d", "a b c d a"));
    }

    async fn what_was_over_when_a_run_was_cancelled_does_not_run_again(backend: Backend) {
        let calls = Calls::default();
        let graph = backend.keep(beside(&calls, |cx| {
            cx.cancel().cancel();
            Box::pin(std::future::pending())
        }));
        let stopped = graph.thread("t").run(say("in")).await.unwrap();
        assert_eq!((stopped.status, stopped.state.log_text().as_str()), (Status::Cancelled, "in b c d"));
        assert_eq!(head(&graph).await.values.log_text(), "in b c d");
        let graph = backend.keep(beside(&calls, |_| Box::pin(async { Ok(say("a")) })));
        let end = graph.thread("t").resume().await.unwrap();
        assert_eq!((end.state.log_text().as_str(), calls.all().as_str()), ("in a b c d", "a b c d a"));
    }

    async fn a_result_without_a_route_that_was_over_at_a_stop_runs_again(backend: Backend) {
        for by_router in [false, true] {
            let calls = Calls::default();
            let make = |repaired: bool| backend.keep(routed(&calls, by_router, repaired));
            let thread = by_router.to_string();
            failed(make(false).thread(&*thread).run(say("in")).await);
            let stopped = make(true).thread(&*thread).state().await.unwrap();
            let shown: Vec<_> = stopped.tasks.iter().map(|task| (task.node.as_str(), task.error.as_deref().unwrap())).collect();
            assert_eq!(shown, [("a", "SS101: superstep 1: node `a` failed after 1 attempt: down"), ("b", "cancelled")]);
            assert_eq!(make(true).thread(&*thread).resume().await.unwrap().state.log_text(), "in a b t");
            assert_eq!(calls.all(), "a b a b");
        }
    }

    async fn a_question_beside_a_failure_waits_whatever_the_nodes_are_called(backend: Backend) {
        for (asks, fails) in [("a", "b"), ("b", "a")] {
            let (nested, repaired) = (fails == "a", Arc::new(AtomicBool::new(false)));
            let mut graph = StateGraph::<Plain>::new("g");
            let ask = graph.add_node(asks, move |_: Plain, cx: Cx| async move {
                let yes: bool = match nested {
                    // Also from a graph without storage, which leaves it to its caller.
                    true => cx.call(&asking(), Plain::update()).await?.x == 1,
                    false => cx.interrupt("k", "?").await,
                };
                Ok::<_, NodeError>(say(&format!("{yes}")))
            });
            let is_repaired = repaired.clone();
            let fail = graph.add_node(fails, move |_: Plain, _: Cx| {
                let result = if is_repaired.load(Ordering::SeqCst) { Ok(say("fine")) } else { Err(NodeError::new("down").fatal()) };
                async { result }
            });
            graph.add_edge(START, ask);
            graph.add_edge(START, fail);
            let graph = backend.keep(graph.compile().unwrap());
            let mut stream = graph.thread(asks).stream(say("in"), [StreamMode::Tasks]);
            let mut questions = 0;
            while let Some(event) = stream.next().await {
                questions += usize::from(matches!(event, Event::Interrupt(_)));
            }
            assert_eq!((questions, chain(&failed(stream.outcome().await))), (1, format!("SS101: superstep 1: node `{fails}` failed after 1 attempt: down")));
            let stopped = graph.thread(asks).state().await.unwrap();
            let task = stopped.tasks.iter().find(|task| task.node.as_str() == asks).unwrap();
            assert_eq!((task.interrupts.len(), &task.error), (1, &None));
            repaired.store(true, Ordering::SeqCst);
            let end = graph.thread(asks).answer("k", true).resume().await.unwrap();
            assert_eq!(end.state.log_text(), if asks == "a" { "in true fine" } else { "in fine true" });
        }
    }

    async fn a_question_beside_a_cancellation_is_a_question_of_the_run(backend: Backend) {
        let mut graph = StateGraph::<Plain>::new("g");
        let cancel = graph.add_node("a", async |_: Plain, cx: Cx| {
            cx.cancel().cancel();
            std::future::pending::<PlainUpdate>().await
        });
        let ask = graph.add_node("b", async |_: Plain, cx: Cx| say(&cx.interrupt::<String>("k", "?").await));
        graph.add_edge(START, cancel);
        graph.add_edge(START, ask);
        let graph = backend.keep(graph.compile().unwrap());
        let stopped = graph.thread("t").run(say("in")).await.unwrap();
        assert_eq!((stopped.status, stopped.interrupts.len()), (Status::Cancelled, 1));
        assert_eq!(head(&graph).await.tasks[1].interrupts, stopped.interrupts);
    }

    async fn failures_beside_a_failure_are_stored_with_their_attempts(backend: Backend) {
        for (attempts, handled, said, ran) in [
            (2, false, "b failed after 2 attempts", "a b a b"),
            (1, false, "b failed after 1 attempt", "a b a b"),
            (1, true, "in a h", "a b a"),
        ] {
            let (calls, repaired) = (Calls::default(), Arc::new(AtomicBool::new(false)));
            let mut graph = StateGraph::<Plain>::new("g");
            let (is_repaired, log) = (repaired.clone(), calls.clone());
            let a = graph.add_node("a", move |_: Plain, cx: Cx| {
                log.add(&cx);
                let result = if is_repaired.load(Ordering::SeqCst) { Ok(say("a")) } else { Err(NodeError::new("down").fatal()) };
                async { result }
            });
            let log = calls.clone();
            let b = graph.add_node("b", move |_: Plain, cx: Cx| {
                log.add(&cx);
                async { Err::<PlainUpdate, _>(NodeError::new("again")) }
            });
            let retry = RetryPolicy::attempts(attempts).initial(Duration::ZERO).jitter(Duration::ZERO);
            graph.configure(b, NodeOptions::new().retry(retry));
            if handled {
                graph.add_error_handler(b, "h", async |_: NodeFailure, _: Plain, _: Cx| say("h"));
            }
            graph.add_edge(START, a);
            graph.add_edge(START, b);
            let graph = backend.keep(graph.compile().unwrap());
            let thread = format!("{attempts}{handled}");
            failed(graph.thread(&*thread).run(say("in")).await);
            let stopped = graph.thread(&*thread).state().await.unwrap();
            assert_eq!(stopped.tasks[1].error.as_deref(), Some("again"));
            repaired.store(true, Ordering::SeqCst);
            let ended = graph.thread(&*thread).resume().await;
            let shown = ended.map_or_else(|error| error.to_string(), |end| end.state.log_text());
            assert!(shown.replace('`', "").contains(said), "{shown}");
            assert_eq!(calls.all(), ran);
        }
    }

    async fn the_state_of_a_run_that_waits_is_that_of_its_thread(backend: Backend) {
        let calls = Calls::default();
        let ask: First = |cx| Box::pin(async move {
            let _: bool = cx.interrupt("ok", "?").await;
            Ok(say("a"))
        });
        let graph = backend.keep(beside(&calls, ask));
        let waits = graph.thread("t").run(say("in")).await.unwrap();
        assert_eq!((waits.status, waits.state.log_text().as_str()), (Status::Interrupted, "in b c d"));
        assert_eq!(waits.state, head(&graph).await.values);
        // A run that only looks finds the same.
        let waits = graph.thread("t").resume().await.unwrap();
        assert_eq!(waits.state, head(&graph).await.values);
        assert_eq!(graph.thread("t").answer("ok", true).resume().await.unwrap().state.log_text(), "in a b c d");
    }

    async fn the_state_of_a_run_that_a_graph_inside_drained_is_that_of_its_thread(backend: Backend) {
        for (nth, persistence) in [Persistence::PerTask, Persistence::PerNode].into_iter().enumerate() {
            let mut inner = StateGraph::<Plain>::new("inner");
            let stop = inner.add_node("stop", async |_: Plain, cx: Cx| {
                cx.drain("bye");
                say("stop")
            });
            let after = logging_node(&mut inner, "after");
            inner.add_edge(START, stop);
            inner.add_edge(stop, after);
            let inner = inner.compile().unwrap().with_persistence(persistence);
            let mut graph = StateGraph::<Plain>::new("g");
            let inner = graph.add_subgraph_with("inner", &inner, |_: &Plain| Plain::update(), |it: &Plain| say(&it.log_text()));
            let quick = logging_node(&mut graph, "quick");
            graph.add_edge(START, inner);
            graph.add_edge(START, quick);
            let graph = backend.keep(graph.compile().unwrap());
            let stopped = graph.thread(nth.to_string()).run(say("in")).await.unwrap();
            assert_eq!((stopped.status, stopped.state.log_text().as_str()), (Status::Drained, "in quick"));
            let found = graph.thread(nth.to_string()).state().await.unwrap();
            assert_eq!((found.values, names(&found.next).as_str()), (stopped.state, "inner"));
            assert_eq!(graph.thread(nth.to_string()).resume().await.unwrap().state.log_text(), "in stop after quick");
        }
    }

    async fn a_run_with_one_of_two_answers_tells_of_the_question_that_still_waits(backend: Backend) {
        let mut graph = StateGraph::<Plain>::new("g");
        for name in ["a", "b", "c"] {
            let node = graph.add_node(name, move |_: Plain, cx: Cx| async move {
                let _: bool = cx.interrupt(name, format!("{name}?")).await;
                say(name)
            });
            graph.add_edge(START, node);
            graph.add_edge(node, END);
        }
        let graph = backend.keep(graph.compile().unwrap());
        graph.thread("t").run(say("in")).await.unwrap();
        let mut stream = graph.thread("t").answer("b", true).resume_stream([StreamMode::Updates]);
        let mut told = Vec::new();
        while let Some(event) = stream.next().await {
            told.push(match event {
                Event::Interrupt(asked) => format!("{} asks {}", asked.key, asked.question),
                Event::Update { node, .. } => format!("{node} is done"),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(told, [r#"a asks "a?""#, r#"c asks "c?""#, "b is done"]);
        let waits = stream.outcome().await.unwrap();
        let keys: Vec<_> = waits.interrupts.iter().map(|asked| asked.key.as_str()).collect();
        assert_eq!((keys, waits.state.log_text().as_str()), (vec!["a", "c"], "in b"));
    }
}

/// A store that notes, before it stores the end of `b`, whether the stream had the update.
struct Watched {
    store: Arc<dyn Checkpointer>,
    told: Arc<Mutex<Vec<String>>>,
    early: Arc<AtomicBool>,
}

impl Wrapper for Watched {
    fn store(&self) -> &dyn Checkpointer {
        &*self.store
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let task = task.clone();
        Box::pin(async move {
            if matches!(record, TaskRecord::Finished { .. }) {
                // The consumer may take all events.
                for _ in 0..16 {
                    yield_now().await;
                }
                let is_told = !self.told.lock().unwrap().is_empty();
                self.early.fetch_or(is_told, Ordering::SeqCst);
            }
            self.store.record(&task, record).await
        })
    }
}

#[tokio::test]
async fn the_update_of_a_task_that_ended_when_its_run_stopped_is_told_after_it_is_stored() {
    let (told, early) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
    let store =
        Watched { store: Arc::new(MemoryCheckpointer::new()), told: told.clone(), early: early.clone() };
    let fails: First = |_| Box::pin(async { Err(NodeError::new("down").fatal()) });
    let graph = beside(&Calls::default(), fails).with_checkpointer(Arc::new(Wrapped(store)));
    let mut stream = graph.thread("t").stream(say("in"), [StreamMode::Updates]);
    while let Some(event) = stream.next().await {
        let Event::Update { node, .. } = event else { panic!("{event:?}") };
        told.lock().unwrap().push(node.to_string());
    }
    failed(stream.outcome().await);
    assert_eq!(*told.lock().unwrap(), ["b", "c", "d"]);
    assert!(!early.load(Ordering::SeqCst));
}

#[test]
fn waiting_on_a_runtime_without_timers_is_an_error() {
    const SAYS: &str = "SS178: the tokio runtime has no timers, which waits and timeouts need; build it \
                        with `enable_time`, or with `enable_all`";
    let one = |options: NodeOptions, node: First| {
        let mut graph = StateGraph::<Plain>::new("g");
        let node = graph.add_node("a", move |_: Plain, cx: Cx| node(cx));
        graph.configure(node, options);
        graph.add_edge(START, node);
        graph.compile().unwrap()
    };
    let fine: First = |_| Box::pin(async { Ok(say("a")) });
    let fails: First = |_| {
        Box::pin(async { Err(NodeError::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset))) })
    };
    let sleeps: First = |cx| {
        Box::pin(async move {
            cx.sleep(Duration::from_secs(1)).await;
            Ok(say("slept"))
        })
    };
    let timeout = Some(Duration::from_secs(60));
    let quick = NodeOptions::default;
    let step = RunOptions::new().step_timeout(timeout);
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for (graph, config, text) in [
            (one(quick(), fine), step, SAYS.to_owned()),
            (
                one(quick().timeout(timeout), fine),
                RunOptions::new(),
                format!("SS101: superstep 1: node `a` failed after 1 attempt: {SAYS}"),
            ),
            (
                one(quick().idle_timeout(timeout), fine),
                RunOptions::new(),
                format!("SS101: superstep 1: node `a` failed after 1 attempt: {SAYS}"),
            ),
            (one(quick().retry(RetryPolicy::default()), fails), RunOptions::new(), SAYS.to_owned()),
            (
                one(quick(), sleeps),
                RunOptions::new(),
                format!("SS101: superstep 1: node `a` failed after 1 attempt: panicked: {SAYS}"),
            ),
        ] {
            assert_eq!(chain(&failed(graph.configured(config).run(say("in")).await)), text);
        }
        let end = one(quick(), fine).run(say("in")).await.unwrap();
        assert_eq!(end.state.log_text(), "in a");
    });
}

static READS: AtomicBool = AtomicBool::new(false);
static BEGINS: AtomicBool = AtomicBool::new(false);

/// The misbehaviour of a user's type.
#[derive(Clone, Debug, PartialEq)]
enum Bomb {
    Calm,
    Written,
}

impl Default for Bomb {
    fn default() -> Self {
        assert!(!BEGINS.load(Ordering::SeqCst), "no default today");
        Self::Calm
    }
}

impl Serialize for Bomb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(*self == Self::Calm, "it cannot be written");
        serializer.serialize_str("calm")
    }
}

impl<'de> Deserialize<'de> for Bomb {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        assert!(!READS.load(Ordering::SeqCst), "it cannot be read");
        String::deserialize(deserializer).map(|_| Self::Calm)
    }
}

#[derive(State, Clone, Debug, Default)]
struct Fragile {
    bomb: Option<Bomb>,
    #[channel(ephemeral)]
    brief: Bomb,
    n: i64,
}

#[tokio::test]
async fn a_panic_while_a_value_is_serialized_or_read_is_an_error_with_the_channel() {
    let writes = |update: FragileUpdate| {
        let mut graph = StateGraph::<Fragile>::new("fragile");
        let node = graph.add_node("a", move |_: Fragile, _| {
            let update = update.clone();
            async move { update }
        });
        graph.add_edge(START, node);
        graph.add_edge(node, END);
        graph.compile().unwrap()
    };
    let store = Arc::new(MemoryCheckpointer::new());
    let written = writes(Fragile::update().bomb(Bomb::Written)).with_checkpointer(store.clone());
    let error = failed(written.thread("t").run(Fragile::update()).await);
    assert!(matches!(&error, RunError::Encode { .. }), "{error:?}");
    assert_eq!(
        chain(&error),
        "SS106: superstep 1: the write of node `a` to `bomb` cannot be stored as JSON and read back \
         unchanged: its `Serialize` panicked: it cannot be written"
    );
    // It breaks nothing.
    let calm = writes(Fragile::update().bomb(Bomb::Calm).n(1)).with_checkpointer(store);
    assert_eq!(calm.thread("t").resume().await.unwrap().state.n, 1);

    READS.store(true, Ordering::SeqCst);
    for error in
        [failed(calm.thread("t").state().await), failed(calm.thread("t").run(Fragile::update()).await)]
    {
        assert_eq!(
            chain(&error),
            "SS115: thread `t`, checkpoint 3: the stored data of an update of node `a` does not fit the state: its \
             `Deserialize` panicked: it cannot be read"
        );
    }
    READS.store(false, Ordering::SeqCst);

    BEGINS.store(true, Ordering::SeqCst);
    let error = failed(calm.thread("t").run(Fragile::update()).await);
    BEGINS.store(false, Ordering::SeqCst);
    let text = chain(&error);
    assert!(text.ends_with("channel `brief` refused a write: panicked: no default today"), "{text}");
    assert_eq!(calm.thread("t").state().await.unwrap().values.n, 1);
}
