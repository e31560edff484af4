//! Sequences of manual operations: after any order of edits, forks, copies and answers, no pending task
//! vanishes, no task runs twice on a branch, and no person approves anything that was not shown.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::json;
use superstep::{
    Answers, CompiledGraph, Cx, Interrupt, NodeError, NodeRef, RunError, RunOptions, START, State,
    StateGraph, Status, ThreadId,
    checkpoint::Retention,
    node::Persistence,
    thread::{AsNode, Drain},
};

use crate::support::{Backend, Plain, logging_node, say};

#[derive(Clone, Debug)]
enum Step {
    /// This number of updates without a name in one superstep.
    Edit(usize),
    /// Two updates without a name, one after the other.
    EditTwice,
    /// An edit in the name of a node that has no pending task.
    EditAs,
    Fork,
    Resume,
    /// An answer to one of the pending questions, by its id or by its key.
    AnswerId(usize),
    AnswerKey(usize),
    /// An answer with an id that was shown once, to the question shown then.
    AnswerLate(usize),
    /// The thread is copied, and the copy continues.
    Copy,
    /// The failing worker is repaired.
    Repair,
    /// A run that is cancelled, or drained, before it begins.
    Cancelled,
    Drained,
    /// All but this number of checkpoints are deleted.
    Prune(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..3usize).prop_map(Step::Edit),
        1 => Just(Step::EditTwice),
        1 => Just(Step::EditAs),
        1 => Just(Step::Fork),
        2 => Just(Step::Resume),
        3 => any::<usize>().prop_map(Step::AnswerId),
        2 => any::<usize>().prop_map(Step::AnswerKey),
        2 => any::<usize>().prop_map(Step::AnswerLate),
        1 => Just(Step::Copy),
        1 => Just(Step::Repair),
        1 => Just(Step::Cancelled),
        1 => Just(Step::Drained),
        1 => (1..4usize).prop_map(Step::Prune),
    ]
}

const WORDS: [&str; 6] = ["sub", "w0", "w1", "w2", "w3", "w4"];

/// The graph of one case.
#[derive(Clone, Debug)]
struct Shape {
    persistence: Persistence,
    /// `true` if a node runs in parallel to `split`, so that several nodes ran last.
    leaf: bool,
    /// `true` if all items but the failing one are interrupted, so that none ends before its superstep is
    /// over.
    all_ask: bool,
}

/// The external effects.
#[derive(Clone, Default)]
struct World {
    repaired: Arc<AtomicBool>,
    /// The purpose of each key.
    keys: Arc<Mutex<BTreeMap<String, String>>>,
}

impl World {
    /// Performs an effect under a key that is used for no other.
    fn does(&self, what: &str, cx: &Cx) -> <Plain as State>::Update {
        let was = self.keys.lock().unwrap().insert(cx.key(), what.to_owned());
        assert!(was.as_ref().is_none_or(|was| was == what), "{what} has the key of {was:?}");
        say(what)
    }
}

/// Performs an effect after the amount of the state is approved.
async fn approved(world: &World, what: &str, state: Plain, cx: &Cx) -> <Plain as State>::Update {
    let approved: i64 = cx.interrupt(what, json!({ "what": what, "x": state.x })).await;
    assert_eq!(approved, state.x, "{what} is done with another amount than was approved");
    world.does(what, cx)
}

async fn worker(
    (world, all_ask): (World, bool),
    item: i64,
    state: Plain,
    cx: Cx,
) -> Result<<Plain as State>::Update, NodeError> {
    let what = format!("w{item}");
    match item {
        2 if !world.repaired.load(Ordering::Relaxed) => Err(NodeError::new("it is broken").fatal()),
        1 | 3 => Ok(approved(&world, &what, state, &cx).await),
        0 | 4 if all_ask => Ok(approved(&world, &what, state, &cx).await),
        _ => Ok(world.does(&what, &cx)),
    }
}

/// `START → (split, leaf)`, `split → sub`, `split ⇒ w` for five items; `j` after `sub` and `w`. `sub` and two
/// of the items ask, or all, and one fails until it is repaired.
fn graph(shape: &Shape, world: &World) -> CompiledGraph<Plain> {
    let mut sub = StateGraph::<Plain>::new("sub");
    let inner = sub.add_node_with("inner", world.clone(), async |world: World, state: Plain, cx: Cx| {
        approved(&world, "sub", state, &cx).await
    });
    sub.add_edge(START, inner);
    let sub = sub.compile().unwrap().with_persistence(shape.persistence);

    let mut graph = StateGraph::<Plain>::new("g");
    let split = graph.add_node("split", async |_: Plain, _: Cx| {});
    let given = (world.clone(), shape.all_ask);
    let w =
        graph.add_worker("w", move |item: i64, state: Plain, cx: Cx| worker(given.clone(), item, state, cx));
    let words = |sub: &Plain| say(sub.log.last().map_or("", String::as_str));
    let sub = graph.add_subgraph_with("sub", &sub, |state: &Plain| Plain::update().x(state.x), words);
    let j = logging_node(&mut graph, "j");
    graph.add_edge(START, split);
    if shape.leaf {
        let leaf = graph.add_node("leaf", async |_: Plain, _: Cx| {});
        graph.add_edge(START, leaf);
    }
    graph.add_edge(split, sub);
    graph.add_fan_out(split, |_: &Plain| 0..5_i64, w);
    graph.add_join([NodeRef::from(w), sub], j);
    graph.compile().unwrap()
}

/// A thread that people edit.
struct Work {
    graph: CompiledGraph<Plain>,
    shape: Shape,
    world: World,
    thread: ThreadId,
    /// The amount to approve, which changes with each edit.
    x: i64,
    copies: usize,
    /// Every question shown so far.
    shown: Vec<Interrupt>,
}

impl Work {
    fn config(&self) -> RunOptions {
        RunOptions::new().thread(self.thread.clone())
    }

    async fn waiting(&self) -> Vec<Interrupt> {
        let head = self.graph.thread(&self.thread).state().await.unwrap();
        head.tasks.into_iter().flat_map(|task| task.interrupts).collect()
    }

    fn edit(&mut self) -> <Plain as State>::Update {
        self.x += 1;
        Plain::update().x(self.x)
    }

    async fn answer(&self, name: &str, asked: &Interrupt) -> Result<Status, RunError> {
        let answers = Answers::new().answer(name, asked.question["x"].clone());
        self.resume(self.config().answers(answers)).await
    }

    /// Resumes, and asserts that the thread has the result of the run.
    async fn resume(&self, config: RunOptions) -> Result<Status, RunError> {
        let end = self.graph.configured(config).resume().await?;
        let head = self.graph.thread(&self.thread).state().await.unwrap();
        assert_eq!(head.values, end.state, "{:?}", end.status);
        Ok(end.status)
    }

    async fn step(&mut self, step: &Step) {
        let before = self.waiting().await;
        let pick = |n: &usize| (!before.is_empty()).then(|| before[n % before.len()].clone());
        let keeps = match step {
            Step::Edit(updates) => {
                let first = (self.edit(), AsNode::LastRun);
                let rest = (1..*updates).map(|_| (Plain::update(), AsNode::LastRun));
                let superstep = [first].into_iter().chain(rest).collect();
                may_be_unclear(self.graph.configured(self.config()).bulk_update(vec![superstep]).await)
            }
            Step::EditTwice => {
                let supersteps = [(); 2].map(|()| vec![(self.edit(), AsNode::LastRun)]);
                may_be_unclear(self.graph.configured(self.config()).bulk_update(supersteps.into()).await)
            }
            Step::EditAs if !self.shape.leaf => true,
            Step::EditAs => {
                let update = self.edit();
                self.graph.configured(self.config()).update_as("leaf", update).await.unwrap();
                true
            }
            Step::Copy => {
                self.copies += 1;
                let copy = ThreadId::from(format!("copy {}", self.copies));
                self.graph.thread(&self.thread).copy_to(&copy).await.unwrap();
                self.thread = copy;
                true
            }
            Step::Fork => {
                self.graph.configured(self.config()).fork(None).await.unwrap();
                assert_eq!(self.waiting().await, [], "a fork asks anew");
                false
            }
            Step::Repair => {
                self.world.repaired.store(true, Ordering::Relaxed);
                true
            }
            Step::Prune(keep) => {
                self.graph.thread(&self.thread).prune(Retention::Last(*keep)).await.unwrap();
                true
            }
            Step::Cancelled => {
                let config = self.config();
                config.get_cancel().cancel();
                self.resume(config).await.unwrap();
                true
            }
            Step::Drained => {
                let drain = Drain::new();
                drain.request("bye");
                self.resume(self.config().drain(drain)).await.unwrap();
                true
            }
            Step::Resume => {
                // It may fail because of the broken worker.
                drop(self.resume(self.config()).await);
                false
            }
            Step::AnswerId(n) => {
                if let Some(asked) = pick(n) {
                    drop(self.answer(&asked.id, &asked).await);
                }
                false
            }
            Step::AnswerKey(n) => {
                if let Some(asked) = pick(n) {
                    drop(self.answer(&asked.key, &asked).await);
                }
                false
            }
            Step::AnswerLate(n) => {
                if !self.shown.is_empty() {
                    let asked = self.shown[n % self.shown.len()].clone();
                    let waits = before.iter().any(|waiting| waiting.id == asked.id);
                    let taken = self.answer(&asked.id, &asked).await;
                    assert!(waits || taken.is_err(), "an answer to {asked:?} was taken");
                }
                false
            }
        };
        let after = self.waiting().await;
        if keeps {
            // A copy has ids of its own.
            let same = |asked: &Interrupt| {
                let mut asked = asked.clone();
                if matches!(step, Step::Copy) {
                    asked.id.clear();
                }
                asked
            };
            let [after, before] = [&after, &before].map(|all| all.iter().map(same).collect::<Vec<_>>());
            assert_eq!(after, before, "{step:?}");
        }
        self.shown.extend(after);
        self.holds(step).await;
    }

    /// Asserts that each word is said once, or its task is pending.
    async fn holds(&self, step: &Step) {
        let head = self.graph.thread(&self.thread).state().await.unwrap();
        let said = |word: &str| head.values.log.iter().filter(|said| *said == word).count();
        let missing = WORDS.iter().filter(|word| said(word) == 0).count();
        assert!(WORDS.iter().all(|word| said(word) <= 1), "{step:?}: {:?}", head.values.log);
        let to_run = head.next.iter().filter(|node| ["w", "sub"].contains(&node.as_str())).count();
        assert_eq!(to_run, missing, "{step:?}: {:?} and then {:?}", head.values.log, head.next);
    }

    /// Answers all questions until no task is left.
    async fn finish(mut self) {
        self.world.repaired.store(true, Ordering::Relaxed);
        for _ in 0..20 {
            let waiting = self.waiting().await;
            let answers = waiting.iter().fold(Answers::new(), |answers, asked| {
                answers.answer(&asked.id, asked.question["x"].clone())
            });
            self.shown.extend(waiting);
            match self.graph.configured(self.config().answers(answers)).resume().await {
                Ok(end) if end.status == Status::Completed => {
                    let mut said: Vec<_> = end.state.log.iter().map(String::as_str).collect();
                    said.sort_unstable();
                    assert_eq!(said, [&["j"], &WORDS[..]].concat());
                    return;
                }
                Ok(_) | Err(RunError::ChangedQuestion { .. }) => {}
                Err(error) => panic!("{}", superstep::error::chain(&error)),
            }
        }
        panic!("it comes to an end");
    }
}

/// Returns whether an update was made, or rejected because its author is ambiguous.
fn may_be_unclear<T>(updated: Result<T, RunError>) -> bool {
    match updated {
        Ok(_) | Err(RunError::AmbiguousUpdate { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn no_update_is_lost_in_any_sequence_of_edits() {
    let config = Config { cases: 192, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let persistence =
        prop_oneof![Just(Persistence::PerTask), Just(Persistence::PerNode), Just(Persistence::Ephemeral)];
    let shape = (persistence, any::<bool>(), any::<bool>());
    let shape = shape.prop_map(|(persistence, leaf, all_ask)| Shape { persistence, leaf, all_ask });
    let steps = prop::collection::vec(step(), 1..14);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let held = runner.run(&(shape, steps), |(shape, steps)| {
        runtime.block_on(async {
            let world = World::default();
            let graph = Backend::memory().keep(graph(&shape, &world));
            let thread = ThreadId::from("t");
            let mut work = Work { graph, shape, world, thread, x: 0, copies: 0, shown: Vec::new() };
            let begun = work.graph.configured(work.config()).run(Plain::update()).await;
            assert!(begun.is_err(), "one of the workers is broken");
            work.shown = work.waiting().await;
            for step in &steps {
                work.step(step).await;
            }
            work.finish().await;
        });
        Ok(())
    });
    held.unwrap_or_else(|error| panic!("{error}"));
}
