//! The protocol between a run and its driver.
//!
//! Start at [`Output`] and [`Input`].

use std::{fmt, time::Duration};

use crate::{ChannelSet, NodeIndex, NodeName, RetryPolicy, TaskId};

/// The next action of the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Run a task, after its delay, and report its result.
    Execute(Task),
    /// Fold the writes of the tasks in the order of [`SuperstepEnd::order`] and store the state together with
    /// [`Run::control`](crate::Run::control) in one transaction. Then send [`Input::Committed`].
    Commit(SuperstepEnd),
    /// Drop a running task without a report; the run is cancelled and waits for other tasks.
    Drop(TaskId),
    /// The run is complete.
    Done,
    /// The run stopped between two supersteps because it was drained; another run executes the rest.
    Drained,
    /// The run stopped because it was cancelled; drop the tasks that still run.
    Cancelled,
    /// The run waits for an external answer: tasks are interrupted, or it reached a breakpoint.
    Suspended,
    /// The run failed; drop the tasks that still run. The last commit remains valid.
    Fail(Failure),
}

/// One attempt of one task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// The task.
    pub id: TaskId,
    /// The node it runs.
    pub node: NodeIndex,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The delay before it starts.
    pub delay: Duration,
}

/// The end of a superstep, which is to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperstepEnd {
    /// The superstep.
    pub step: i64,
    /// The number of tasks of this superstep.
    pub width: u32,
    /// The number of tasks of the next superstep.
    pub next: u32,
}

impl SuperstepEnd {
    /// Returns the tasks in the order in which their writes are folded.
    pub fn order(self) -> impl ExactSizeIterator<Item = TaskId> {
        (0..self.width).map(move |slot| TaskId { step: self.step, slot })
    }
}

/// A report of the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A task is done.
    Finished(Finished),
    /// A task failed.
    Failed {
        /// The task.
        task: TaskId,
        /// The retry policy; `None` if a retry makes no sense.
        retry: Option<RetryPolicy>,
        /// The share of the jitter, in `0.0..=1.0`.
        jitter_share: f64,
    },
    /// A task was interrupted. It runs again in another run, when the answer is available.
    Interrupted(TaskId),
    /// A task stopped before its end because the run is stopping. It runs again in another run.
    Stopped(TaskId),
    /// The commit is stored.
    Committed,
    /// A request to cancel the run.
    Cancel,
    /// A request to stop after the current superstep is committed.
    Drain,
}

/// A finished task with its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The task.
    pub task: TaskId,
    /// The task's report.
    pub report: Report,
}

/// The engine's view of a finished task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The channels it wrote.
    pub written: ChannelSet,
    /// The written channels that accept one write per superstep.
    pub exclusive: ChannelSet,
    /// The targets of its own command, then those of its conditional edges and fan-outs, in declaration
    /// order.
    pub targets: Vec<Target>,
}

/// A target of a finished task, apart from plain edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a node.
    Node(NodeIndex),
    /// The end of this branch.
    End,
    /// A worker, with an item that only the driver knows.
    Send(NodeIndex),
}

/// The reason why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A task permanently failed.
    Task(TaskId),
    /// Two tasks wrote a channel that accepts one write per superstep.
    Conflict {
        /// The channel's position.
        channel: usize,
        /// The task that is folded first.
        first: TaskId,
        /// The other one.
        second: TaskId,
    },
    /// The run reached its maximum number of supersteps, and the thread is not finished.
    StepLimit {
        /// The nodes that would have run.
        next: Vec<NodeName>,
    },
}

/// A violation of the driver's contract.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The task is not running.
    #[error("task {} of superstep {} is not running", .0.slot, .0.step)]
    NotRunning(TaskId),
    /// No commit is pending.
    #[error("no commit is pending")]
    NoCommit,
    /// The run is over.
    #[error("the run is over")]
    Over,
    /// A conditional edge was taken that the graph does not have.
    #[error("node `{node}` was routed to `{to}`, to which it has no conditional edge")]
    UnknownRoute {
        /// The node before the conditional edge.
        node: NodeName,
        /// The target of the route.
        to: String,
    },
    /// An item was sent to a worker that the node does not declare.
    #[error("node `{node}` sent an item to {to}, which it does not declare; declare it with `add_sends`")]
    UnknownSend {
        /// The sending node.
        node: NodeName,
        /// The worker.
        to: String,
    },
    /// A node with its own routes took none, and no edge leads on.
    #[error(
        "routing node `{0}` returned no route, and no edge leaves it; return a route, or one that leads to \
         END"
    )]
    NoGoto(NodeName),
    /// A router of a node with conditional edges chose none of them.
    #[error(
        "node `{0}` has conditional edges, and a router returned no route; return a route, or route to END"
    )]
    NoRoute(NodeName),
}

/// Writes its message, not its fields, because `main` prints this form.
impl fmt::Debug for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
