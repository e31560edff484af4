//! Posts to a thread, as its tasks read them.

use crate::{
    CheckpointError, Cx, Posted,
    journal::inbox::{inbox_of, read},
};

impl Cx {
    /// What was put into the thread's inbox after the item with this number, oldest first; 0 is for all. Nothing without a
    /// checkpointer, and nothing in a subgraph, which has a thread of its own.
    ///
    /// Nothing is taken out: keep the number of the last one in a channel, so that it is read once on each branch of the
    /// thread, and again by a node that is run again.
    ///
    /// # Errors
    /// What the checkpointer reports.
    pub async fn inbox(&self, after: u64) -> Result<Vec<Posted>, CheckpointError> {
        let Some((checkpointer, thread)) = &self.run.standing.place else { return Ok(Vec::new()) };
        self.needs_records();
        let last = self.run.tape.inbox(self.task);
        let mut found = match last {
            Some(last) if last <= after => Vec::new(),
            _ => read(&**checkpointer, &inbox_of(thread), after).await?,
        };
        found.retain(|posted| last.is_none_or(|last| posted.number <= last));
        if let Some(posted) = found.last() {
            self.run.tape.found(self.task, posted.number);
        }
        Ok(found)
    }
}
