//! The errors of building and running a graph.
//!
//! Start at [`RunError`]; nodes fail with [`NodeError`](crate::NodeError).

use std::{borrow::Cow, error::Error, fmt, time::Duration};

use superstep_checkpoint::{CheckpointError, GraphId, text::TextError};
use superstep_engine::{EngineError, NodeName, RestoreError, START};
use superstep_state::{FoldError, chain};

use crate::{CheckpointId, ThreadId, changed_question::ChangedQuestion, timers::NoTimers};

/// The error of a run that did not complete. The last commit of the thread remains valid.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A node failed permanently.
    #[error("SS101: superstep {step}: node `{node}` failed after {attempts} attempt{}", if *.attempts == 1 { "" } else { "s" })]
    Node {
        /// The node.
        node: NodeName,
        /// The superstep.
        step: i64,
        /// The number of attempts.
        attempts: u32,
        /// The last error.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// Two nodes wrote a channel that accepts one write per superstep.
    #[error(
        "SS102: superstep {step}: {} wrote channel `{channel}`, which takes one write per superstep; use a merging reducer{}",
        if .first == .second { format!("two tasks of node `{first}`") } else { format!("nodes `{first}` and `{second}` both") },
        if .first == .second { "" } else { " or order the nodes with an edge" },
    )]
    Conflict {
        /// The channel.
        channel: Cow<'static, str>,
        /// The superstep.
        step: i64,
        /// The node that is folded first.
        first: NodeName,
        /// The other one; the same if two of its tasks wrote it.
        second: NodeName,
    },
    /// A node wrote a channel that it did not declare.
    #[error(
        "SS186: superstep {step}: node `{node}` wrote channel `{channel}`, which it does not declare; add \
         it to `StateGraph::writes`, or do not write it"
    )]
    Undeclared {
        /// The node.
        node: NodeName,
        /// The superstep.
        step: i64,
        /// The channel.
        channel: Cow<'static, str>,
    },
    /// A reducer rejected a write.
    #[error("SS103: superstep {step}: the write of node `{node}` cannot be applied: {}", chain(.source))]
    Fold {
        /// The node.
        node: NodeName,
        /// The superstep.
        step: i64,
        /// The channel and the reducer's reason.
        #[source]
        source: FoldError,
    },
    /// A conditional edge chose no route, or an unknown one.
    #[error("SS104: superstep {step}: {error}")]
    Route {
        /// The superstep.
        step: i64,
        /// The error of the choice.
        error: EngineError,
    },
    /// A router panicked.
    #[error("SS116: superstep {step}: a conditional edge of node `{node}` failed")]
    Router {
        /// The node before the conditional edge.
        node: NodeName,
        /// The superstep.
        step: i64,
        /// The panic.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The run reached its maximum number of supersteps.
    #[error(
        "SS105: {limit} superstep{} did not finish the run, {} would be next; raise `step_limit`, or check that the \
         graph's cycles end", if *.limit == 1 { "" } else { "s" }, names(.next)
    )]
    StepLimit {
        /// The limit.
        limit: u32,
        /// The nodes that would have run.
        next: Vec<NodeName>,
    },
    /// A superstep exceeded [`Thread::step_timeout`](crate::Thread::step_timeout).
    #[error(
        "SS165: superstep {step} took longer than the `step_timeout` of {limit:?}, {} {} still at work; resume the thread \
         to run {} again, or raise the limit", names(.unfinished), if .unfinished.len() == 1 { "was" } else { "were" },
        if .unfinished.len() == 1 { "it" } else { "them" }
    )]
    StepTimeout {
        /// The superstep.
        step: i64,
        /// The limit.
        limit: Duration,
        /// The nodes of the dropped tasks.
        unfinished: Vec<NodeName>,
    },
    /// A value has no JSON form, or one that is read back as another value, so it cannot be stored.
    #[error(
        "SS106: superstep {step}: the write of node `{node}`{} cannot be stored as JSON and read back \
         unchanged",
        to(channel.as_deref())
    )]
    Encode {
        /// The node.
        node: NodeName,
        /// The written channel, if known.
        channel: Option<Cow<'static, str>>,
        /// The superstep.
        step: i64,
        /// The serializer's reason.
        #[source]
        source: serde_json::Error,
    },
    /// The value of a channel has no JSON form, or one that is read back as another value, so no snapshot of the state can be stored.
    #[error(
        "SS117: superstep {step}: the value of channel `{channel}` cannot be stored as JSON and read back \
         unchanged"
    )]
    EncodeChannel {
        /// The channel.
        channel: Cow<'static, str>,
        /// The superstep.
        step: i64,
        /// The serializer's reason.
        #[source]
        source: serde_json::Error,
    },
    /// `step_limit` is 0.
    #[error("SS107: `step_limit` must be at least 1")]
    ZeroStepLimit,
    /// The graph has a checkpointer, but the run has no thread.
    #[error(
        "SS108: graph `{graph}` has a checkpointer, so a run needs a thread; use `CompiledGraph::thread`, or `CompiledGraph::without_thread` to store nothing"
    )]
    NoThread {
        /// The graph.
        graph: String,
    },
    /// An operation on a thread of a graph without a checkpointer.
    #[error(
        "SS109: graph `{graph}` has no checkpointer, so it stores no threads; add one with \
         `with_checkpointer`"
    )]
    NoCheckpointer {
        /// The graph.
        graph: String,
    },
    /// A resume of a thread that never ran.
    #[error("SS110: thread `{thread}` has no checkpoint to resume from; give it an input first")]
    EmptyThread {
        /// The thread.
        thread: ThreadId,
    },
    /// The thread does not have the checkpoint.
    #[error("SS111: thread `{thread}` has no checkpoint {checkpoint}; its history lists those it has")]
    UnknownCheckpoint {
        /// The thread.
        thread: ThreadId,
        /// The requested checkpoint.
        checkpoint: CheckpointId,
    },
    /// A new input for a thread with pending tasks.
    #[error(
        "SS112: thread `{thread}` is not finished, {} still to run; resume it, or discard that with \
         `OnUnfinished::Discard`", names(.next)
    )]
    Unfinished {
        /// The thread.
        thread: ThreadId,
        /// The pending nodes.
        next: Vec<NodeName>,
    },
    /// A streamed channel that the state does not have.
    #[error("SS160: the state has no channel `{key}` whose values could be streamed; it has {}", list(.channels))]
    UnknownOutputKey {
        /// The requested name.
        key: String,
        /// The names of its channels.
        channels: Vec<String>,
    },
    /// The tokio runtime on which a streamed run ran was shut down before the run ended.
    #[error(
        "SS161: the runtime of the run was shut down before the run ended; resume the thread on another one"
    )]
    RuntimeGone,
    /// The graph has no such node.
    #[error("SS113: graph `{graph}` has no node `{node}`; use a name that was given to `add_node`")]
    UnknownNode {
        /// The graph.
        graph: String,
        /// The requested name.
        node: String,
    },
    /// A breakpoint before an error handler.
    #[error(
        "SS123: no run of graph `{graph}` can stop before error handler `{node}`, which runs in the middle \
         of a superstep; stop after it"
    )]
    NoStop {
        /// The graph.
        graph: String,
        /// The error handler.
        node: String,
    },
    /// An external command with a target that cannot be entered directly.
    #[error("SS140: a command cannot lead to node `{node}` of graph `{graph}`: {why}")]
    NoWayIn {
        /// The graph.
        graph: String,
        /// The node.
        node: String,
        /// The reason, and a remedy.
        why: &'static str,
    },
    /// The checkpoint does not fit the graph.
    #[error("SS114: graph `{graph}` cannot resume from this checkpoint: {error}")]
    Restore {
        /// The graph.
        graph: String,
        /// The mismatch.
        error: RestoreError,
    },
    /// Stored data that does not fit the state.
    #[error(
        "SS115: thread `{thread}`, checkpoint {checkpoint}: the stored data of {what} does not fit the state: {}",
        chain(&**.source)
    )]
    Decode {
        /// The thread.
        thread: ThreadId,
        /// The loaded checkpoint.
        checkpoint: CheckpointId,
        /// The part of the stored data.
        what: String,
        /// The reason.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// An answer to an unknown question.
    #[error(
        "SS118: no interrupt `{name}` is waiting; {}{}",
        if .waiting.is_empty() { "the thread waits for none".to_owned() } else { format!("the thread waits for {}", list(.waiting)) },
        .elsewhere.as_ref().map(on_another_branch).unwrap_or_default()
    )]
    UnknownInterrupt {
        /// The name in the answer.
        name: String,
        /// The ids of the pending interrupts.
        waiting: Vec<String>,
        /// The checkpoint of another branch where it waits.
        elsewhere: Option<CheckpointId>,
    },
    /// An answer for several questions, or two answers for one.
    #[error("SS119: the answer `{name}` is ambiguous; answer once, by the id of the interrupt: {}", list(.meant))]
    AmbiguousAnswer {
        /// The name in the answer.
        name: String,
        /// The ids of the matching interrupts.
        meant: Vec<String>,
    },
    /// An answer of the wrong type. The question remains pending.
    #[error(
        "SS120: superstep {step}: the answer to `{key}` does not have the type that node `{node}` expects: {source}; answer it \
         again"
    )]
    BadAnswer {
        /// The node.
        node: NodeName,
        /// The superstep.
        step: i64,
        /// The key of the question.
        key: String,
        /// The error of the answer.
        #[source]
        source: serde_json::Error,
    },
    /// An answer to an earlier question than the current one, which remains pending.
    #[error(transparent)]
    ChangedQuestion(Box<ChangedQuestion>),
    /// An interrupt in a graph that cannot store it.
    #[error(
        "SS121: superstep {step}: node `{node}` interrupted the run with `{key}`, but the graph has no \
         checkpointer to store it; add one with `with_checkpointer`"
    )]
    NowhereToWait {
        /// The node.
        node: NodeName,
        /// The superstep.
        step: i64,
        /// The key of the question.
        key: String,
    },
    /// An update without an author, after several nodes ran last, or after an unknown one.
    #[error(
        "SS190: thread `{thread}`: {}, so the node of the update is ambiguous; name {}",
        if .nodes.is_empty() { "the node that ran last is no longer stored".to_owned() } else { format!("{} ran last", list(.nodes)) },
        if .nodes.is_empty() { "a node" } else { "one of them" }
    )]
    AmbiguousUpdate {
        /// The thread.
        thread: ThreadId,
        /// The names of the nodes.
        nodes: Vec<NodeName>,
    },
    /// An update in the name of a node with more tasks than updates: unfinished ones, or, if each of these has
    /// an update, those that have finished in the incomplete superstep as well.
    #[error(
        "SS198: thread `{thread}`: {} tasks of node `{node}` are {}, and {updates} of the updates \
         are in its name, so the remaining tasks are ambiguous ({}); give one update for each, name another \
         node, or none",
        .tasks.len(),
        if *.finished { "in the incomplete superstep" } else { "not finished" },
        .tasks.join(", ")
    )]
    UnclearUpdate {
        /// The thread.
        thread: ThreadId,
        /// The node.
        node: NodeName,
        /// The number of updates for it.
        updates: usize,
        /// The tasks of the node: the superstep and the slot, and the ids of their pending questions.
        tasks: Vec<String>,
        /// `true` if finished tasks are among them.
        finished: bool,
    },
    /// A bulk update without updates.
    #[error(
        "SS191: thread `{thread}`: there is nothing to update; give at least one update for each superstep"
    )]
    NoUpdates {
        /// The thread.
        thread: ThreadId,
    },
    /// A run with both an input and answers.
    #[error("SS122: a run takes an input or answers, not both; `resume` with the answers first")]
    InputAndAnswers,
    /// A node wrote an unknown channel.
    #[error(
        "SS133: superstep {step}: node `{node}` wrote `{channel}`, which is not a channel of the state; {}",
        if .declared.is_empty() { "it has none".to_owned() } else { format!("it has {}", list(.declared)) }
    )]
    UndeclaredChannel {
        /// The node; `__start__` if it was the input.
        node: NodeName,
        /// The superstep.
        step: i64,
        /// The undeclared channel.
        channel: String,
        /// The channels of the state.
        declared: Vec<String>,
    },
    /// A node wrote a value that does not fit the channel's schema.
    #[error(
        "SS134: superstep {step}: the write of node `{node}` to channel `{channel}` does not match its \
         schema{}: {reason}",
        if .place.is_empty() { String::new() } else { format!(" at `{}`", .place) }
    )]
    UnfitWrite {
        /// The node; `__start__` if it was the input.
        node: NodeName,
        /// The superstep.
        step: i64,
        /// The channel.
        channel: String,
        /// The place in the value, as a JSON pointer; empty for the value itself.
        place: String,
        /// The reason.
        reason: String,
    },
    /// A newer program stored a channel.
    #[error(
        "SS131: thread `{thread}`, checkpoint {checkpoint}: channel `{channel}` is stored in version \
         {stored}, and this program knows versions up to {known}; use the newer program, or resume from an \
         older checkpoint"
    )]
    NewerChannel {
        /// The thread.
        thread: ThreadId,
        /// The loaded checkpoint.
        checkpoint: CheckpointId,
        /// The channel.
        channel: Cow<'static, str>,
        /// The stored version.
        stored: u32,
        /// The version of this program.
        known: u32,
    },
    /// A required channel has no value.
    #[error(
        "SS132: channel `{channel}` is required, and {}; write it with the input, or with `Thread::update`",
        missing(.stored)
    )]
    MissingChannel {
        /// The channel.
        channel: Cow<'static, str>,
        /// The loaded thread and checkpoint; `None` if the thread is new.
        stored: Option<(ThreadId, CheckpointId)>,
    },
    /// A run on the thread of a subgraph.
    #[error(
        "SS150: thread `{thread}` has the name of a subgraph's thread, with the character U+001F in it, and \
         cannot be run directly; run the graph that calls it, or use a name without that character"
    )]
    ChildThread {
        /// The thread.
        thread: ThreadId,
    },
    /// A thread of another graph.
    #[error(
        "SS176: thread `{thread}` belongs to graph {stored}, and this is graph {graph}; use that graph, or another thread, or \
         make the thread this graph's with `Thread::adopt`"
    )]
    OtherGraph {
        /// The thread.
        thread: ThreadId,
        /// The graph of the thread.
        stored: Box<GraphId>,
        /// The graph of the operation.
        graph: Box<GraphId>,
    },
    /// A subgraph that cannot be read.
    #[error("SS155: graph `{graph}` has no stored subgraph `{node}`: {why}")]
    NoSubgraph {
        /// The graph.
        graph: String,
        /// The node, or the path from the outermost graph.
        node: String,
        /// Why not.
        why: &'static str,
    },
    /// A node left a graph that has no caller.
    #[error(
        "SS156: superstep {step}: node `{node}` left the graph with a command for its caller, but the graph \
         has no caller; return a `Command` from a routing node instead, or run the graph that has this one \
         as a subgraph"
    )]
    NoCaller {
        /// The node.
        node: NodeName,
        /// The superstep.
        step: i64,
    },
    /// A value given to a run or its thread that cannot be stored and read back as equal.
    #[error("SS192: {what} cannot be stored as JSON and read back unchanged; give it another form")]
    Unstorable {
        /// The name of the value.
        what: String,
        /// The error, with its place.
        #[source]
        source: serde_json::Error,
    },
    /// A [stored](crate::node::CachePolicy::stored) cache of a node cannot be used.
    #[error("SS126: the cache of node `{node}` cannot be read or written")]
    Cache {
        /// The node.
        node: NodeName,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A delay or a time limit on a runtime without timers.
    #[error(transparent)]
    NoTimers(#[from] NoTimers),
    /// A text cannot be imported, or a thread has no text.
    #[error(transparent)]
    Text(TextError),
    /// The checkpointer failed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

/// Properties that a server maps to status codes.
///
/// ```
/// # use superstep_graph::RunError;
/// fn status(error: &RunError) -> u16 {
///     match error {
///         error if error.is_not_found() => 404,
///         error if error.is_busy() || error.is_unfinished() => 409,
///         error if error.is_rejected_answer() || error.is_rejected_input() => 422,
///         _ => 500,
///     }
/// }
/// # assert_eq!(status(&RunError::EmptyThread { thread: "t".into() }), 404);
/// ```
impl RunError {
    /// Returns the code that the text begins with, such as `SS112`; it names the page in `docs/errors`.
    pub fn code(&self) -> String {
        let mut text = self.to_string();
        text.truncate(text.find(':').unwrap_or_default());
        text
    }

    /// Returns whether another writer works on the thread, or has changed it meanwhile. The same call may succeed later.
    pub fn is_busy(&self) -> bool {
        use CheckpointError::{Busy, Conflict, LeaseLost};
        matches!(self, Self::Checkpoint(Busy { .. } | Conflict { .. } | LeaseLost { .. }))
    }

    /// Returns whether an input was given to a thread that has pending tasks or waits for an answer.
    pub fn is_unfinished(&self) -> bool {
        matches!(self, Self::Unfinished { .. })
    }

    /// Returns whether the thread does not exist, or does not have the checkpoint or the subgraph.
    pub fn is_not_found(&self) -> bool {
        let is_missing = matches!(
            self,
            Self::EmptyThread { .. } | Self::UnknownCheckpoint { .. } | Self::NoSubgraph { .. }
        );
        is_missing || matches!(self, Self::Checkpoint(CheckpointError::NoThread { .. }))
    }

    /// Returns whether an answer is for no waiting question or for a changed one, is ambiguous, or has another type than its
    /// question expects. The questions still wait.
    pub fn is_rejected_answer(&self) -> bool {
        matches!(
            self,
            Self::UnknownInterrupt { .. }
                | Self::AmbiguousAnswer { .. }
                | Self::BadAnswer { .. }
                | Self::ChangedQuestion(_)
                | Self::InputAndAnswers
        )
    }

    /// Returns whether an input has a write that the state does not accept, or lacks one that it requires. Nothing of it is
    /// stored.
    pub fn is_rejected_input(&self) -> bool {
        match self {
            Self::Fold { node, .. }
            | Self::Encode { node, .. }
            | Self::UndeclaredChannel { node, .. }
            | Self::UnfitWrite { node, .. } => node.as_str() == START,
            Self::MissingChannel { stored, .. } => stored.is_none(),
            _ => false,
        }
    }

    /// Returns whether a node failed, after all its attempts and without an error handler. A resume repeats it.
    pub fn is_node_failure(&self) -> bool {
        matches!(self, Self::Node { .. })
    }
}

impl From<TextError> for RunError {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Checkpoint(error) => Self::Checkpoint(error),
            error => Self::Text(error),
        }
    }
}

fn list(names: &[impl fmt::Display]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn on_another_branch(checkpoint: &CheckpointId) -> String {
    format!(
        "; the question waits at checkpoint {checkpoint} of another branch, where it can be answered only while that is the head; \
         to ask it again on a new branch, resume `at({checkpoint})` without answers"
    )
}

fn missing(stored: &Option<(ThreadId, CheckpointId)>) -> String {
    match stored {
        Some((thread, checkpoint)) => {
            format!("nothing wrote it on thread `{thread}` up to checkpoint {checkpoint}")
        }
        None => "the first input does not write it".to_owned(),
    }
}

fn to(channel: Option<&str>) -> String {
    channel.map_or_else(String::new, |channel| format!(" to `{channel}`"))
}

pub(crate) fn names(nodes: &[NodeName]) -> String {
    list(nodes)
}

superstep_state::debug_by_chain!(RunError);
