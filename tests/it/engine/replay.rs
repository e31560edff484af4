//! Replays of recorded threads.

mod again;
mod all;
mod changes;
mod effects;
mod ends;
mod live;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rand::RngExt;
use serde_json::json;
use superstep::{
    Answers, CheckpointId, Checkpointer, Command, CompiledGraph, Cx, Durability, END, MemoryCheckpointer,
    NodeError, NodeFailure, NodeOptions, RetryPolicy, Route, START, State, StateGraph, Status,
    clock::Clock,
    node::{CachePolicy, Persistence},
    replay::{At, Divergence, DivergenceKind, Replayed},
};

use crate::support::{Plain, PlainUpdate, line, logging_node, on_every_store, say};

/// The number of external effects.
#[derive(Clone, Default)]
pub(super) struct Outside(Arc<AtomicUsize>);

impl Outside {
    fn done(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A clock that advances with each read.
#[derive(Default)]
struct Ticks(AtomicI64);

impl Clock for Ticks {
    fn now_ms(&self) -> i64 {
        self.0.fetch_add(7, Ordering::SeqCst)
    }
}

pub(super) async fn replayed<S: State>(graph: &CompiledGraph<S>) -> Replayed {
    graph.thread("t").replay().run().await.unwrap()
}

/// Returns the first divergence.
pub(super) async fn found<S: State>(graph: &CompiledGraph<S>) -> Divergence {
    replayed(graph).await.divergence.expect("the graph is another one")
}

fn kept<S: State>(graph: &CompiledGraph<S>) -> CompiledGraph<S> {
    graph.clone().with_checkpointer(Arc::new(MemoryCheckpointer::new()))
}

/// `START → a → END`.
fn one<Fut>(node: impl Fn(Plain, Cx) -> Fut + Send + Sync + 'static) -> CompiledGraph<Plain>
where
    Fut: Future<Output = Result<PlainUpdate, NodeError>> + Send + 'static,
{
    let mut graph = StateGraph::<Plain>::new("one");
    let a = graph.add_node("a", node);
    graph.add_edge(START, a);
    graph.add_edge(a, END);
    kept(&graph.compile().unwrap())
}

on_every_store! {
    async fn a_thread_is_run_once_more_and_stays_as_it_is(backend: Backend) {
            let graph = line(&["a", "b"]).with_checkpointer(backend.open());
        graph.thread("t").run(say("in")).await.unwrap();
        graph.thread("t").run(say("again")).await.unwrap();
        let before = graph.thread("t").history().checkpoints().await.unwrap();
        let replayed = replayed(&graph).await;
        replayed.assert_same();
        assert_eq!(replayed.supersteps, 6);
        assert_eq!(replayed.to_string(), "6 supersteps replayed, no divergence");
        assert_eq!(graph.thread("t").history().checkpoints().await.unwrap(), before);
    }
}

#[tokio::test]
async fn external_effects_are_not_repeated() {
    let outside = Outside::default();
    let does = outside.clone();
    let graph = one(move |_, cx| {
        let outside = does.clone();
        async move {
            let nth = cx.recorded("nth", async || outside.done()).await;
            let paid: usize = cx.once("pay", async |_| Ok::<_, NodeError>(outside.done())).await?;
            let seen = cx.noted("seen", outside.times());
            Ok(say(&format!("{nth} {paid} {seen}")))
        }
    });
    graph.thread("t").run(say("in")).await.unwrap();
    replayed(&graph).await.assert_same();
    assert_eq!(outside.times(), 2);
}

#[tokio::test]
async fn time_randomness_ids_and_limits_are_replayed() {
    let graph = one(async |_, cx: Cx| {
        let (first, same, later) = (cx.now_ms(), cx.remaining_steps(), cx.now_ms());
        let chance: u64 = cx.rng().random();
        Ok(say(&format!("{first} {later} {same} {chance} {} {}", cx.id("x"), cx.key())))
    });
    graph.thread("t").clock(Ticks::default()).seed(42).step_limit(9).run(say("in")).await.unwrap();
    replayed(&graph).await.assert_same();
}

#[tokio::test]
async fn the_inbox_is_replayed_as_it_was_read() {
    let graph = one(async |state: Plain, cx| {
        let found = cx.inbox(u64::try_from(state.x)?).await?;
        let last = found.last().map_or(state.x, |last| last.number as i64);
        Ok(say(&format!("{}", found.len())).x(last))
    });
    graph.thread("t").run(say("in")).await.unwrap();
    for word in ["one", "two"] {
        graph.thread("t").post(word).await.unwrap();
    }
    graph.thread("t").run(say("in")).await.unwrap();
    graph.thread("t").post("three").await.unwrap();
    let end = graph.thread("t").run(say("in")).await.unwrap();
    assert_eq!(end.state.log_text(), "in 0 in 2 in 1");
    replayed(&graph).await.assert_same();
}

#[tokio::test]
async fn of_several_changed_tasks_the_first_in_folding_order_is_reported() {
    let store = Arc::new(MemoryCheckpointer::new());
    let pair = |word: &'static str| {
        let mut graph = StateGraph::<Plain>::new("pair");
        for name in ["b", "a"] {
            let node = graph.add_node(name, move |_: Plain, _: Cx| async move { say(word) });
            graph.add_edge(START, node);
        }
        graph.compile().unwrap().with_checkpointer(store.clone())
    };
    pair("one").thread("t").run(say("in")).await.unwrap();
    assert_eq!(found(&pair("two")).await.node.as_str(), "a");
}

#[tokio::test]
async fn a_changed_input_of_a_called_graph_is_reported_before_its_nodes_run() {
    let store = Arc::new(MemoryCheckpointer::new());
    let calling = |word: &'static str| {
        let inner = line(&["inner"]);
        let graph = one(move |_, cx: Cx| {
            let inner = inner.clone();
            async move { Ok(say(&cx.call(&inner, say(word)).await?.log_text())) }
        });
        graph.with_checkpointer(store.clone())
    };
    calling("one").thread("t").run(say("in")).await.unwrap();
    replayed(&calling("one")).await.assert_same();
    let found = found(&calling("two")).await;
    assert!(!found.path.is_root());
    assert_eq!(serde_json::to_value(&found).unwrap()["namespace"], found.path.to_string());
    assert_eq!((found.node.as_str(), found.kind), ("__start__", DivergenceKind::Input));
    assert_eq!(
        (found.at, found.expected, found.got),
        (At::Channel("log".into()), "one".into(), "two".into())
    );
}

on_every_store! {
    async fn a_long_inbox_is_read_completely(backend: Backend) {
        let graph = backend.keep(one(async |state: Plain, cx| {
            let found = cx.inbox(u64::try_from(state.x)?).await?;
            let numbers: Vec<_> = found.iter().map(|posted| posted.number).collect();
            assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
            Ok(say(&format!("{:?}-{:?}", numbers.first(), numbers.last())))
        }));
        graph.thread("t").run(say("in")).await.unwrap();
        for item in 0..130 {
            graph.thread("t").post(item).await.unwrap();
        }
        graph.thread("t").run(say("all")).await.unwrap();
        let end = graph.thread("t").run(say("later").x(17)).await.unwrap();
        assert_eq!(end.state.log_text(), "in None-None all Some(1)-Some(130) later Some(18)-Some(130)");
    }

    async fn answers_are_given_again(backend: Backend) {
            let mut graph = StateGraph::<Plain>::new("ask");
        for name in ["a", "b"] {
            let node = graph.add_node(name, move |_: Plain, cx: Cx| async move {
                let first: String = cx.interrupt("first", json!({"of": cx.node()})).await;
                let second: String = cx.interrupt("second", &first).await;
                say(&format!("{first}{second}"))
            });
            graph.add_edge(START, node);
        }
        let graph = graph.compile().unwrap().with_checkpointer(backend.open());
        let mut end = graph.thread("t").run(say("in")).await.unwrap();
        while end.status == Status::Interrupted {
            let id = end.interrupts[0].id.clone();
            let answers = Answers::new().answer(id.clone(), format!("<{id}>"));
            end = graph.thread("t").answers(answers).resume().await.unwrap();
        }
        replayed(&graph).await.assert_same();
    }
}

#[tokio::test]
async fn joins_sends_and_commands_lead_where_they_led() {
    #[derive(Route, Clone, Copy)]
    enum Next {
        Left,
        Right,
    }
    let mut graph = StateGraph::<Plain>::new("all");
    let [left, right, both] = ["left", "right", "both"].map(|name| logging_node(&mut graph, name));
    let decide = graph.add_routing_node("decide", async |_: Plain, _: Cx| {
        Command::update(say("decide")).goto(Next::Left).goto(Next::Right)
    });
    graph.add_routes(decide, |next| match next {
        Next::Left => left,
        Next::Right => right,
    });
    let work = graph.add_worker("work", async |item: i64, _: Plain, _: Cx| say(&item.to_string()));
    graph.add_edge(START, decide);
    graph.add_join([left, right], both);
    graph.add_fan_out(both, |_: &Plain| [3, 1, 2], work);
    let graph = kept(&graph.compile().unwrap());
    let end = graph.thread("t").run(say("in")).await.unwrap();
    assert_eq!(end.state.log_text(), "in decide left right both 3 1 2");
    replayed(&graph).await.assert_same();
}

#[tokio::test]
async fn retries_and_handlers_have_their_recorded_results() {
    let outside = Outside::default();
    let mut graph = StateGraph::<Plain>::new("fails");
    let flaky =
        graph.add_node_with(
            "flaky",
            outside.clone(),
            async |outside: Outside, _: Plain, cx: Cx| match outside.done() {
                1 | 2 => Err(NodeError::new("not yet")),
                _ => Ok(say(&format!("attempt {}", cx.attempt()))),
            },
        );
    let broken = graph.add_node_with("broken", outside.clone(), async |outside: Outside, _: Plain, _: Cx| {
        let times = outside.done();
        Err::<PlainUpdate, _>(NodeError::new(format!("broken at {times}")).fatal())
    });
    let handler =
        graph.add_error_handler(broken, "handler", async |failure: NodeFailure, _: Plain, cx: Cx| {
            say(&format!("{} {} {}", failure.message, failure.attempts, cx.id("x")))
        });
    let retry = RetryPolicy::default().initial(Duration::ZERO).jitter(Duration::ZERO);
    graph.configure(flaky, NodeOptions::new().retry(retry));
    graph.add_edge(START, flaky);
    graph.add_edge(flaky, broken);
    graph.add_edge(handler, END);
    let graph = kept(&graph.compile().unwrap());
    let end = graph.thread("t").run(say("in")).await.unwrap();
    assert_eq!(end.state.log_text(), "in attempt 3 broken at 4 1 2.0!handler.x");
    replayed(&graph).await.assert_same();
}

#[tokio::test]
async fn a_run_that_failed_and_was_resumed_is_one_line() {
    let outside = Outside::default();
    let does = outside.clone();
    let graph = one(move |_, cx| {
        let outside = does.clone();
        async move {
            let paid: usize = cx.once("pay", async |_| Ok::<_, NodeError>(outside.done())).await?;
            let tried = cx.recorded("tried", async || outside.done()).await;
            if tried < 3 { Err(NodeError::new("down").fatal()) } else { Ok(say(&format!("{paid} {tried}"))) }
        }
    });
    graph.thread("t").run(say("in")).await.unwrap_err();
    assert_eq!(replayed(&graph).await.supersteps, 1);
    let end = graph.thread("t").resume().await.unwrap();
    assert_eq!(end.state.log_text(), "in 1 3");
    replayed(&graph).await.assert_same();
    assert_eq!(outside.times(), 3);
}

/// Builds a graph in a graph with this persistence, each with questions and recorded inputs.
fn nested(persistence: Persistence, outside: &Outside) -> CompiledGraph<Plain> {
    let mut inner = StateGraph::<Plain>::new("inner");
    let work = inner.add_node_with("work", outside.clone(), async |outside: Outside, _: Plain, cx: Cx| {
        let times = cx.recorded("times", async || outside.done()).await;
        let answer: String = cx.interrupt("q", "how?").await;
        say(&format!("{answer} {times} {}", cx.rng().random_range(0..100)))
    });
    let then = logging_node(&mut inner, "then");
    inner.add_edge(START, work);
    inner.add_edge(work, then);
    let inner = inner.compile().unwrap().with_persistence(persistence);
    let mut outer = StateGraph::<Plain>::new("outer");
    let call = outer.add_node_with("call", inner, async |inner: CompiledGraph<Plain>, _: Plain, cx: Cx| {
        let end = cx.call(&inner, say("to inner")).key("k").await?;
        Ok::<_, NodeError>(say(&end.log_text()))
    });
    let after = logging_node(&mut outer, "after");
    outer.add_edge(START, call);
    outer.add_edge(call, after);
    outer.compile().unwrap()
}

on_every_store! {
    async fn graphs_that_are_called_are_run_once_more_with_it(backend: Backend) {
        for (persistence, inside) in
            [(Persistence::PerTask, 6), (Persistence::PerNode, 6), (Persistence::Ephemeral, 0)]
        {
            let outside = Outside::default();
            let graph = nested(persistence, &outside).with_checkpointer(backend.open());
            for _ in 0..2 {
                let end = graph.thread("t").seed(5).run(say("in")).await.unwrap();
                assert_eq!(end.status, Status::Interrupted);
                let answers = Answers::new().answer("q", "so");
                graph.thread("t").answers(answers).seed(5).resume().await.unwrap();
            }
            let times = outside.times();
            let replayed = replayed(&graph).await;
            replayed.assert_same();
            assert_eq!(outside.times(), times, "{persistence:?}");
            assert_eq!(replayed.supersteps, 6 + inside, "{persistence:?}");
            graph.thread("t").delete().await.unwrap();
        }
    }
}

on_every_store! {
    async fn a_subgraph_goes_along_as_well(backend: Backend) {
        let outside = Outside::default();
        let mut outer = StateGraph::<Plain>::new("outer");
        let [a, z] = ["a", "z"].map(|name| logging_node(&mut outer, name));
        let mut inner = StateGraph::<Plain>::new("inner");
        let work = inner.add_node_with("work", outside.clone(), async |outside: Outside, _: Plain, cx: Cx| {
            say(&cx.recorded("times", async || outside.done()).await.to_string())
        });
        inner.add_edge(START, work);
        let sub = outer.add_subgraph("sub", &inner.compile().unwrap());
        outer.add_edge(START, a);
        outer.add_edge(a, sub);
        outer.add_edge(sub, z);
        let graph = outer.compile().unwrap().with_checkpointer(backend.open());
        graph.thread("t").run(say("in")).await.unwrap();
        replayed(&graph).await.assert_same();
        assert_eq!(outside.times(), 1);
    }
}

#[tokio::test]
async fn forks_and_changes_from_outside_are_passed() {
    let graph = line(&["a", "b", "c"]).with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    graph.thread("t").run(say("in")).await.unwrap();
    let history = graph.thread("t").history().checkpoints().await.unwrap();
    let before_b = history.iter().find(|meta| meta.control.next == ["b"]).unwrap().id;
    graph.thread("t").at(before_b).resume().await.unwrap();
    replayed(&graph).await.assert_same();
    graph.thread("t").at(before_b).update_as("a", say("by hand")).await.unwrap();
    graph.thread("t").resume().await.unwrap();
    let replayed = replayed(&graph).await;
    replayed.assert_same();
    assert_eq!(replayed.supersteps, 4);

    let head = history[0].id;
    let first = graph.thread("t").replay().to(head).run().await.unwrap();
    assert_eq!((first.supersteps, first.divergence), (4, None));
    let rest = graph.thread("t").replay().from(before_b).to(head).run().await.unwrap();
    assert_eq!((rest.supersteps, rest.divergence), (2, None));
    let error = graph.thread("t").replay().from(head).run().await.unwrap_err();
    assert!(error.to_string().starts_with("SS194: checkpoint 5 of thread `t` does not lead to"), "{error}");
    let error = graph.thread("t").replay().from(CheckpointId(99)).run().await.unwrap_err();
    assert!(error.to_string().starts_with("SS111: thread `t` has no checkpoint 99"), "{error}");
    let error = graph.thread("nobody").replay().run().await.unwrap_err();
    assert!(error.to_string().starts_with("SS193: thread `nobody` has no checkpoint"), "{error}");
}

#[tokio::test]
async fn unrecorded_tasks_are_adopted() {
    let outside = Outside::default();
    let does = outside.clone();
    let graph = one(move |_, cx| {
        let outside = does.clone();
        async move { Ok(say(&cx.recorded("nth", async || outside.done()).await.to_string())) }
    });
    graph.thread("t").recording(false).run(say("in")).await.unwrap();
    graph.thread("t").run(say("again")).await.unwrap();
    let replayed = replayed(&graph).await;
    assert_eq!((replayed.taken, replayed.divergence.as_ref()), (1, None));
    assert_eq!(
        replayed.to_string(),
        "4 supersteps replayed, no divergence; 1 task not recorded and taken as stored"
    );
    assert_eq!(outside.times(), 2);
    let told = std::panic::catch_unwind(|| replayed.assert_same()).unwrap_err();
    let told = told.downcast_ref::<String>().unwrap();
    assert!(told.contains("not all of the thread is recorded"), "{told}");
}

#[tokio::test]
async fn supersteps_that_were_stored_as_one_are_passed_over() {
    let graph = line(&["a", "b", "c"]).with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    graph.thread("t").durability(Durability::Exit).run(say("in")).await.unwrap();
    graph.thread("t").durability(Durability::Async).run(say("in")).await.unwrap();
    let replayed = replayed(&graph).await;
    assert_eq!((replayed.supersteps, replayed.skipped, replayed.divergence.as_ref()), (4, 4, None));
}

#[tokio::test]
async fn cached_results_are_replayed() {
    let outside = Outside::default();
    let mut graph = StateGraph::<Plain>::new("cached");
    let a = graph.add_node_with("a", outside.clone(), async |outside: Outside, _: Plain, _: Cx| {
        say(&outside.done().to_string())
    });
    graph.cache(a, CachePolicy::new(|_: &Plain| String::new()));
    graph.add_edge(START, a);
    let graph = kept(&graph.compile().unwrap());
    graph.thread("u").run(say("in")).await.unwrap();
    graph.thread("t").run(say("in")).await.unwrap();
    graph.clear_cache();
    replayed(&graph).await.assert_same();
    assert_eq!(outside.times(), 1);
}

#[derive(Route, Clone, Copy)]
enum Way {
    B,
    C,
}

/// Builds a node that routes by a command only, to `c`.
fn leaving(
    node: impl Fn(Cx) -> futures::future::BoxFuture<'static, &'static str> + Clone + Send + Sync + 'static,
) -> StateGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("leaves");
    let a = graph.add_routing_node("a", move |_: Plain, cx: Cx| {
        let node = node.clone();
        async move { Command::update(say(node(cx).await)).goto(Way::C) }
    });
    let [b, c] = ["b", "c"].map(|name| logging_node(&mut graph, name));
    graph.add_edge(START, a);
    graph.add_routes(a, |way| match way {
        Way::B => b,
        Way::C => c,
    });
    graph.cache(a, CachePolicy::new(|_: &Plain| String::new()));
    graph
}

#[tokio::test]
async fn a_node_of_a_cache_leads_where_its_command_led() {
    let graph = kept(&leaving(|_| Box::pin(async { "a" })).compile().unwrap());
    graph.thread("u").run(say("in")).await.unwrap();
    assert_eq!(graph.thread("t").run(say("in")).await.unwrap().state.log_text(), "in a c");
    graph.clear_cache();
    let whole = replayed(&graph).await;
    whole.assert_same();
    assert_eq!(whole.supersteps, 3);
}

#[tokio::test]
async fn a_node_that_leaves_by_commands_is_compared() {
    let store = Arc::new(MemoryCheckpointer::new());
    let about = |what: &'static str| {
        let graph = leaving(move |cx| {
            Box::pin(async move {
                cx.compared("what", || what).await;
                "a"
            })
        });
        graph.compile().unwrap().with_checkpointer(store.clone())
    };
    about("one").thread("t").run(say("in")).await.unwrap();
    let found = found(&about("other")).await;
    assert_eq!((found.node.as_str(), found.at), ("a", At::Effect("what".into())));

    let graph = about("one");
    graph.thread("u").recording(false).run(say("in")).await.unwrap();
    let taken = graph.thread("u").replay().run().await.unwrap();
    assert_eq!((taken.taken, taken.divergence), (1, None));
}

#[tokio::test]
async fn nothing_is_compared_that_is_not_recorded() {
    let outside = Outside::default();
    let mut graph = StateGraph::<Plain>::new("thrifty");
    let a = graph.add_node_with("a", outside.clone(), async |outside: Outside, _: Plain, cx: Cx| {
        cx.compared("what", || outside.done()).await;
        say("a")
    });
    graph.add_edge(START, a);
    let graph = kept(&graph.compile().unwrap());
    graph.thread("t").recording(false).run(say("in")).await.unwrap();
    assert_eq!(outside.times(), 0);
    graph.thread("t").run(say("in")).await.unwrap();
    assert_eq!(outside.times(), 1);
}

#[tokio::test]
async fn live_nodes_run_on_a_fork() {
    let store = Arc::new(MemoryCheckpointer::new());
    let (gives, told) = (Arc::new(AtomicU64::new(5)), Outside::default());
    let mut graph = StateGraph::<Plain>::new("live");
    let ask = graph.add_node_with("ask", gives.clone(), async |gives: Arc<AtomicU64>, _: Plain, cx: Cx| {
        say(&cx.recorded("number", async || gives.load(Ordering::SeqCst)).await.to_string())
    });
    let tell = graph.add_node_with("tell", told.clone(), async |told: Outside, _: Plain, cx: Cx| {
        say(&cx.recorded("told", async || told.done()).await.to_string())
    });
    graph.add_edge(START, ask);
    graph.add_edge(ask, tell);
    let graph = graph.compile().unwrap().with_checkpointer(store.clone());
    graph.thread("t").run(say("in")).await.unwrap();
    let head = store.load(&"t".into(), None).await.unwrap().unwrap().head;

    let same = graph.thread("t").replay().live(["ask"]).run().await.unwrap();
    assert_eq!((same.divergence.as_ref(), same.fork.map(|fork| fork.0)), (None, Some(head.0 + 1)));
    assert_eq!(told.times(), 1);
    assert_eq!(graph.thread("t").state().await.unwrap().values.log_text(), "in 5 1");
    replayed(&graph).await.assert_same();

    gives.store(6, Ordering::SeqCst);
    let other = graph.thread("t").replay().live(["ask"]).to(head).run().await.unwrap();
    let divergence = other.divergence.unwrap();
    assert_eq!((divergence.node.as_str(), &divergence.at), ("ask", &At::Channel("log".into())));
    assert_eq!((divergence.expected, divergence.got), (json!("5"), json!("6")));
    assert_eq!(told.times(), 1);
    assert_eq!(graph.thread("t").at(head).state().await.unwrap().values.log_text(), "in 5 1");
}
