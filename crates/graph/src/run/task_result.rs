//! The result of a task, from the end of its attempt to the end of its superstep.

use superstep_engine::{NodeIndex, Task};
use superstep_state::{RawJson, StoredUpdate};

use crate::{
    NodeError, State,
    journal::interrupts::WaitReason,
    node::{cache::Lookup, output::Written},
};

/// The end of a task's attempt.
pub(crate) struct TaskEnd<S: State> {
    pub(crate) task: Task,
    pub(crate) result: TaskResult<S>,
}

/// The result of an attempt.
pub(crate) enum TaskResult<S: State> {
    Finished(Written<S>, Lookup),
    Failed(NodeError),
    Interrupted(Vec<WaitReason>),
}

/// A finished task of an incomplete superstep.
pub(super) struct FinishedTask<S: State> {
    pub(super) node: NodeIndex,
    /// `None` when it is folded, which happens early for a task that is alone in its superstep.
    pub(super) update: Option<S::Update>,
    /// The update as it is stored; `None` without a checkpointer.
    pub(super) stored: Option<StoredUpdate>,
    /// The items that it sends to workers.
    pub(super) items: Vec<RawJson>,
    pub(super) recorded: bool,
}
