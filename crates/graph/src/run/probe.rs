//! The start and the report of a run that begins at one node with a given state.
//!
//! Start at [`Probe`].

use std::collections::BTreeMap;

use serde_json::Value;
use superstep_checkpoint::RecordedTarget;
use superstep_engine::{Control, NodeName};

use crate::{Event, Interrupt, NodeFailure, RunError, RunOptions, State, Status};

/// A run that begins at one node with a given state, and reports its tasks in full.
///
/// It is a run like any other, on a private thread in memory, with these differences:
///
/// - It begins with one pending task. Its breakpoints are its own, not those of the graph.
/// - The tasks of a superstep run one after the other, in order.
/// - No update comes from the cache of a node, and none goes there.
/// - A failed task ends it, unless it [`recovers`](Self::recovers).
/// - The answers may be given before the questions. A node with a question runs twice, as on any thread: until it
///   asks, and again with the answer.
///
/// The crate `superstep-testing` makes node tests of it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use superstep_graph::{END, START, State, StateGraph, probe::Probe};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Draft {
///     words: usize,
/// }
///
/// let mut graph = StateGraph::<Draft>::new("draft");
/// let write = graph.add_node("write", async |draft: Draft, _| Draft::update().words(draft.words + 40));
/// graph.add_edge(START, write);
/// graph.add_edge(write, END);
/// let graph = graph.compile()?;
///
/// let report = graph.probe(Probe { state: Some(Draft { words: 2 }), ..Probe::new("write") }).await?;
/// assert_eq!(report.tasks[0].update.as_ref().and_then(|update| update.words), Some(42));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Probe<S: State> {
    /// The node of the first task.
    pub node: String,
    /// The state before it; `None` for the initial state of the graph.
    pub state: Option<S>,
    /// The item of the task, if the node is a worker.
    pub item: Option<Value>,
    /// The failure that the node receives, if it is the error handler of the failed node.
    pub failure: Option<NodeFailure>,
    /// The superstep of the first task; 1 by default.
    pub step: i64,
    /// Results of effects ([`Cx::once`](crate::Cx::once), [`Cx::recorded`](crate::Cx::recorded),
    /// [`Cx::noted`](crate::Cx::noted)) by name: these effects do not run. The second use of a name by a task is `name#2`.
    pub effects: BTreeMap<String, Value>,
    /// The answers to questions, each with the key or the id of its question. Several answers under one name are for questions
    /// that follow each other.
    pub answers: Vec<(String, Value)>,
    /// `true` if failed tasks are retried and handled as their nodes define it.
    pub recovers: bool,
    /// The nodes before which it stops; `None` stops it after the first superstep. Without any it runs to its end.
    pub until: Option<Vec<String>>,
    /// The options of the run. The thread is `test` by default.
    pub options: RunOptions,
}

impl<S: State> Probe<S> {
    /// Creates a run of one superstep that begins at this node.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            state: None,
            item: None,
            failure: None,
            step: 1,
            effects: BTreeMap::new(),
            answers: Vec::new(),
            recovers: false,
            until: None,
            options: RunOptions::new(),
        }
    }
}

/// The report of a [`Probe`].
#[derive(Debug)]
pub struct Probed<S: State> {
    /// The tasks, in the order of their starts.
    pub tasks: Vec<ProbedTask<S>>,
    /// The status of the run; [`Status::Interrupted`] also at its breakpoints. The error that ended it, if it failed: that of
    /// a node is [`RunError::Node`].
    pub end: Result<Status, RunError>,
    /// The control record after the last completed superstep.
    pub control: Control,
    /// All questions, including the answered ones.
    pub asked: Vec<Interrupt>,
    /// The names of the answers that no question took.
    pub unused_answers: Vec<String>,
    /// The names of the given effects that no task used.
    pub unused_effects: Vec<String>,
}

/// A task of a [`Probe`].
#[derive(Clone, Debug)]
pub struct ProbedTask<S: State> {
    /// The node that ran.
    pub node: NodeName,
    /// The superstep.
    pub step: i64,
    /// The last attempt, from 1.
    pub attempt: u32,
    /// The item of a worker's task.
    pub item: Option<Value>,
    /// The state that it received.
    pub state: S,
    /// The update of the task; `None` if it did not finish.
    pub update: Option<S::Update>,
    /// The routes and sends that its conditional edges, its fan-outs and its command chose.
    pub chosen: Vec<RecordedTarget>,
    /// The control record to which it leads, without those of other tasks; `None` if its superstep was not completed.
    pub next: Option<Control>,
    /// The custom events and messages, those of called graphs included.
    pub events: Vec<Event<S>>,
    /// The results of its effects, by name.
    pub results: BTreeMap<String, Value>,
    /// The errors of its effects after which it continued, by name.
    pub errors: BTreeMap<String, String>,
    /// The questions that have no answer.
    pub questions: Vec<Interrupt>,
    /// The consequences of its failure, if it failed.
    pub failure: Option<AfterFailure>,
}

/// The retries and the error handler that a run uses after the failure of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct AfterFailure {
    /// `true` if no retry is allowed.
    pub is_fatal: bool,
    /// The number of attempts that the rules of the node allow for this failure.
    pub attempts: u32,
    /// The error handler that would run after the last attempt.
    pub handler: Option<NodeName>,
    /// The data for the error handler.
    pub data: Option<Value>,
}
