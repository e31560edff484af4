//! What a run and its driver say to each other.
//!
//! Start at [`Output`] and [`Input`].

use std::time::Duration;

use crate::{ChannelSet, NodeIndex, NodeName, RetryPolicy, TaskId};

/// What the driver has to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Run a task, after its delay, and report how it ended.
    Execute(Task),
    /// Fold the writes of the tasks in the order of [`Commit::order`], store the state together with [`Run::control`](crate::Run::control) in
    /// one transaction, then say [`Input::Committed`].
    Commit(Commit),
    /// Drop a task where it stands, and report nothing of it; the run is cancelled and waits for others.
    Drop(TaskId),
    /// The run is complete.
    Done,
    /// The run stopped between two supersteps because it was asked to; another one runs the rest.
    Drained,
    /// The run stopped because it was cancelled; drop the tasks that still run.
    Cancelled,
    /// The run waits for someone outside: tasks are interrupted, or it came to a breakpoint.
    Suspended,
    /// The run cannot go on; drop the tasks that still run. The last commit stands.
    Fail(Failure),
}

/// One attempt of one task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// Which task.
    pub id: TaskId,
    /// The node it runs.
    pub node: NodeIndex,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// How long to wait before it starts.
    pub delay: Duration,
}

/// The end of a superstep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The superstep.
    pub step: i64,
    /// How many tasks it had.
    pub width: u32,
    /// How many tasks the next one has.
    pub next: u32,
}

impl Commit {
    /// The tasks in the order in which their writes are folded.
    pub fn order(self) -> impl ExactSizeIterator<Item = TaskId> {
        (0..self.width).map(move |slot| TaskId { step: self.step, slot })
    }
}

/// What the driver reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A task is done.
    Finished(Finished),
    /// A task failed.
    Failed {
        /// The task.
        task: TaskId,
        /// How it is tried again; `None` if that makes no sense.
        retry: Option<RetryPolicy>,
        /// The share of the jitter to wait, in `0.0..=1.0`.
        chance: f64,
    },
    /// A task asks someone outside. It runs again once the answer is there, in another run.
    Interrupted(TaskId),
    /// A task stopped where it stands, because it heard that the run is to stop. It runs again in another run.
    Stopped(TaskId),
    /// The commit is stored.
    Committed,
    /// Someone wants the run to stop.
    Cancel,
    /// Someone wants the run to stop once the present superstep is committed.
    Drain,
}

/// A task and what it left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The task.
    pub task: TaskId,
    /// What it did.
    pub report: Report,
}

/// What the engine has to know of a finished task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The channels it wrote.
    pub written: ChannelSet,
    /// Those of them that nobody else may write in the same superstep.
    pub exclusive: ChannelSet,
    /// Where it goes itself, then where its conditional edges and fan-outs lead, in their order.
    pub targets: Vec<Target>,
}

/// Where a finished task leads, beside plain edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a node.
    Node(NodeIndex),
    /// To the end of this branch.
    End,
    /// To a worker, with an item that the driver knows.
    Send(NodeIndex),
}

/// Why a run cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A task failed for good.
    Task(TaskId),
    /// Two tasks wrote a channel that takes one write per superstep.
    Conflict {
        /// The channel's position.
        channel: usize,
        /// The task that is folded first.
        first: TaskId,
        /// The other one.
        second: TaskId,
    },
    /// As many supersteps ran as were allowed, and the thread is not finished.
    StepLimit {
        /// What would have run.
        next: Vec<NodeName>,
    },
}

/// A driver that breaks the contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The task is not running.
    #[error("task {} of superstep {} is not running", .0.slot, .0.step)]
    NotRunning(TaskId),
    /// Nothing waits to be committed.
    #[error("no commit is pending")]
    NoCommit,
    /// The run is over.
    #[error("the run is over")]
    Over,
    /// A conditional edge was taken that the graph does not have.
    #[error("node `{node}` was routed to `{to}`, to which it has no conditional edge")]
    UnknownRoute {
        /// The node that was left.
        node: NodeName,
        /// Where it was routed to.
        to: String,
    },
    /// An item was sent to a worker that the node does not name.
    #[error("node `{node}` sent an item to {to}, to which it may not send; declare it with `add_sends`")]
    UnknownSend {
        /// The node that was left.
        node: NodeName,
        /// The worker.
        to: String,
    },
    /// A node that chooses among routes took none, and nothing else leads on.
    #[error(
        "node `{0}` chooses where to go and went nowhere, and no edge leaves it; go to a route, or to one that leads to END"
    )]
    NoGoto(NodeName),
    /// A node with conditional edges chose none of them.
    #[error("node `{0}` has conditional edges and took none; return a route, or route to END")]
    NoRoute(NodeName),
}
