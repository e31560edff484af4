//! Rows and their checksums. Nothing that was read is trusted: any program may have changed it.

use superstep_checkpoint::{
    CheckpointId, ThreadId,
    internal::{Cell, row_sum},
};
use tokio_postgres::Row;

use crate::stored::{CHECKSUM, ChildRow, ContentRow, Counts, Damage, EffectSlots, MetaRow, TaskRow};

/// The share of a task's checksum in the sum of its checkpoint, as in SQL: `checksum & 4294967295`.
pub(crate) const SHARE: i64 = 0xffff_ffff;

/// A row of the table `threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadRow {
    pub(crate) key: i64,
    /// The newest checkpoint.
    pub(crate) head: i64,
    /// The number of checkpoints.
    pub(crate) checkpoints: i64,
    /// The number of checkpoints that do not follow the one committed before them.
    pub(crate) branched: i64,
    pub(crate) prunes: i64,
    pub(crate) checksum: i64,
}

/// The columns that [`ThreadRow::read`] reads.
pub(crate) const THREAD: &str = "key, head, checkpoints, branched, prunes, checksum, name";

impl ThreadRow {
    /// Returns the row of a thread without checkpoints, not yet with its checksum.
    pub(crate) fn new(key: i64) -> Self {
        Self { key, head: 0, checkpoints: 0, branched: 0, prunes: 0, checksum: 0 }
    }

    /// Reads the columns of [`THREAD`], the first of which is `column`.
    pub(crate) fn read(row: &Row, column: usize) -> Result<(ThreadId, Self), Damage> {
        let number = |nth: usize| row.try_get::<_, i64>(column + nth);
        let found = Self {
            key: number(0)?,
            head: number(1)?,
            checkpoints: number(2)?,
            branched: number(3)?,
            prunes: number(4)?,
            checksum: number(5)?,
        };
        let name = ThreadId::from(std::str::from_utf8(row.try_get::<_, &[u8]>(column + 6)?)?);
        let fits = found.sum(&name) == found.checksum
            && (1..=i64::from(u32::MAX)).contains(&found.head)
            && found.checkpoints >= 1;
        if fits { Ok((name, found)) } else { Err(CHECKSUM.into()) }
    }

    fn sum(&self, name: &ThreadId) -> i64 {
        let Self { key, head, checkpoints, branched, prunes, .. } = *self;
        let numbers = [head, checkpoints, branched, prunes].map(Cell::Integer);
        let [head, checkpoints, branched, prunes] = numbers;
        row_sum(&[
            Cell::Text(b"thread"),
            Cell::Integer(key),
            Cell::Bytes(name.as_str().as_bytes()),
            head,
            checkpoints,
            branched,
            prunes,
        ])
    }

    /// Returns the row with its checksum.
    pub(crate) fn summed(self, name: &ThreadId) -> Self {
        Self { checksum: self.sum(name), ..self }
    }

    /// Returns the row after a commit, with its checksum.
    pub(crate) fn grown(self, name: &ThreadId, parent: Option<i64>) -> Self {
        let branched = self.branched + i64::from(parent.is_some_and(|parent| parent != self.head));
        Self { head: self.head + 1, checkpoints: self.checkpoints + 1, branched, ..self }.summed(name)
    }

    pub(crate) fn counts(&self) -> Counts {
        let [checkpoints, branched] = [self.checkpoints, self.branched].map(i64::cast_unsigned);
        Counts { head: self.head(), checkpoints, branched }
    }

    pub(crate) fn head(&self) -> CheckpointId {
        id_of(self.head)
    }
}

/// Returns the id of a checkpoint from its column.
pub(crate) fn id_of(id: i64) -> CheckpointId {
    CheckpointId(id.unsigned_abs())
}

/// Returns the column of a checkpoint's id; `None` if no checkpoint can have it.
pub(crate) fn column_of(id: CheckpointId) -> Option<i64> {
    u32::try_from(id.0).ok().map(i64::from)
}

/// Returns the bytes by which a thread is found.
pub(crate) fn name_of(thread: &ThreadId) -> &[u8] {
    thread.as_str().as_bytes()
}

/// A row of the table `checkpoints`, borrowed from the server's answer or from a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointRow<'a> {
    pub(crate) thread: i64,
    pub(crate) id: i64,
    pub(crate) parent: Option<i64>,
    pub(crate) source: &'a str,
    pub(crate) created_ms: i64,
    pub(crate) control: &'a str,
    pub(crate) metadata: Option<&'a str>,
    pub(crate) parent_pruned: bool,
    pub(crate) applied: &'a str,
    pub(crate) snapshot: Option<&'a str>,
}

/// The columns of a row `c` that [`StoredRow::read`] reads.
pub(crate) const CHECKPOINT: &str =
    "c.thread, c.id, c.parent, c.source, c.created_ms, c.control, c.metadata, c.parent_pruned,
    c.applied, c.snapshot, c.checksum, c.content_checksum";

/// The same columns without the content, for histories.
pub(crate) const META: &str =
    "c.thread, c.id, c.parent, c.source, c.created_ms, c.control, c.metadata, c.parent_pruned,
    ''::text, NULL::text, c.checksum, 0::bigint";

/// The column behind those of [`CHECKPOINT`] or [`META`] that [`StoredRow::meta`] reads: whether the parent of a row `c` is missing.
pub(crate) const LOST_PARENT: &str = "c.parent IS NOT NULL AND NOT EXISTS (
    SELECT FROM checkpoints p WHERE p.thread = c.thread AND p.id = c.parent)";

/// The columns of a row `c` that [`task`] reads.
pub(crate) const TASK: &str = "c.slot, c.record, c.checksum";

/// A row with its stored checksums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredRow<'a> {
    pub(crate) row: CheckpointRow<'a>,
    checksum: i64,
    content_checksum: i64,
}

impl<'a> StoredRow<'a> {
    pub(crate) fn read(row: &'a Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            row: CheckpointRow {
                thread: row.try_get(0)?,
                id: row.try_get(1)?,
                parent: row.try_get(2)?,
                source: row.try_get(3)?,
                created_ms: row.try_get(4)?,
                control: row.try_get(5)?,
                metadata: row.try_get(6)?,
                parent_pruned: row.try_get(7)?,
                applied: row.try_get(8)?,
                snapshot: row.try_get(9)?,
            },
            checksum: row.try_get(10)?,
            content_checksum: row.try_get(11)?,
        })
    }

    /// Returns whether the columns without the content are intact.
    fn is_intact(&self) -> bool {
        self.checksum == self.row.sum()
    }

    fn has_intact_content(&self) -> bool {
        self.content_checksum == self.row.content_sum()
    }

    pub(crate) fn content(&self) -> ContentRow<'a> {
        ContentRow {
            id: id_of(self.row.id),
            parent: self.row.parent.map(id_of),
            applied: self.row.applied.as_bytes(),
            snapshot: self.row.snapshot.map(str::as_bytes),
            is_intact: self.is_intact() && self.has_intact_content(),
        }
    }

    pub(crate) fn child(&self) -> ChildRow<'a> {
        ChildRow {
            id: id_of(self.row.id),
            parent: self.row.parent.map(id_of),
            source: self.row.source.as_bytes(),
            applied: self.row.applied.as_bytes(),
            is_intact: self.is_intact(),
            has_intact_content: self.has_intact_content(),
        }
    }

    /// Reads the metadata, with the column [`LOST_PARENT`] of the same row.
    pub(crate) fn meta(&self, row: &Row) -> Result<MetaRow<'a>, tokio_postgres::Error> {
        Ok(MetaRow {
            id: id_of(self.row.id),
            parent: self.row.parent.map(id_of),
            source: self.row.source.as_bytes(),
            created_ms: self.row.created_ms,
            control: self.row.control.as_bytes(),
            metadata: self.row.metadata.map(str::as_bytes),
            parent_pruned: self.row.parent_pruned,
            parent_is_lost: row.try_get(12)?,
            is_intact: self.is_intact(),
        })
    }
}

/// Reads a row of a checkpoint's task.
pub(crate) fn task(
    thread: i64,
    checkpoint: CheckpointId,
    row: &Row,
) -> Result<TaskRow<'_>, tokio_postgres::Error> {
    let (slot, record, sum): (i64, &str, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let is_intact = sum == task_sum(thread, column_of(checkpoint).unwrap_or_default(), slot, record);
    Ok(TaskRow { slot, record: record.as_bytes(), share: sum & SHARE, is_intact })
}

impl CheckpointRow<'_> {
    /// Returns the checksum of the row without its content.
    pub(crate) fn sum(&self) -> i64 {
        row_sum(&[
            Cell::Text(b"checkpoint"),
            Cell::Integer(self.thread),
            Cell::Integer(self.id),
            self.parent.map_or(Cell::Null, Cell::Integer),
            Cell::Text(self.source.as_bytes()),
            Cell::Integer(self.created_ms),
            Cell::Text(self.control.as_bytes()),
            optional(self.metadata),
            Cell::Integer(self.parent_pruned.into()),
        ])
    }

    /// Returns the checksum of its content.
    pub(crate) fn content_sum(&self) -> i64 {
        row_sum(&[
            Cell::Text(b"content"),
            Cell::Integer(self.thread),
            Cell::Integer(self.id),
            Cell::Text(self.applied.as_bytes()),
            optional(self.snapshot),
        ])
    }
}

fn optional(text: Option<&str>) -> Cell<'_> {
    text.map_or(Cell::Null, |text| Cell::Text(text.as_bytes()))
}

/// Returns the checksum of a row of the table `tasks`.
pub(crate) fn task_sum(thread: i64, checkpoint: i64, slot: i64, record: &str) -> i64 {
    let slot = EffectSlots::task_of(slot).map_or(slot, |task| EffectSlots::of(task).first);
    row_sum(&[
        Cell::Text(b"task"),
        Cell::Integer(thread),
        Cell::Integer(checkpoint),
        Cell::Integer(slot),
        Cell::Text(record.as_bytes()),
    ])
}
