//! The inbox of a thread, for its tasks.

use superstep_checkpoint::CheckpointError;

use crate::{
    Cx,
    journal::inbox::{Posted, inbox_of, read},
};

impl Cx {
    /// Returns the items in the thread's inbox after the item with this number, oldest first; 0 returns all.
    /// Empty without a checkpointer, and in a subgraph, which has a thread of its own.
    ///
    /// Items are not removed: store the number of the last one in a channel. Each branch of the thread then
    /// reads it once, and a repeated node reads it again.
    ///
    /// # Errors
    /// Those of the checkpointer.
    pub async fn inbox(&self, after: u64) -> Result<Vec<Posted>, CheckpointError> {
        let Some((checkpointer, thread)) = &self.0.run.scope.place else { return Ok(Vec::new()) };
        self.waits("inbox", "").await;
        self.needs_records();
        let last = self.0.run.recorder.inbox(self.0.task);
        let mut found = match last {
            Some(last) if last <= after => Vec::new(),
            _ => read(&**checkpointer, &inbox_of(thread), after).await?,
        };
        found.retain(|posted| last.is_none_or(|last| posted.number <= last));
        if let Some(posted) = found.last() {
            self.0.run.recorder.found(self.0.task, posted.number);
        }
        Ok(found)
    }
}
