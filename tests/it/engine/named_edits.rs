//! Sequences of updates in the names of nodes: in any order of updates, answers, forks and copies, each task is
//! done once, by its node or by hand, and each join and deferred node runs once and in its time.

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use superstep::{
    Answers, Command, CompiledGraph, Cx, END, Interrupt, NodeError, NodeFailure, NodeOptions, RunError,
    START, State, StateGraph, Status, ThreadId, thread::AsNode,
};

use crate::support::{Backend, Plain, logging_node, say};

#[derive(Clone, Debug)]
enum Step {
    Edit,
    Command,
    /// One update for each task of a node in the open superstep, or for the node if it is deferred.
    EditAs(usize),
    /// The same beside an update without a name, which comes first or last.
    EditBeside(usize, bool),
    Answer(usize),
    Resume,
    Fork,
    /// A fork of any checkpoint.
    ForkAt(usize),
    Copy,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Edit),
        1 => Just(Step::Command),
        3 => any::<usize>().prop_map(Step::EditAs),
        3 => any::<(usize, bool)>().prop_map(|(n, is_first)| Step::EditBeside(n, is_first)),
        3 => any::<usize>().prop_map(Step::Answer),
        1 => Just(Step::Resume),
        1 => Just(Step::Fork),
        1 => any::<usize>().prop_map(Step::ForkAt),
        1 => Just(Step::Copy),
    ]
}

/// The number of times that each word is said in the end, by its node or by hand.
const WORDS: [(&str, usize); 10] = [
    ("ask", 1),
    ("d", 1),
    ("early", 1),
    ("j", 1),
    ("late", 1),
    ("plan", 1),
    ("v", 6),
    ("w", 3),
    ("x", 2),
    ("z", 1),
];

/// Each node says its name, and some ask before.
async fn done(item: Option<i64>, cx: Cx) -> <Plain as State>::Update {
    let name = cx.node().to_string();
    if name == "ask" || name == "late" || (item == Some(1) && name != "x") {
        let _: bool = cx.interrupt(&name, item).await;
    }
    say(if name == "h" { "w" } else { &name })
}

/// ```text
/// START ⇒ w ⇒ v, and j after v, w and x; the second of three w fails, and its handler h asks and sends to v
/// START → plan ⇒ x, and plan → d, which is deferred; d → z
/// START → ask → late, and early → END
/// ```
fn graph() -> CompiledGraph<Plain> {
    let mut graph = StateGraph::<Plain>::new("g");
    let w = graph.add_worker("w", async |item: i64, _: Plain, cx: Cx| match item {
        2 => Err(NodeError::new("down").fatal()),
        item => Ok(done(Some(item), cx).await),
    });
    let h = graph.add_error_handler(w, "h", async |_: NodeFailure, _: Plain, cx: Cx| done(Some(1), cx).await);
    let v = graph.add_worker("v", async |item: i64, _: Plain, cx: Cx| done(Some(item), cx).await);
    let x = graph.add_worker("x", async |item: i64, _: Plain, cx: Cx| done(Some(item), cx).await);
    let [plan, ask, late, early, d] = ["plan", "ask", "late", "early", "d"]
        .map(|name| graph.add_node(name, async |_: Plain, cx: Cx| done(None, cx).await));
    let [j, z] = ["j", "z"].map(|name| logging_node(&mut graph, name));
    graph.configure(d, NodeOptions::new().deferred());
    graph.add_fan_out(START, |_: &Plain| [1, 2, 3], w);
    for from in [w.into(), h] {
        graph.add_fan_out(from, |_: &Plain| [1, 4], v);
    }
    graph.add_fan_out(plan, |_: &Plain| [1, 2], x);
    for to in [plan, ask, early] {
        graph.add_edge(START, to);
    }
    graph.add_edge(plan, d);
    graph.add_edge(d, z);
    graph.add_edge(ask, late);
    graph.add_edge(early, END);
    graph.add_join([w, v, x], j);
    graph.compile().unwrap()
}

struct Work {
    graph: CompiledGraph<Plain>,
    thread: ThreadId,
    copies: usize,
}

impl Work {
    async fn waiting(&self) -> Vec<Interrupt> {
        let head = self.graph.thread(&self.thread).state().await.unwrap();
        head.tasks.into_iter().flat_map(|task| task.interrupts).collect()
    }

    async fn step(&mut self, step: &Step) {
        let thread = self.graph.thread(&self.thread);
        match step {
            Step::Edit => match thread.update(Plain::update().x(1)).await {
                Ok(_) | Err(RunError::AmbiguousUpdate { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            Step::Command => drop(thread.resume_with(Command::update(Plain::update().x(2))).await.unwrap()),
            Step::EditAs(n) => self.edit_as(*n, None).await,
            Step::EditBeside(n, is_first) => self.edit_as(*n, Some(*is_first)).await,
            Step::ForkAt(n) => {
                let all = thread.history().checkpoints().await.unwrap();
                thread.fork(all[n % all.len()].id).await.unwrap();
            }
            Step::Answer(n) => {
                let waiting = self.waiting().await;
                if !waiting.is_empty() {
                    let id = &waiting[n % waiting.len()].id;
                    thread.answers(Answers::new().answer(id, true)).resume().await.unwrap();
                }
            }
            Step::Resume => drop(thread.resume().await.unwrap()),
            Step::Fork => drop(thread.fork(None).await.unwrap()),
            Step::Copy => {
                self.copies += 1;
                let copy = ThreadId::from(format!("copy {}", self.copies));
                thread.copy_to(&copy).await.unwrap();
                self.thread = copy;
            }
        }
        self.holds(false).await;
    }

    /// Makes updates in the name of a node; `beside` is `true` if an update without a name comes before them.
    async fn edit_as(&self, n: usize, beside: Option<bool>) {
        let thread = self.graph.thread(&self.thread);
        let head = thread.state().await.unwrap();
        let control = head.checkpoint.unwrap().control;
        let nodes = control.next.iter().chain(&control.deferred);
        let nodes: Vec<_> = nodes.filter(|node| node.as_str() != "__start__").collect();
        if nodes.is_empty() {
            return;
        }
        let node = nodes[n % nodes.len()].as_str();
        // Unfinished tasks come first; an update for each of these leaves the finished ones.
        let tasks = head.tasks.iter().filter(|task| task.node.as_str() == node);
        let unfinished = tasks.clone().filter(|task| task.result.is_none()).count();
        let all = tasks.count().max(1);
        let updates = if unfinished > 0 && n.is_multiple_of(2) { unfinished } else { all };
        let mut by_hand: Vec<_> = (0..updates).map(|_| (say(node), AsNode::from(node))).collect();
        if let Some(is_first) = beside {
            let place = if is_first { 0 } else { by_hand.len() };
            by_hand.insert(place, (Plain::update().x(3), AsNode::LastRun));
        }
        match thread.bulk_update(vec![by_hand]).await {
            Ok(_) => {}
            Err(RunError::AmbiguousUpdate { .. }) if beside.is_some() => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Asserts that nothing was done twice, and that each node had what it waits for.
    async fn holds(&self, at_end: bool) {
        let log = self.graph.thread(&self.thread).state().await.unwrap().values.log;
        let said: Vec<&str> = log.iter().map(String::as_str).collect();
        let count = |words: &[&str], word: &str| words.iter().filter(|said| **said == word).count();
        for (word, times) in WORDS {
            let is_fine = if at_end { count(&said, word) == times } else { count(&said, word) <= times };
            assert!(is_fine, "{word}: {said:?}");
        }
        if let Some(nth) = said.iter().position(|word| *word == "j") {
            let missing =
                WORDS.iter().find(|(word, times)| "wvx".contains(word) && count(&said[..nth], word) < *times);
            assert_eq!(missing, None, "j ran early: {said:?}");
        }
    }

    async fn finish(self) {
        for _ in 0..20 {
            let waiting = self.waiting().await;
            let answers = waiting.iter().fold(Answers::new(), |all, asked| all.answer(&asked.id, true));
            let end = self.graph.thread(&self.thread).answers(answers).resume().await.unwrap();
            if end.status == Status::Completed {
                return self.holds(true).await;
            }
        }
        panic!("it does not end");
    }
}

#[test]
fn each_task_is_done_once_in_any_sequence_of_updates_by_name() {
    let config = Config { cases: 256, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let held = runner.run(&prop::collection::vec(step(), 1..14), |steps| {
        runtime.block_on(async {
            let graph = Backend::memory().keep(graph());
            let mut work = Work { graph, thread: ThreadId::from("t"), copies: 0 };
            let begun = work.graph.thread(&work.thread).run(Plain::update()).await.unwrap();
            assert_eq!(begun.status, Status::Interrupted);
            for step in &steps {
                work.step(step).await;
            }
            work.finish().await;
        });
        Ok(())
    });
    held.unwrap_or_else(|error| panic!("{error}"));
}
