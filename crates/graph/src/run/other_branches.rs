//! Questions that wait on another branch than that of the run.
//!
//! Start at [`Driver::located`].

use std::collections::BTreeSet;

use superstep_checkpoint::{History, Source};

use super::{
    driver::{Begin, Driver},
    external_command::questions,
};
use crate::{CheckpointId, RunError, State};

/// The number of checkpoints that are read in search of a question.
const READ: usize = 1_000;
/// The number of branches whose questions are read.
const BRANCHES: usize = 100;

impl<S: State> Driver<S> {
    /// Adds to the error of an unknown answer the checkpoint where its question waits, if it is on another branch.
    /// `at` is the checkpoint at which the run was to begin.
    pub(super) async fn located(
        &self,
        begun: Result<Begin, RunError>,
        at: Option<CheckpointId>,
    ) -> Result<Begin, RunError> {
        match begun {
            Err(RunError::UnknownInterrupt { name, waiting, .. }) => {
                let elsewhere = self.waits_at(&name, at).await?;
                Err(RunError::UnknownInterrupt { name, waiting, elsewhere })
            }
            begun => begun,
        }
    }

    /// Returns the newest end of a branch, or else the checkpoint `at`, where a question with this id or key waits.
    async fn waits_at(&self, name: &str, at: Option<CheckpointId>) -> Result<Option<CheckpointId>, RunError> {
        let Some(writer) = &self.writer else { return Ok(None) };
        let (checkpointer, thread) = writer.stored_in();
        let read = checkpointer.history(thread, History { limit: Some(READ), ..History::default() }).await?;
        // A fork asks anew, and leaves the question of its parent open.
        let next = read.iter().filter(|meta| meta.source != Source::Fork);
        let parents: BTreeSet<CheckpointId> = next.filter_map(|meta| meta.parent).collect();
        let ends = read.iter().filter(|meta| !meta.control.is_finished() && !parents.contains(&meta.id));
        for id in ends.map(|meta| meta.id).take(BRANCHES).chain(at) {
            let Some(loaded) = checkpointer.load(thread, Some(id)).await? else { continue };
            let records = loaded.tasks.iter().map(|(slot, record)| (*slot, record));
            let pending = questions(&self.graph.topology, thread, &loaded.meta, records);
            if pending
                .iter()
                .any(|(_, question)| question.interrupt.id == name || question.interrupt.key == name)
            {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }
}
