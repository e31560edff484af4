//! The observer that records a thread again: tasks get recorded inputs of their nodes, and nothing is compared.
//!
//! Start at [`Rerecording`].

use std::sync::Arc;

use superstep_checkpoint::{Commit, RecordedTarget, Source};
use superstep_engine::{Breakpoints, RunLimits, Task};
use superstep_state::StoredUpdate;

use super::{
    observer::{RunObserver, RunView, TaskStart, Wait},
    recording::{add_fingerprints, record},
    superstep::{Stop, TaskResult},
};
use crate::{
    NodeError, RunError, State,
    journal::{interrupts::WaitReason, recorder::ReplayMode, supply::RecordedSupply},
    node::cache::Lookup,
};

/// The observer of a run that records a thread again.
pub(super) struct Rerecording(pub(super) Arc<RecordedSupply>);

impl<S: State> RunObserver<S> for Rerecording {
    fn begin<'a>(&'a self, _: RunView<'a, S>, limits: &mut RunLimits) -> Wait<'a> {
        limits.breakpoints = Breakpoints::default();
        None
    }

    fn before_task(&self, run: RunView<'_, S>, task: Task) -> TaskStart<S> {
        let node = run.graph.topology.name(task.node);
        let is_handler = run.failures.contains_key(&task.id.slot);
        let recorded =
            if is_handler || task.attempt > 1 { self.0.current(task.id) } else { self.0.take(node, task.id) };
        let failure =
            recorded.failure_of(&run.graph.topology, task.node).map(|failure| failure.message.clone());
        let counts = Some((recorded.attempt(task.attempt), recorded.steps_left.unwrap_or_default()));
        run.cx.recorder.begin(task.id, ReplayMode::Adopted(recorded));
        match failure {
            Some(failure) => TaskStart::Ended(Err(NodeError::new(failure).fatal()), Lookup::None),
            None => TaskStart::Run { counts },
        }
    }

    fn reads_cache(&self) -> bool {
        false
    }

    fn after_task(&self, run: RunView<'_, S>, task: Task, result: &mut TaskResult<S>) -> Result<(), Stop> {
        let TaskResult::Interrupted(reasons) = result else { return Ok(()) };
        let deviation = reasons.iter().find_map(|reason| match reason {
            WaitReason::Deviated(deviation) => Some(deviation.clone()),
            _ => None,
        });
        let Some(deviation) = deviation else { return Ok(()) };
        self.0.miss(run.graph.topology.name(task.node).clone(), deviation);
        Err(Stop::Halted)
    }

    fn before_store(
        &self,
        run: RunView<'_, S>,
        task: Task,
        cached: Option<Vec<RecordedTarget>>,
        update: Option<&mut StoredUpdate>,
    ) -> Result<(), RunError> {
        let attempt = self.0.current(task.id).attempt(task.attempt);
        record(run, task, attempt, cached, update)
    }

    fn before_commit<'a>(&'a self, run: RunView<'a, S>, new: &'a mut Commit) -> Wait<'a> {
        if matches!(new.source, Source::Input | Source::Loop) {
            new.created_ms = self.0.time();
        }
        add_fingerprints(run, new);
        None
    }
}
