//! A thread of a database, whose rows are decoded. No row is trusted: any program may have changed it.
//!
//! Start at [`StoredThread`].

use std::{error::Error, fmt};

use superstep_engine::NodeName;

use super::{Applied, applied, record, source};
use crate::{CheckpointError, CheckpointId, CheckpointMeta, TaskRecord, ThreadId};

/// The cause of damage.
pub type Damage = Box<dyn Error + Send + Sync>;

/// The cause of damage to a row whose checksum differs.
pub const CHECKSUM: &str = "the row was changed: its checksum does not match";

/// A thread with its place, for the errors of damaged rows.
#[derive(Clone, Copy)]
pub struct StoredThread<'a> {
    pub name: &'a ThreadId,
    /// The database, such as "database `x`".
    pub place: &'a (dyn fmt::Display + Sync),
    /// The object to restore from a backup, such as "file".
    pub backup: &'static str,
}

/// The counts in the row of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub head: CheckpointId,
    /// The number of checkpoints, which is less than the id of the head if some were pruned.
    pub checkpoints: u64,
    /// The number of checkpoints that do not follow the one committed before them.
    pub branched: u64,
}

impl Counts {
    /// Returns whether no checkpoint was ever pruned.
    pub fn is_whole(&self) -> bool {
        self.checkpoints == self.head.0
    }

    /// Returns whether the thread once had a checkpoint with this id.
    pub fn had(&self, id: CheckpointId) -> bool {
        id.0 > 0 && id <= self.head
    }

    /// Returns whether a checkpoint may have been pruned. It was if the history lacks it.
    pub fn may_lack(&self, id: CheckpointId) -> bool {
        !self.is_whole() && id < self.head
    }
}

/// A row of a checkpoint without its content.
#[derive(Clone, Copy, Debug)]
pub struct MetaRow<'a> {
    pub id: CheckpointId,
    pub parent: Option<CheckpointId>,
    pub source: &'a [u8],
    pub created_ms: i64,
    pub control: &'a [u8],
    pub metadata: Option<&'a [u8]>,
    /// The column, which must agree with `parent_is_lost`.
    pub parent_pruned: bool,
    /// The parent has no row.
    pub parent_is_lost: bool,
    /// The checksum fits.
    pub is_intact: bool,
}

impl MetaRow<'_> {
    /// Creates a row that is not intact, so that its columns need not be read.
    pub fn damaged(id: CheckpointId) -> Self {
        Self {
            id,
            parent: None,
            source: &[],
            created_ms: 0,
            control: &[],
            metadata: None,
            parent_pruned: false,
            parent_is_lost: false,
            is_intact: false,
        }
    }
}

impl StoredThread<'_> {
    /// Decodes the metadata of a checkpoint.
    pub fn meta(&self, row: &MetaRow<'_>) -> Result<CheckpointMeta, CheckpointError> {
        let MetaRow { id, parent, created_ms, .. } = *row;
        if !row.is_intact {
            return Err(self.changed(id, "its row"));
        }
        let damaged = |part| move |cause: serde_json::Error| self.damaged(id, part, cause);
        let source = source(row.source).map_err(|cause| self.damaged(id, "source", cause))?;
        let control = serde_json::from_slice(row.control).map_err(damaged("control"))?;
        let metadata = row.metadata.map_or_else(|| Ok(Default::default()), serde_json::from_slice);
        let metadata = metadata.map_err(damaged("metadata"))?;
        if row.parent_pruned != row.parent_is_lost {
            return Err(self.missing(id, "its parent"));
        }
        let parent_pruned = row.parent_pruned;
        Ok(CheckpointMeta { id, parent, parent_pruned, source, control, created_ms, metadata })
    }

    /// Decodes the list of tasks that a checkpoint applied.
    pub(super) fn applied<'r>(
        &self,
        id: CheckpointId,
        json: &'r [u8],
    ) -> Result<Vec<Applied<'r>>, CheckpointError> {
        applied(json).map_err(|cause| self.damaged(id, "list of applied tasks", cause))
    }

    /// Decodes the record of a task of a checkpoint.
    pub fn record(
        &self,
        id: CheckpointId,
        slot: i64,
        json: &[u8],
        is_intact: bool,
    ) -> Result<TaskRecord, CheckpointError> {
        if !is_intact {
            return Err(self.changed(id, &format!("the row of its task {slot}")));
        }
        record(json).map_err(|cause| self.damaged(id, "record of a task", cause))
    }

    /// Creates the error of a checkpoint with a part that this program did not write.
    pub fn damaged(&self, id: CheckpointId, part: &str, cause: impl Into<Damage>) -> CheckpointError {
        let part = format!("superstep did not write this {part}");
        self.unreadable(id, &part, cause.into())
    }

    /// Creates the error of a checkpoint with a row that was changed since it was stored.
    pub fn changed(&self, id: CheckpointId, part: &str) -> CheckpointError {
        self.unreadable(id, part, CHECKSUM.into())
    }

    fn unreadable(&self, id: CheckpointId, part: &str, cause: Damage) -> CheckpointError {
        let Self { name, place, backup } = self;
        let what = format!(
            "checkpoint {id} of thread `{name}` in {place} is damaged: {part}; resume from an older checkpoint, or restore \
             the {backup} from a backup"
        );
        CheckpointError::Corrupt { what, source: Some(cause) }
    }

    /// Creates the error of a checkpoint with a dangling reference.
    pub fn missing(&self, id: CheckpointId, part: &str) -> CheckpointError {
        let Self { name, place, backup } = self;
        let what = format!(
            "checkpoint {id} of thread `{name}` in {place} is damaged: {part} is missing; restore the {backup} from a backup"
        );
        CheckpointError::Corrupt { what, source: None }
    }

    /// Creates the error of a thread whose checkpoints are not as many as its own row states.
    pub fn lost_checkpoints(&self) -> CheckpointError {
        let Self { name, place, backup } = self;
        let what = format!(
            "thread `{name}` in {place} is damaged: checkpoints are missing, or too many; restore the {backup} from a backup"
        );
        CheckpointError::Corrupt { what, source: None }
    }
}

/// Returns the slots and nodes of applied tasks.
pub(super) fn named(applied: &[Applied<'_>]) -> Vec<(u32, NodeName)> {
    applied.iter().map(|task| (task.slot, task.node.as_ref().into())).collect()
}
