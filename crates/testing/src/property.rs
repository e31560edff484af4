//! Property tests of graphs: strategies for their updates, and invariants that hold after every superstep.
//!
//! ```text
//! the derive of the state ─▶ updates(&graph) ─▶ inputs of a thread ─▶ state after each superstep ─▶ invariants
//!                                                    └── shrunk to the shortest failing history ◀──────┘
//! ```
//!
//! Start at [`invariants`].

mod source;

use std::{fmt, ops::RangeInclusive, sync::Arc};

use futures::StreamExt;
use proptest::{
    collection::vec,
    prelude::{BoxedStrategy, Strategy, any},
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use superstep_graph::{
    Answers, CompiledGraph, Event, Interrupt, MemoryCheckpointer, RunOptions, RunStream, State, Status,
    StreamMode, error::chain, state::reduce,
};
use tokio::runtime::Builder;

use self::source::{Source, read_update};
use crate::clock::{FixedClock, NOW_MS};

/// The number of bytes from which a value is made.
const BYTES: usize = 128;

/// The highest number of runs of one input that continue with answers.
const ROUNDS: usize = 100;

/// Returns a strategy for values of any type that serde reads. It shrinks to empty lists and texts, zeros, and first variants.
///
/// It needs nothing of the type but `Deserialize`: that asks for the parts one after the other. A type that first has to see
/// the data to know its parts, such as an untagged enum, has few values or none; use a strategy of its own for it.
///
/// # Example
/// ```
/// use proptest::{prop_assert, test_runner::TestRunner};
/// use superstep_testing::property::values;
///
/// #[derive(serde::Deserialize, Debug)]
/// struct Part {
///     name: String,
///     price: Option<u32>,
/// }
///
/// let result = TestRunner::deterministic().run(&values::<Part>(), |part| {
///     prop_assert!(part.price.is_none_or(|price| price < 1_000_000));
///     Ok(())
/// });
/// let error = result.unwrap_err().to_string();
/// assert!(error.contains("price: Some("), "{error}");
/// ```
pub fn values<T: DeserializeOwned + fmt::Debug + 'static>() -> BoxedStrategy<T> {
    let read = |bytes: Vec<u8>| T::deserialize(&mut Source::new(&bytes)).ok();
    vec(any::<u8>(), 0..BYTES).prop_filter_map("the type reads the value", read).boxed()
}

/// Returns a strategy for the updates of a graph's state: each writes some channels, with [`values`] of their types.
pub fn updates<S: State>(graph: &CompiledGraph<S>) -> BoxedStrategy<S::Update> {
    let initial = Arc::new(graph.initial().clone());
    let read = move |bytes: Vec<u8>| {
        let update: S::Update = read_update(initial.channels(), &mut Source::new(&bytes)).ok()?;
        initial.check(&update).ok().map(|()| update)
    };
    vec(any::<u8>(), 0..BYTES).prop_filter_map("the state reads the update", read).boxed()
}

/// Returns a strategy for the states of a graph that a few [`updates`] lead to.
pub fn states<S: State + fmt::Debug>(graph: &CompiledGraph<S>) -> BoxedStrategy<S> {
    let initial = graph.initial().clone();
    let fold = move |updates: Vec<S::Update>| {
        updates.into_iter().try_fold(initial.clone(), |state, update| reduce(&state, [update]).ok())
    };
    vec(updates(graph), 0..4).prop_filter_map("the reducers accept the updates", fold).boxed()
}

/// Begins a property test of a graph: invariants of its state that hold after every superstep, for any inputs of a thread.
///
/// # Example
/// ```
/// use superstep_graph::{END, START, State, StateGraph};
/// use superstep_testing::property::invariants;
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Account {
///     #[channel(sum)]
///     balance: i64,
///     withdraw: u8,
/// }
///
/// let mut graph = StateGraph::<Account>::new("account");
/// let pay = graph.add_node("pay", async |account: Account, _| {
///     Account::update().balance(-i64::from(account.withdraw)).withdraw(0)
/// });
/// graph.add_edge(START, pay);
/// graph.add_edge(pay, END);
/// let graph = graph.compile()?;
///
/// let failure = invariants(&graph)
///     .check("the balance is not negative", |account: &Account| account.balance >= 0)
///     .find()
///     .expect("the node does not look at the balance");
/// assert_eq!(failure.inputs.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn invariants<S: State>(graph: &CompiledGraph<S>) -> Invariants<'_, S> {
    Invariants {
        graph,
        inputs: updates(graph),
        checks: Vec::new(),
        length: 1..=5,
        cases: 256,
        answer: |_| None,
        options: RunOptions::new().clock(FixedClock(NOW_MS)),
        may_fail: false,
    }
}

/// An invariant and its name.
type Check<'a, S> = (String, Box<dyn Fn(&S) -> bool + 'a>);

/// A property test of a graph. Made by [`invariants`].
#[must_use = "a test does nothing until it runs"]
pub struct Invariants<'a, S: State> {
    graph: &'a CompiledGraph<S>,
    inputs: BoxedStrategy<S::Update>,
    checks: Vec<Check<'a, S>>,
    length: RangeInclusive<usize>,
    cases: u32,
    answer: fn(&Interrupt) -> Option<Value>,
    options: RunOptions,
    may_fail: bool,
}

/// The shortest history that violates an invariant.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Violation {
    /// The inputs of the thread, as JSON.
    pub inputs: Vec<Value>,
    /// The invariant or the error, and its place.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\ninputs", self.what)?;
        (1..).zip(&self.inputs).try_for_each(|(number, input)| writeln!(f, "  {number} {input}"))
    }
}

impl<'a, S: State> Invariants<'a, S> {
    /// Adds an invariant, which is checked after each input and each superstep.
    pub fn check(mut self, name: impl Into<String>, holds: impl Fn(&S) -> bool + 'a) -> Self {
        self.checks.push((name.into(), Box::new(holds)));
        self
    }

    /// Sets the strategy for inputs; by default any [`updates`].
    pub fn inputs(mut self, inputs: impl Strategy<Value = S::Update> + 'static) -> Self {
        self.inputs = inputs.boxed();
        self
    }

    /// Sets the number of inputs of a thread; 1 to 5 by default.
    pub fn length(mut self, inputs: RangeInclusive<usize>) -> Self {
        self.length = inputs;
        self
    }

    /// Sets the number of threads; 256 by default.
    pub fn cases(mut self, threads: u32) -> Self {
        self.cases = threads;
        self
    }

    /// Sets the answers to questions; a thread ends at a question without an answer.
    pub fn answer(mut self, answer: fn(&Interrupt) -> Option<Value>) -> Self {
        self.answer = answer;
        self
    }

    /// Sets the options of the runs, such as a step limit. The thread and the answers are those of the test.
    pub fn options(mut self, options: RunOptions) -> Self {
        self.options = options;
        self
    }

    /// Accepts runs that fail: the thread ends there. By default a failure violates the test.
    pub fn may_fail(mut self) -> Self {
        self.may_fail = true;
        self
    }

    /// Runs the test. The inputs are the same in each execution of the same test.
    ///
    /// # Panics
    /// If an invariant does not hold, with the shortest history found. Inside a tokio runtime, because it creates one.
    #[track_caller]
    pub fn run(self) {
        if let Some(violation) = self.find() {
            panic!("{violation}");
        }
    }

    /// Like [`run`](Self::run), but returns the violation.
    ///
    /// # Panics
    /// If the strategy rejects too many inputs. Inside a tokio runtime.
    pub fn find(self) -> Option<Violation> {
        let config = Config { cases: self.cases, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let histories = vec(self.inputs.clone(), self.length.clone());
        let ended = runner.run(&histories, |inputs| {
            let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
            let runtime = runtime.expect("a runtime needs nothing that could be missing");
            runtime.block_on(self.thread(inputs)).map_err(TestCaseError::fail)
        });
        let json = |input: &S::Update| {
            let json = serde_json::to_value(self.graph.initial().stored(input));
            json.unwrap_or_else(|error| format!("has no JSON form: {error}").into())
        };
        match ended {
            Ok(()) => None,
            Err(TestError::Fail(what, inputs)) => {
                let inputs = inputs.iter().map(json).collect();
                Some(Violation { inputs, what: what.message().to_owned() })
            }
            Err(TestError::Abort(reason)) => panic!("{reason}"),
        }
    }

    /// Runs a thread of these inputs.
    ///
    /// # Errors
    /// The first violation.
    async fn thread(&self, inputs: Vec<S::Update>) -> Result<(), String> {
        let graph = self.graph.clone().with_checkpointer(Arc::new(MemoryCheckpointer::new()));
        let options = self.options.clone().thread("property");
        let modes = [StreamMode::Values, StreamMode::Updates];
        for (number, input) in (1..).zip(inputs) {
            let mut run = graph.configured(options.clone()).stream(input, modes);
            for _ in 0..ROUNDS {
                self.supersteps(number, &mut run).await?;
                let outcome = match run.outcome().await {
                    Ok(outcome) => outcome,
                    Err(_) if self.may_fail => return Ok(()),
                    Err(error) => return Err(format!("input {number} fails: {}", chain(&error))),
                };
                if outcome.status == Status::Completed {
                    break;
                }
                let mut answers = Answers::new();
                for asked in &outcome.interrupts {
                    let Some(answer) = (self.answer)(asked) else { return Ok(()) };
                    answers = answers.answer(asked.id.clone(), answer);
                }
                if outcome.interrupts.is_empty() && outcome.status != Status::Interrupted {
                    return Ok(());
                }
                run = graph.configured(options.clone().answers(answers)).resume_stream(modes);
            }
        }
        Ok(())
    }

    /// Checks the state after each superstep of a run.
    async fn supersteps(&self, input: usize, run: &mut RunStream<S>) -> Result<(), String> {
        let mut nodes = Vec::new();
        while let Some(event) = run.next().await {
            match event {
                Event::Update { node, .. } => nodes.push(node.to_string()),
                Event::Values { step, state, .. } => {
                    let broken = self.checks.iter().find(|(_, holds)| !holds(&state));
                    if let Some((name, _)) = broken {
                        let nodes = match &*nodes {
                            [] => "the input itself".to_owned(),
                            nodes => nodes.join(", "),
                        };
                        let place = format!("input {input}, superstep {step} ({nodes})");
                        return Err(format!("`{name}` does not hold after {place}\n{}", shown(&state)));
                    }
                    nodes.clear();
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Formats the channels of a state, one per line.
fn shown<S: State>(state: &S) -> String {
    let mut out = "state".to_owned();
    for (position, channel) in state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked) {
        let json = state.encode(position).map(|json| String::from_utf8_lossy(&json).into_owned());
        let json = json.unwrap_or_else(|error| format!("has no JSON form: {error}"));
        out.push_str(&format!("\n  {} {json}", channel.name));
    }
    out
}
