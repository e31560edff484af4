//! The recorder of a called graph, which belongs to its caller.
//!
//! Start at [`ParentRecorder`].

use std::sync::Arc;

use superstep_checkpoint::internal::SEPARATOR;
use superstep_engine::TaskId;

use crate::journal::recorder::{Recorded, Recorder, ReplayMode};

/// The recorder of a calling task, for the tasks of a graph without storage. If the caller has no storage
/// either, it is that of the innermost outer task with storage.
#[derive(Clone)]
pub(crate) struct ParentRecorder {
    pub(crate) recorder: Arc<Recorder>,
    /// The time of the checkpoint at which the task runs.
    pub(crate) since_ms: i64,
    pub(crate) task: TaskId,
    /// The tasks between the recording one and the call, outermost first.
    pub(crate) way: Vec<String>,
    pub(crate) key: String,
}

impl ParentRecorder {
    /// Creates the recorder for a graph called by `task` of this one.
    pub(crate) fn inside(&self, task: TaskId, key: &str) -> Self {
        let way = self.way.iter().cloned().chain([self.name(task)]).collect();
        Self { recorder: self.recorder.clone(), way, key: key.to_owned(), ..*self }
    }

    fn name(&self, task: TaskId) -> String {
        format!("{}/{}.{}", self.key, task.step, task.slot)
    }

    /// Returns the name of a task with its path. Keys of calls cannot contain the separator.
    fn whole_name(&self, task: TaskId) -> String {
        let mut names = self.way.clone();
        names.push(self.name(task));
        names.join(&SEPARATOR.to_string())
    }

    /// Returns the recorded inputs of a task.
    fn find(&self, recorded: &Recorded, task: TaskId) -> Option<Recorded> {
        if let Some(found) = recorded.inner(&self.whole_name(task)) {
            return Some(found);
        }
        // Older programs recorded it with the direct caller.
        let caller = self.way.iter().try_fold(recorded, |recorded, name| recorded.inner.get(name));
        caller?.inner.get(&self.name(task)).cloned()
    }

    pub(crate) fn mode(&self, task: TaskId, live: bool) -> ReplayMode {
        match self.recorder.mode(self.task) {
            ReplayMode::Recorded(recorded) | ReplayMode::Live(recorded) => {
                match self.find(&recorded, task).map(|recorded| Arc::new(recorded.into())) {
                    Some(recorded) if live => ReplayMode::Live(recorded),
                    Some(recorded) => ReplayMode::Recorded(recorded),
                    // The task did not complete, or an older program recorded it.
                    None => ReplayMode::Unknown,
                }
            }
            other => other,
        }
    }

    /// Stores the recorded inputs of a task, even if they are empty, so that they are known.
    pub(crate) fn record_inputs(&self, task: TaskId, inputs: Recorded) {
        let name = self.whole_name(task);
        self.recorder.record_inputs(self.task, |above| {
            above.add_inner(&name, inputs);
        });
    }
}
