//! The end of a task's attempt.

use superstep_engine::Task;

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
