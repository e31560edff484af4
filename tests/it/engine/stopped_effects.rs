//! Effects of `once` in tasks that are cancelled, drained, timed out, retried, interrupted, and stopped by their siblings, at
//! any depth of called graphs: each is done once, each question is answered once, and each emitted update is stored.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use superstep::{
    Answers, CompiledGraph, Cx, Durability, Event, Interrupt, NodeError, NodeFailure, NodeOptions,
    RetryPolicy, RunOptions, START, State, StateGraph, Status, StreamMode,
    node::{OnCancel, Persistence},
    thread::Drain,
};

use crate::support::{Backend, Plain, logging_node, say};

#[derive(Clone, Debug)]
enum Action {
    /// An effect that takes so many milliseconds.
    Once(u64),
    Ask,
    Sleep(u64),
    /// An error, so many times.
    Fail(usize),
    Panic,
    Call(Persistence, Vec<Action>),
    /// Actions at the same time.
    Together(Vec<Action>),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..60u64).prop_map(Action::Once),
        3 => Just(Action::Ask),
        1 => (0..20u64).prop_map(Action::Sleep),
        1 => (1..4usize).prop_map(Action::Fail),
        1 => Just(Action::Panic),
    ]
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let persistence = || prop_oneof![Just(Persistence::PerTask), Just(Persistence::Ephemeral)];
    let called = move |inner| (persistence(), inner).prop_map(|(kept, actions)| Action::Call(kept, actions));
    let inner = called(prop::collection::vec(action(), 0..4).boxed());
    let level = prop_oneof![3 => action(), 2 => inner];
    let outer = called(prop::collection::vec(level, 0..3).boxed());
    let together = prop::collection::vec(action(), 1..3).prop_map(Action::Together);
    prop::collection::vec(prop_oneof![5 => action(), 2 => outer, 1 => together], 0..5)
}

/// The limits of one run.
#[derive(Clone, Debug, Default)]
struct Limits {
    /// The question to answer.
    answer: usize,
    cancel_ms: Option<u64>,
    drain_ms: Option<u64>,
    step_ms: Option<u64>,
    concurrency: Option<usize>,
    durability: Durability,
}

fn limits() -> impl Strategy<Value = Limits> {
    let ms = |share| prop::option::weighted(share, 1..150u64);
    let durability = prop_oneof![Just(Durability::Sync), Just(Durability::Async), Just(Durability::Exit)];
    let all = (any::<usize>(), ms(0.3), ms(0.2), ms(0.3), prop::option::of(1..3usize), durability);
    all.prop_map(|(answer, cancel_ms, drain_ms, step_ms, concurrency, durability)| Limits {
        answer,
        cancel_ms,
        drain_ms,
        step_ms,
        concurrency,
        durability,
    })
}

/// The number of times that each effect was done, and that each failure happened.
#[derive(Clone, Default)]
struct World(Arc<Mutex<BTreeMap<String, usize>>>);

impl World {
    fn count(&self, what: &str) -> usize {
        let mut all = self.0.lock().unwrap();
        let times = all.entry(what.to_owned()).or_default();
        *times += 1;
        *times
    }

    async fn once(&self, name: &str, ms: u64, cx: &Cx) -> Result<(), NodeError> {
        let effect = async |_| {
            cx.sleep(Duration::from_millis(ms)).await;
            self.count(&format!("once {name}"));
            Ok::<_, NodeError>(name.to_owned())
        };
        let result: String = cx.once(name, effect).await?;
        assert_eq!(result, name);
        Ok(())
    }
}

fn perform(
    world: World,
    place: String,
    actions: Vec<Action>,
    cx: Cx,
) -> BoxFuture<'static, Result<(), NodeError>> {
    Box::pin(async move {
        for (nth, action) in actions.into_iter().enumerate() {
            let place = format!("{place}.{nth}");
            match action {
                Action::Once(ms) => world.once(&place, ms, &cx).await?,
                Action::Ask => drop(cx.interrupt::<bool>(&place, &place).await),
                Action::Sleep(ms) => cx.sleep(Duration::from_millis(ms)).await,
                Action::Fail(times) if world.count(&place) <= times => {
                    return Err(NodeError::new("it fails"));
                }
                Action::Panic if world.count(&place) == 1 => panic!("it fails"),
                Action::Fail(_) | Action::Panic => {}
                Action::Call(kept, actions) => {
                    let inner = inner(&world, &place, actions).with_persistence(kept);
                    cx.call(&inner, Plain::update()).key(nth.to_string()).await?;
                }
                Action::Together(actions) => {
                    let each = actions.into_iter().enumerate().map(|(n, action)| {
                        perform(world.clone(), format!("{place}+{n}"), vec![action], cx.clone())
                    });
                    futures::future::join_all(each).await.into_iter().collect::<Result<(), NodeError>>()?;
                }
            }
        }
        Ok(())
    })
}

fn options(timeout_ms: Option<u64>) -> NodeOptions {
    NodeOptions::new().retry(RetryPolicy::attempts(2)).timeout(timeout_ms.map(Duration::from_millis))
}

/// `START → (a, b) → c`, where `a` does the actions.
fn inner(world: &World, place: &str, actions: Vec<Action>) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("inner");
    let mut add = |name: &str, actions: Vec<Action>| {
        let given = (world.clone(), format!("{place}{name}"), actions);
        graph.add_node(name, move |_: Plain, cx: Cx| {
            let (world, place, actions) = given.clone();
            perform(world, place, actions, cx)
        })
    };
    let [a, b] = [add("a", actions), add("b", vec![Action::Once(5), Action::Sleep(5)])];
    let c = add("c", vec![Action::Once(5)]);
    for node in [a, b] {
        graph.configure(node, options(None));
        graph.add_edge(START, node);
        graph.add_edge(node, c);
    }
    graph.compile().unwrap()
}

/// A thread of the graph `START ⇒ w → …`, whose items do their actions.
#[derive(Clone, Debug)]
struct Case {
    items: Vec<Vec<Action>>,
    has_timeout: bool,
    finishes: bool,
    /// `true` if an error handler with actions of its own ends what fails.
    is_handled: bool,
}

impl Case {
    fn graph(&self, world: &World) -> CompiledGraph<Plain> {
        let mut graph = StateGraph::<Plain>::new("g");
        let given = (world.clone(), self.items.clone());
        let w = graph.add_worker("w", move |item: usize, _: Plain, cx: Cx| {
            let (world, mut items) = given.clone();
            async move {
                perform(world, item.to_string(), items.swap_remove(item), cx).await?;
                Ok::<_, NodeError>(say(&item.to_string()))
            }
        });
        let on_cancel = if self.finishes { OnCancel::Finish } else { OnCancel::Drop };
        let timeout_ms = self.has_timeout.then_some(250);
        graph.configure(w, options(timeout_ms).on_cancel(on_cancel));
        if self.is_handled {
            let world = world.clone();
            let call = |kept| Action::Call(kept, vec![Action::Once(10), Action::Ask]);
            let actions = vec![
                Action::Once(30),
                call(Persistence::Ephemeral),
                Action::Fail(1),
                call(Persistence::PerTask),
            ];
            let h = graph.add_error_handler(w, "h", move |failure: NodeFailure, _: Plain, cx: Cx| {
                let (world, actions, item) =
                    (world.clone(), actions.clone(), failure.item.unwrap().to_string());
                async move {
                    perform(world, format!("h{item}"), actions, cx).await?;
                    Ok::<_, NodeError>(say(&item))
                }
            });
            graph.configure(h, options(timeout_ms));
        }
        let end = logging_node(&mut graph, "end");
        graph.configure(end, NodeOptions::new().deferred());
        let count = self.items.len();
        graph.add_fan_out(START, move |_: &Plain| 0..count, w);
        graph.add_edge(START, end);
        graph.compile().unwrap()
    }

    async fn run(&self, limits: Vec<Limits>) {
        let (world, backend) = (World::default(), Backend::memory());
        let graph = || backend.keep(self.graph(&world));
        let (mut limits, mut answered) = (limits.into_iter(), BTreeSet::new());
        for nth in 0..200 {
            let limits = limits.next().unwrap_or_default();
            let waiting = if nth == 0 { Vec::new() } else { waiting(&graph()).await };
            let again = waiting.iter().find(|asked| answered.contains(&asked.id));
            assert_eq!(again, None, "it was answered");
            let mut config = limits.config();
            if !waiting.is_empty() {
                let id = &waiting[limits.answer % waiting.len()].id;
                answered.insert(id.clone());
                config = config.answers(Answers::new().answer(id, true));
            }
            let graph = graph();
            let run = graph.configured(config);
            let mut stream = match nth {
                0 => run.stream(Plain::update(), [StreamMode::Updates]),
                _ => run.resume_stream([StreamMode::Updates]),
            };
            let mut told = Vec::new();
            while let Some(event) = stream.next().await {
                if let Event::Update { update, .. } = event {
                    told.extend(update.log.into_iter().flatten());
                }
            }
            let ended = stream.outcome().await;
            let stored = self.read(&graph, &world, &told).await;
            let Ok(ended) = ended.inspect_err(is_expected) else { continue };
            assert_eq!(ended.state, stored, "{:?}", ended.status);
            if ended.status == Status::Completed {
                let said: Vec<String> = (0..self.items.len()).map(|item| item.to_string()).collect();
                assert_eq!(stored.log_text(), [&said[..], &["end".to_owned()]].concat().join(" "));
                let replayed = graph.thread("t").replay().run().await.unwrap();
                assert!(replayed.divergence.is_none(), "{replayed}");
                return;
            }
        }
        panic!("it does not end");
    }

    /// Returns the stored state, which has all emitted updates, after a check of the effects.
    async fn read(&self, graph: &CompiledGraph<Plain>, world: &World, told: &[String]) -> Plain {
        let state = graph.thread("t").state().await.unwrap().values;
        let lost = told.iter().find(|word| !state.log.iter().any(|stored| stored == *word));
        assert_eq!(lost, None, "its update was emitted");
        let done = world.0.lock().unwrap();
        let repeated = done.iter().find(|(what, times)| what.starts_with("once") && **times > 1);
        assert_eq!(repeated, None);
        state
    }
}

impl Limits {
    fn config(&self) -> RunOptions {
        let (drain, mut config) = (Drain::new(), RunOptions::new().thread("t").durability(self.durability));
        config = config.drain(drain.clone()).max_concurrency(self.concurrency);
        config = config.step_timeout(self.step_ms.map(Duration::from_millis));
        let (cancel, after) =
            (config.get_cancel().clone(), |ms| tokio::time::sleep(Duration::from_millis(ms)));
        if let Some(sleep) = self.cancel_ms.map(after) {
            tokio::spawn(async move { (sleep.await, cancel.cancel()).1 });
        }
        if let Some(sleep) = self.drain_ms.map(after) {
            tokio::spawn(async move { (sleep.await, drain.request("it has to end")).1 });
        }
        config
    }
}

async fn waiting(graph: &CompiledGraph<Plain>) -> Vec<Interrupt> {
    let tasks = graph.thread("t").state().await.unwrap().tasks;
    tasks.into_iter().flat_map(|task| task.interrupts).collect()
}

fn is_expected(error: &superstep::RunError) {
    let text = superstep::error::chain(error);
    assert!(text.contains("it fails") || text.contains("timeout"), "{text}");
}

#[test]
fn each_effect_is_done_once_however_runs_stop() {
    let config = Config { cases: 192, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let case = (prop::collection::vec(actions(), 1..4), any::<bool>(), any::<bool>(), any::<bool>());
    let case = case.prop_map(|(items, has_timeout, finishes, is_handled)| Case {
        items,
        has_timeout,
        finishes,
        is_handled,
    });
    let held = runner.run(&(case, prop::collection::vec(limits(), 0..8)), |(case, limits)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(case.run(limits));
        Ok(())
    });
    held.unwrap_or_else(|error| panic!("{error}"));
}

/// Builds `START → c`, beside `b` if `is_wide`, where `c` calls the graph.
fn calling(called: CompiledGraph<Plain>, is_wide: bool) -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("calling");
    let c = graph.add_node_with("c", called, async |called, _: Plain, cx: Cx| {
        let end: Plain = cx.call(&called, Plain::update()).await?;
        Ok::<_, NodeError>(say(&end.log_text()))
    });
    graph.add_edge(START, c);
    if is_wide {
        let b = graph.add_node("b", async |_: Plain, _: Cx| {});
        graph.add_edge(START, b);
    }
    graph.compile().unwrap()
}

/// The sibling fails after `turns`, once while the result of the effect is not stored yet.
#[tokio::test]
async fn an_effect_that_was_not_stored_yet_is_not_repeated_after_an_update_of_its_graph() {
    let mut done_and_updated = 0;
    for turns in 0..30 {
        let (world, backend) = (World::default(), Backend::memory());
        let graph = |fails: bool| {
            let mut sub = StateGraph::<Plain>::new("sub");
            let [x, y] = ["x", "y"].map(|name| logging_node(&mut sub, name));
            let pays = sub.add_node_with("pays", world.clone(), async |world: World, _: Plain, cx: Cx| {
                wait(10).await;
                let pay = async |_| Ok::<_, NodeError>(world.count("pay"));
                Ok::<_, NodeError>(say(&cx.once("pay", pay).await?.to_string()))
            });
            for (from, to) in [(START, x), (x, y), (x, pays)] {
                sub.add_edge(from, to);
            }
            let mut graph = StateGraph::<Plain>::new("g");
            let sub = graph.add_subgraph("sub", &sub.compile().unwrap());
            let beside = graph.add_node("beside", move |_: Plain, _: Cx| async move {
                wait(turns).await;
                if fails { Err(NodeError::new("it fails").fatal()) } else { Ok(()) }
            });
            graph.add_edge(START, sub);
            graph.add_edge(START, beside);
            backend.keep(graph.compile().unwrap())
        };
        is_expected(&graph(true).thread("t").run(Plain::update()).await.unwrap_err());
        let is_done = world.0.lock().unwrap().contains_key("pay");
        let updated = graph(true).thread("t").subgraph::<Plain>(["sub"]).update_as("x", say("U")).await;
        done_and_updated += usize::from(is_done && updated.is_ok());
        graph(false).thread("t").resume().await.unwrap();
        assert_eq!(world.count("pay"), 2, "it was done once before, after {turns}");
    }
    assert!(done_and_updated > 0, "no failure came at that moment");
}

async fn wait(turns: usize) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_node_of_a_called_graph_runs_after_the_end_of_the_run() {
    for depth in [1, 3] {
        let (world, mut graph) = (World::default(), StateGraph::<Plain>::new("deep"));
        let given = world.clone();
        let pays = graph.add_node("pays", move |_: Plain, cx: Cx| {
            let world = given.clone();
            async move {
                cx.sleep(Duration::from_millis(4)).await;
                world.once("pay", 6, &cx).await?;
                Ok::<_, NodeError>(say("paid"))
            }
        });
        graph.add_edge(START, pays);
        let mut graph = graph.compile().unwrap().with_persistence(Persistence::Ephemeral);
        for _ in 0..depth {
            graph = calling(graph, true).with_persistence(Persistence::Ephemeral);
        }
        let graph = Backend::memory().keep(calling(graph, false));
        // The effect would end at the moment at which the time of the superstep is over.
        let stopped = graph.thread("t").step_timeout(Duration::from_millis(10)).run(Plain::update()).await;
        is_expected(&stopped.unwrap_err());
        assert_eq!(graph.thread("t").resume().await.unwrap().state.log_text(), "paid");
        assert_eq!(world.count("once pay"), 2, "it was done once before");
    }
}
