//! Sequences of turns, forks, updates, prunes and copies on a thread whose subgraph has a memory: at each moment the
//! memory has the words of its caller's branch, and no others.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use superstep::{
    Answers, CheckpointId, CompiledGraph, Cx, Durability, Log, NodeError, OnUnfinished, RunError, RunOptions,
    START, State, StateGraph, ThreadId, checkpoint::Retention, node::Persistence, thread::AsNode,
};

use crate::support::{Backend, Plain, say};

/// The state of the caller.
#[derive(State, Clone, Debug, Default, PartialEq)]
struct Turns {
    word: String,
    /// The words that the memory has to have.
    #[channel(append)]
    words: Log<String>,
    /// The words that it had after its last call or update.
    seen: String,
}

#[derive(Clone, Debug)]
enum Step {
    /// A turn with a word; the subgraph asks about it if this is `true`.
    Run(bool),
    RunAt(usize, bool),
    Replace(usize),
    Answer,
    Resume,
    Update,
    UpdateAt(usize),
    /// An update in the name of the subgraph, whose word is not in the memory.
    ByHand,
    /// An update of the subgraph, between two turns.
    UpdateMemory,
    /// The node beside the subgraph fails, or is repaired.
    Break,
    Prune(usize),
    Copy,
    /// The thread is exported and imported under another name.
    Text,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(Step::Run),
        2 => any::<(usize, bool)>().prop_map(|(at, asks)| Step::RunAt(at, asks)),
        2 => any::<usize>().prop_map(Step::Replace),
        2 => Just(Step::Answer),
        1 => Just(Step::Resume),
        1 => Just(Step::Update),
        1 => any::<usize>().prop_map(Step::UpdateAt),
        1 => Just(Step::ByHand),
        2 => Just(Step::UpdateMemory),
        1 => Just(Step::Break),
        1 => (1..6usize).prop_map(Step::Prune),
        1 => Just(Step::Copy),
        1 => Just(Step::Text),
    ]
}

/// `START → (mem, other) → after`.
fn graph(is_broken: &Arc<AtomicBool>) -> CompiledGraph<Turns> {
    let mut mem = StateGraph::<Plain>::new("mem");
    let keep = mem.add_node("keep", async |_: Plain, _: Cx| {});
    let ask = mem.add_node("ask", async |state: Plain, cx: Cx| {
        if state.log.last().unwrap().starts_with("ask") {
            let _: bool = cx.interrupt("q", ()).await;
        }
    });
    mem.add_edge(START, keep);
    mem.add_edge(keep, ask);
    let mem = mem.compile().unwrap().with_persistence(Persistence::PerNode);
    let mut graph = StateGraph::<Turns>::new("caller");
    let said = |mem: &Plain| Turns::update().words([mem.log.last().unwrap().clone()]).seen(mem.log_text());
    let mem = graph.add_subgraph_with("mem", &mem, |state: &Turns| say(&state.word), said);
    let other = graph.add_node_with("other", is_broken.clone(), async |is_broken, _: Turns, _: Cx| {
        match is_broken.load(Ordering::Relaxed) {
            true => Err(NodeError::new("it is broken").fatal()),
            false => Ok(()),
        }
    });
    let after = graph.add_node("after", async |_: Turns, _: Cx| {});
    for node in [mem, other] {
        graph.add_edge(START, node);
        graph.add_edge(node, after);
    }
    graph.compile().unwrap()
}

struct Work {
    is_broken: Arc<AtomicBool>,
    backend: Backend,
    thread: ThreadId,
    durability: Durability,
    nth: usize,
}

/// Accepts the failure of the broken node, and a step that the thread does not allow now.
fn fine<T>(ended: Result<T, RunError>) {
    if let Err(error) = ended {
        let is_fine = matches!(error, RunError::EmptyThread { .. } | RunError::AmbiguousUpdate { .. })
            || superstep::error::chain(&error).contains("it is broken");
        assert!(is_fine, "{error}");
    }
}

impl Work {
    /// Opens the thread as in a new process.
    fn graph(&self) -> CompiledGraph<Turns> {
        self.backend.keep(graph(&self.is_broken))
    }

    fn config(&self) -> RunOptions {
        let config = RunOptions::new().thread(self.thread.clone()).durability(self.durability);
        config.on_unfinished(OnUnfinished::Discard)
    }

    fn word(&mut self, asks: bool) -> TurnsUpdate {
        self.nth += 1;
        Turns::update().word(format!("{}{}", if asks { "ask" } else { "word" }, self.nth))
    }

    fn name(&mut self) -> ThreadId {
        self.nth += 1;
        ThreadId::from(self.nth.to_string())
    }

    async fn pick(&self, n: usize) -> CheckpointId {
        let all = self.graph().thread(&self.thread).history().checkpoints().await.unwrap();
        all[n % all.len()].id
    }

    async fn step(&mut self, step: &Step) {
        let (graph, config) = (self.graph(), self.config());
        let thread = graph.thread(&self.thread);
        match step {
            Step::Run(asks) => fine(graph.configured(config).run(self.word(*asks)).await),
            Step::RunAt(n, asks) => {
                let (at, word) = (self.pick(*n).await, self.word(*asks));
                fine(graph.configured(config.at(at)).run(word).await);
            }
            Step::Replace(n) => fine(graph.configured(config.at(self.pick(*n).await)).resume().await),
            Step::Answer => {
                let tasks = thread.state().await.unwrap().tasks;
                if let Some(asked) = tasks.iter().flat_map(|task| &task.interrupts).next() {
                    let answers = Answers::new().answer(&asked.id, true);
                    fine(graph.configured(config.answers(answers)).resume().await);
                }
            }
            Step::Resume => fine(graph.configured(config).resume().await),
            Step::Update => fine(thread.update(Turns::update()).await),
            Step::UpdateAt(n) => fine(thread.at(self.pick(*n).await).update(Turns::update()).await),
            Step::ByHand => fine(thread.update_as("mem", Turns::update().words(["hand"])).await),
            Step::UpdateMemory => self.update_memory().await,
            Step::Break => drop(self.is_broken.fetch_xor(true, Ordering::Relaxed)),
            Step::Prune(last) => drop(thread.prune(Retention::Last(*last)).await.unwrap()),
            Step::Copy => {
                let copy = self.name();
                thread.copy_to(&copy).await.unwrap();
                self.thread = copy;
            }
            Step::Text => {
                let (text, copy) = (thread.export().await.unwrap(), self.name());
                graph.thread(&copy).import(&text).await.unwrap();
                self.thread = copy;
            }
        }
        self.holds(step).await;
    }

    /// Adds a word to the memory, and to the words of the caller before.
    async fn update_memory(&mut self) {
        let (graph, word) = (self.graph(), self.name().to_string());
        let thread = graph.thread(&self.thread);
        let head = thread.state().await.unwrap();
        let memory = thread.subgraph::<Plain>(["mem"]);
        if !head.next.is_empty() || memory.state().await.is_err() {
            return;
        }
        thread.update_as(AsNode::End, Turns::update().words([word.clone()])).await.unwrap();
        memory.update_as(AsNode::End, say(&word)).await.unwrap();
        let seen = memory.state().await.unwrap().values.log_text();
        thread.update_as(AsNode::End, Turns::update().seen(seen)).await.unwrap();
    }

    async fn holds(&self, step: &Step) {
        let graph = self.graph();
        let thread = graph.thread(&self.thread);
        let Turns { words, seen, .. } = thread.state().await.unwrap().values;
        let wanted: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "hand").collect();
        let seen: Vec<&str> = seen.split_whitespace().collect();
        // The word of an update may not have been seen.
        let is_updated = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
        let (before, rest) = wanted.split_at(seen.len().min(wanted.len()));
        assert!(seen == before && rest.iter().all(is_updated), "{step:?}: {seen:?}, and not {wanted:?}");
        if !self.is_broken.load(Ordering::Relaxed) {
            let replayed = thread.replay().run().await.unwrap();
            assert!(replayed.divergence.is_none(), "{step:?}: {replayed}");
        }
    }
}

#[test]
fn a_memory_has_the_words_of_its_callers_branch_in_any_sequence_of_edits() {
    let config = Config { cases: 96, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let durability = prop_oneof![Just(Durability::Sync), Just(Durability::Async), Just(Durability::Exit)];
    let steps = prop::collection::vec(step(), 1..18);
    let held = runner.run(&(durability, any::<bool>(), steps), |(durability, in_text, steps)| {
        runtime.block_on(async {
            let backend = if in_text { Backend::text() } else { Backend::memory() };
            let is_broken = Arc::default();
            let mut work = Work { is_broken, backend, thread: ThreadId::from("t"), durability, nth: 0 };
            work.step(&Step::Run(false)).await;
            for step in &steps {
                work.step(step).await;
            }
        });
        Ok(())
    });
    held.unwrap_or_else(|error| panic!("{error}"));
}
