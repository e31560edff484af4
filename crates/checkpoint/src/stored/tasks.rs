//! The records of a checkpoint's tasks.
//!
//! Start at [`TaskReader`].

use std::collections::BTreeMap;

use superstep_state::RawJson;

use super::{
    EffectSlots, add_applied, source,
    thread::{Counts, StoredThread},
};
use crate::{CheckpointError, CheckpointId, Source, TaskRecord};

/// A row of a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskRow<'a> {
    pub slot: i64,
    pub record: &'a [u8],
    /// The share of its checksum in the sum of the checkpoint.
    pub share: i64,
    /// The checksum fits.
    pub is_intact: bool,
}

/// Collects the rows of a checkpoint's tasks, in the order of their slots.
pub struct TaskReader<'a> {
    thread: StoredThread<'a>,
    id: CheckpointId,
    tasks: Vec<(u32, TaskRecord)>,
    /// Results of effects in rows of their own, which come before those of their tasks.
    effects: BTreeMap<u32, BTreeMap<String, RawJson>>,
    sum: i64,
}

impl<'a> TaskReader<'a> {
    /// Begins with the tasks of a checkpoint.
    pub fn new(thread: StoredThread<'a>, id: CheckpointId) -> Self {
        Self { thread, id, tasks: Vec::new(), effects: BTreeMap::new(), sum: 0 }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`CheckpointError::Corrupt`] if the row is damaged.
    pub fn push(&mut self, row: &TaskRow<'_>) -> Result<(), CheckpointError> {
        let of_effects = EffectSlots::task_of(row.slot);
        let slot = of_effects.map_or(row.slot, i64::from);
        let mut record = self.thread.record(self.id, slot, row.record, row.is_intact)?;
        self.sum = self.sum.wrapping_add(row.share);
        if let Some(task) = of_effects {
            self.effects.entry(task).or_default().extend(record.into_once());
            return Ok(());
        }
        let slot =
            u32::try_from(slot).map_err(|cause| self.thread.damaged(self.id, "slot of a task", cause))?;
        if let (Some(more), Some(once)) = (self.effects.remove(&slot), record.once_mut()) {
            once.extend(more);
        }
        self.tasks.push((slot, record));
        Ok(())
    }

    /// Returns the records. `sum` is the stored sum of the checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError::Corrupt`] if a row is missing.
    pub fn finish(self, sum: i64) -> Result<Vec<(u32, TaskRecord)>, CheckpointError> {
        if self.sum != sum || !self.effects.is_empty() {
            return Err(self.thread.missing(self.id, "the record of a task"));
        }
        Ok(self.tasks)
    }
}

/// A row of a checkpoint that may follow another.
#[derive(Clone, Copy, Debug)]
pub struct ChildRow<'a> {
    pub id: CheckpointId,
    pub parent: Option<CheckpointId>,
    pub source: &'a [u8],
    pub applied: &'a [u8],
    /// The checksum of the row without its content fits.
    pub is_intact: bool,
    /// The checksum of the content fits.
    pub has_intact_content: bool,
}

/// Adds the tasks without records that the newest superstep after a checkpoint folded.
pub struct ChildReader<'a> {
    thread: StoredThread<'a>,
    parent: CheckpointId,
    tasks: Vec<(u32, TaskRecord)>,
    has_applied: bool,
    has_next: bool,
}

impl<'a> ChildReader<'a> {
    /// Begins with the tasks of a checkpoint. `branched` is the number of the thread's rows that are on branches.
    ///
    /// # Errors
    /// [`CheckpointError::Corrupt`] if rows on branches are missing.
    pub fn new(
        thread: StoredThread<'a>,
        counts: &Counts,
        branched: u64,
        parent: CheckpointId,
        tasks: Vec<(u32, TaskRecord)>,
    ) -> Result<Self, CheckpointError> {
        if branched != counts.branched {
            return Err(thread.lost_checkpoints());
        }
        Ok(Self { thread, parent, tasks, has_applied: false, has_next: false })
    }

    /// Adds a row: the checkpoint with the next id, or one on a branch, newest first.
    ///
    /// # Errors
    /// [`CheckpointError::Corrupt`] if a row that counts is damaged.
    pub fn push(&mut self, row: &ChildRow<'_>) -> Result<(), CheckpointError> {
        let is_next = row.id == self.next_id();
        let follows = row.parent == Some(self.parent);
        self.has_next |= is_next;
        if self.has_applied || (row.is_intact && !follows) {
            return Ok(());
        }
        // A damaged checkpoint does not affect the one before it, as long as the columns that are read here are plausible.
        let is_plausible = row.is_intact || (is_next && follows && source(row.source).is_ok());
        if !is_plausible || !row.has_intact_content {
            return Err(self.thread.changed(row.id, "its row"));
        }
        if row.source == Source::Loop.as_str().as_bytes() {
            add_applied(&mut self.tasks, self.thread.applied(row.id, row.applied)?);
            self.has_applied = true;
        }
        Ok(())
    }

    /// Returns the next checkpoint if it was not among the rows. It must have been pruned.
    pub fn missing_next(&self) -> Option<CheckpointId> {
        (!self.has_next).then(|| self.next_id())
    }

    /// Returns the records of the tasks.
    pub fn finish(self) -> Vec<(u32, TaskRecord)> {
        self.tasks
    }

    fn next_id(&self) -> CheckpointId {
        CheckpointId(self.parent.0 + 1)
    }
}
