//! The checkpoints at which long runs began, which alone have the metadata of those runs.
//!
//! Start at [`Origins`].

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use superstep_graph::{CheckpointId, checkpoint::CheckpointMeta};

/// The number of runs that are remembered.
const RUNS: usize = 1_000;

/// The runs whose origins were found, newest last. Without them each read of a late checkpoint would read all before it.
#[derive(Default)]
pub(crate) struct Origins(Mutex<VecDeque<Run>>);

/// A run whose checkpoints have ids without a gap.
struct Run {
    thread: String,
    first: CheckpointId,
    /// The time of the first one, by which a thread differs from a later one of the same name.
    first_ms: i64,
    last: CheckpointId,
}

impl Origins {
    /// Returns the first checkpoint of the run that made one, if it is known. It may have been deleted since.
    pub(crate) fn find(&self, thread: &str, at: CheckpointId) -> Option<CheckpointId> {
        let runs = self.lock();
        let known = runs.iter().find(|run| run.thread == thread && run.first <= at && at <= run.last);
        known.map(|run| run.first)
    }

    /// Returns whether a checkpoint is the first of a run that is remembered; forgets one that it is not.
    pub(crate) fn check(&self, thread: &str, first: CheckpointId, found: Option<&CheckpointMeta>) -> bool {
        let mut runs = self.lock();
        runs.retain(|run| {
            run.thread != thread
                || run.first != first
                || found.is_some_and(|found| found.id == first && found.created_ms == run.first_ms)
        });
        runs.iter().any(|run| run.thread == thread && run.first == first)
    }

    /// Remembers a run from its first checkpoint to at least this one.
    pub(crate) fn add(&self, thread: &str, first: &CheckpointMeta, last: CheckpointId) {
        let mut runs = self.lock();
        let known = runs.iter().position(|run| run.thread == thread && run.first == first.id);
        let known = known.and_then(|at| runs.remove(at)).filter(|run| run.first_ms == first.created_ms);
        let last = known.map_or(last, |run| run.last.max(last));
        if runs.len() == RUNS {
            runs.pop_front();
        }
        runs.push_back(Run { thread: thread.to_owned(), first: first.id, first_ms: first.created_ms, last });
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
