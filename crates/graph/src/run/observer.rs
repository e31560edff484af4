//! The layer between a run and what is recorded of it or compared with it.
//!
//! Start at [`RunObserver`].

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use superstep_checkpoint::{Commit, RecordedTarget};
use superstep_engine::{ChannelSet, Run, RunLimits, Task};
use superstep_state::StoredUpdate;

use super::superstep::{FinishedTask, Refused, Stop, TaskResult};
use crate::{
    NodeError, NodeFailure, RunError, State,
    compiled::graph::Inner,
    node::{cache::Lookup, cx::RunCx, output::Written},
};

/// An observer's work that the driver waits for; `None` if there is nothing to wait for.
pub(super) type Wait<'a> = Option<BoxFuture<'a, Result<(), Stop>>>;

/// Observes a run, and may replace what its tasks do.
///
/// ```text
/// begin ─▶ ( before_task ─▶ after_task ─▶ before_store )* ─▶ before_commit ─▶ after_commit ─▶ … ─▶ ended
/// ```
///
/// The commit of an input precedes `begin`. The observers are:
/// - [`Plain`] of a plain run;
/// - [`Recording`](super::recording::Recording) of a recorded run;
/// - [`Replaying`](super::replaying::Replaying) of a replay;
/// - [`Rerecording`](super::rerecording::Rerecording) of a case that is recorded again;
/// - [`Probing`](super::probing::Probing) of a node test.
pub(super) trait RunObserver<S: State>: Send + Sync {
    /// Called before the tasks of the first superstep are planned; may change the limits of the run.
    fn begin<'a>(&'a self, _run: RunView<'a, S>, _limits: &mut RunLimits) -> Wait<'a> {
        None
    }

    /// Called before an attempt of a task; decides whether its node runs.
    fn before_task(&self, _run: RunView<'_, S>, _task: Task) -> TaskStart<S> {
        TaskStart::Run { counts: None }
    }

    /// Returns whether a task may end with a result from the cache of its node.
    fn reads_cache(&self) -> bool {
        true
    }

    /// Called when an attempt has ended; may replace its result.
    ///
    /// # Errors
    /// [`Stop`] if the superstep cannot continue with this result.
    fn after_task(&self, _run: RunView<'_, S>, _task: Task, _result: &mut TaskResult<S>) -> Result<(), Stop> {
        Ok(())
    }

    /// Called before the update of a finished task is stored; may add to it, if the run has a thread. `cached` has the targets of an update
    /// that comes from the cache of its node.
    ///
    /// # Errors
    /// [`RunError::Encode`] if what it adds cannot be stored.
    fn before_store(
        &self,
        _run: RunView<'_, S>,
        _task: Task,
        _cached: Option<Vec<RecordedTarget>>,
        _update: Option<&mut StoredUpdate>,
    ) -> Result<(), RunError> {
        Ok(())
    }

    /// Called before a checkpoint is stored; may change it.
    fn before_commit<'a>(&'a self, _run: RunView<'a, S>, _new: &'a mut Commit) -> Wait<'a> {
        None
    }

    /// Called when an input or a superstep is stored.
    fn after_commit<'a>(&'a self, _run: RunView<'a, S>) -> Wait<'a> {
        None
    }

    /// Called once, at the end of the run, with the superstep that was refused if there is one.
    fn ended(&self, _run: RunView<'_, S>, _refused: Option<&Refused>) {}
}

/// The start of an attempt.
pub(super) enum TaskStart<S: State> {
    /// The node runs.
    Run {
        /// The attempt and the remaining supersteps that the node reads in place of those of this run.
        counts: Option<(u32, u32)>,
    },
    /// The task ends with this result, and its node does not run.
    Ended(Result<Written<S>, NodeError>, Lookup),
}

/// The parts of a driver that an observer reads.
pub(super) struct RunView<'a, S: State> {
    pub(super) graph: &'a Inner<S>,
    pub(super) cx: &'a RunCx,
    pub(super) state: &'a S,
    /// The finished tasks of this superstep, by slot.
    pub(super) done: &'a [Option<FinishedTask<S>>],
    /// The failures that error handlers of this superstep handle, by slot.
    pub(super) failures: &'a BTreeMap<u32, Arc<NodeFailure>>,
    /// The channels that this superstep wrote.
    pub(super) written: ChannelSet,
    /// `true` if another graph called this one.
    pub(super) is_nested: bool,
    /// `true` if the run has a thread.
    pub(super) is_stored: bool,
    /// `true` if the backend retains the data that restores the state of each checkpoint as it was.
    pub(super) can_restore: bool,
    /// The plan, while a superstep is committed.
    pub(super) plan: Option<&'a Run>,
}

impl<S: State> Clone for RunView<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: State> Copy for RunView<'_, S> {}

/// The observer of a run of which nothing is recorded.
pub(super) struct Plain;

impl<S: State> RunObserver<S> for Plain {}
