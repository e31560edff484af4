//! Outcomes and states of threads of graphs of any state.
//!
//! Start at [`JsonOutcome`].

use std::{fmt, sync::Arc};

use serde_json::{Map, Value};
use superstep_checkpoint::CheckpointMeta;
use superstep_engine::NodeName;

use crate::{
    CheckpointId, CompiledGraph, Interrupt, Outcome, RunError, State, Status, ThreadId,
    api::state::{StateSnapshot, TaskSnapshot},
    run::channel_values::values,
};

/// The result of a run that did not fail; an [`Outcome`] whose state becomes JSON on request.
#[derive(Clone, Debug)]
pub struct JsonOutcome {
    /// The status of the run.
    pub status: Status,
    /// The last checkpoint; `None` without a checkpointer.
    pub checkpoint: Option<CheckpointId>,
    /// The pending interrupts, if it was interrupted, or cancelled with some pending.
    pub interrupts: Vec<Interrupt>,
    /// The reason of the drain, if it was drained.
    pub drained: Option<String>,
    /// The reason of the [failure](CompiledGraph::failed_end), if it completed with a state that is one.
    pub failed_end: Option<String>,
    /// The state.
    pub state: AnyState,
}

impl JsonOutcome {
    pub(super) fn new<S: State>(graph: &CompiledGraph<S>, outcome: Outcome<S>) -> Self {
        let Outcome { state, status, checkpoint, interrupts, drained } = outcome;
        let failed_end = graph.failed_end(&state).filter(|_| status == Status::Completed);
        Self { status, checkpoint, interrupts, drained, failed_end, state: AnyState::new(state) }
    }
}

/// The state of a thread at a checkpoint; a [`StateSnapshot`] whose state becomes JSON on request.
#[derive(Clone, Debug)]
pub struct JsonSnapshot {
    /// The pending nodes. Empty if the thread is finished, and if it does not exist.
    pub next: Vec<NodeName>,
    /// The checkpoint's tasks.
    pub tasks: Vec<JsonTask>,
    /// The checkpoint; `None` if the thread does not exist.
    pub checkpoint: Option<CheckpointMeta>,
    /// The state.
    pub state: AnyState,
}

/// A task of a checkpoint.
#[derive(Clone, Debug)]
pub struct JsonTask {
    /// The node of the task.
    pub node: NodeName,
    /// `true` if the task is finished.
    pub is_done: bool,
    /// The update of the task in its JSON form, if it is finished.
    pub result: Option<Value>,
    /// The error of the task, if it failed.
    pub error: Option<String>,
    /// The pending interrupts of the task.
    pub interrupts: Vec<Interrupt>,
    /// The stored threads of the graphs that it called, if it is pending.
    pub subgraphs: Vec<ThreadId>,
}

impl JsonSnapshot {
    /// # Errors
    /// [`RunError::Unstorable`] for the update of a task that has no JSON form.
    pub(super) fn new<S: State>(snapshot: StateSnapshot<S>) -> Result<Self, RunError> {
        let StateSnapshot { values, next, tasks, checkpoint, .. } = snapshot;
        let task = |task: TaskSnapshot<S>| {
            let TaskSnapshot { node, result, error, interrupts, subgraphs } = task;
            let result = result.map(serde_json::to_value).transpose().map_err(|source| {
                RunError::Unstorable { what: format!("the update of node `{node}`"), source }
            })?;
            Ok(JsonTask { node, is_done: result.is_some(), result, error, interrupts, subgraphs })
        };
        let tasks = tasks.into_iter().map(task).collect::<Result<_, RunError>>()?;
        Ok(Self { next, tasks, checkpoint, state: AnyState::new(values) })
    }

    /// Returns the questions that wait for an answer.
    pub fn interrupts(&self) -> impl Iterator<Item = &Interrupt> {
        self.tasks.iter().flat_map(|task| &task.interrupts)
    }

    /// Returns whether questions wait for an answer, and no pending task is without one.
    pub fn only_waits(&self) -> bool {
        let mut pending = self.tasks.iter().filter(|task| !task.is_done);
        self.interrupts().next().is_some() && pending.all(|task| !task.interrupts.is_empty())
    }
}

/// A state of any type, which becomes JSON on request.
#[derive(Clone)]
pub struct AnyState(Arc<dyn Fn() -> Result<Map<String, Value>, RunError> + Send + Sync>);

impl AnyState {
    fn new<S: State>(state: S) -> Self {
        Self(Arc::new(move || values(&state)))
    }

    /// Returns the stored channels with their values.
    ///
    /// # Errors
    /// [`RunError::Unstorable`].
    pub fn values(&self) -> Result<Map<String, Value>, RunError> {
        (self.0)()
    }
}

impl fmt::Debug for AnyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyState").finish_non_exhaustive()
    }
}
