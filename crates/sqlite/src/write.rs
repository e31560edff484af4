//! Commits, records, deletion.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use superstep_checkpoint::{CheckpointError, CheckpointId, ThreadId};

use crate::{
    checksum::TASK_SHARE,
    database::{Database, ThreadKey, ThreadRow},
    error,
    location::Location,
    stored::{Bytes, EffectSlots, NewCheckpoint, NewRecord, NewRecords},
};

const INSERT_CHECKPOINT: &str = "
INSERT INTO checkpoints (key, parent, source, created_ms, control, metadata, parent_pruned, checksum, content_checksum,
    applied, snapshot)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, row_sum('checkpoint', ?1, ?2, ?3, ?4, ?5, ?6, 0), row_sum('content', ?1, ?7, ?8),
    ?7, ?8)";

const UPSERT_RECORD: &str = "
INSERT INTO tasks (checkpoint, slot, record, checksum) VALUES (?1, ?2, ?3, row_sum('task', ?1, ?2, ?3))
ON CONFLICT DO UPDATE SET record = excluded.record, checksum = excluded.checksum";

const ADD_TO_SUM: &str = "
INSERT INTO task_sums (checkpoint, sum) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET sum = sum + excluded.sum";

/// Appends to the rows of a task's effects, if the task has an unfinished record. Returns the share of the new row.
const ADD_EFFECTS: &str = r#"
INSERT INTO tasks (checkpoint, slot, record, checksum)
SELECT ?1, slot, ?5, row_sum('task', ?1, slot, ?5)
FROM (SELECT coalesce(max(slot) + 1, ?3) AS slot FROM tasks WHERE checkpoint = ?1 AND slot BETWEEN ?3 AND ?4)
WHERE slot <= ?4 AND EXISTS (
    SELECT 1 FROM tasks WHERE checkpoint = ?1 AND slot = ?2 AND substr(record, 1, 17) <> '{"end":"finished"'
)
RETURNING (checksum & 0xffffffff)"#;

const DROP_EFFECTS: &str = "
DELETE FROM tasks WHERE checkpoint = ?1 AND slot BETWEEN ?2 AND ?3 RETURNING (checksum & 0xffffffff)";

/// The slots of finished tasks. A record begins with the kind of its task's end.
const FINISHED: &str = r#"
SELECT slot FROM tasks WHERE checkpoint = ?1 AND slot >= 0 AND substr(record, 1, 17) = '{"end":"finished"' ORDER BY slot"#;

impl Database {
    pub(crate) fn commit(&mut self, new: &NewCheckpoint) -> Result<CheckpointId, CheckpointError> {
        self.writable()?;
        let head = new.expected.map_or(Ok(0), |id| u32::try_from(id.0)).map_err(|_| conflict(new))?;
        let Some(id) = head.checked_add(1) else { return Err(self.no_id_left(new)?) };
        let place = self.place.clone();
        let refused = |cause| error::database(&place, &action(new), cause);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
        add(&transaction, &place, head, id, new)?;
        transaction.commit().map_err(refused)?;
        self.wrote(new.bytes());
        Ok(CheckpointId(id.into()))
    }

    /// Appends all checkpoints or none.
    pub(crate) fn commit_all(&mut self, all: &Vec<NewCheckpoint>) -> Result<(), CheckpointError> {
        self.writable()?;
        let Some(first) = all.first() else { return Ok(()) };
        let place = self.place.clone();
        let refused = |cause| error::database(&place, &action(first), cause);
        for new in all {
            let head = new.expected.map_or(Ok(0), |id| u32::try_from(id.0)).map_err(|_| conflict(first))?;
            if head == u32::MAX {
                return Err(self.no_id_left(new)?);
            }
        }
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
        for new in all {
            let head = new.expected.map_or(0, |id| u32::try_from(id.0).expect("it was just checked"));
            add(&transaction, &place, head, head + 1, new)?;
        }
        transaction.commit().map_err(refused)?;
        self.wrote(all.bytes());
        Ok(())
    }

    /// Stores a record and replaces an earlier one of the same task.
    pub(crate) fn record(&mut self, new: &NewRecord) -> Result<(), CheckpointError> {
        let NewRecord { task, text } = new;
        self.at_head(&task.thread, task.checkpoint, text.len(), |transaction, key| {
            upsert(transaction, key, task.slot, text)
        })
    }

    /// Stores the records of several tasks.
    pub(crate) fn record_all(&mut self, new: &NewRecords) -> Result<(), CheckpointError> {
        self.at_head(&new.thread, new.checkpoint, new.bytes(), |transaction, key| {
            new.texts.iter().try_for_each(|(slot, text)| upsert(transaction, key, *slot, text))
        })
    }

    /// Adds results of effects to the record of an unfinished task; `false` if there is none.
    pub(crate) fn add_effects(&mut self, new: &NewRecord) -> Result<bool, CheckpointError> {
        let NewRecord { task, text } = new;
        self.at_head(&task.thread, task.checkpoint, text.len(), |transaction, key| {
            add_effects(transaction, key, task.slot, text)
        })
    }

    /// Runs a write to tasks of the head in a transaction. It receives the key of the checkpoint.
    fn at_head<T>(
        &mut self,
        thread: &ThreadId,
        checkpoint: CheckpointId,
        bytes: usize,
        write: impl FnOnce(&Connection, i64) -> rusqlite::Result<T>,
    ) -> Result<T, CheckpointError> {
        self.writable()?;
        let place = self.place.clone();
        let refused = |cause| error::database(&place, &format!("record tasks of thread `{thread}`"), cause);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
        let row = ThreadRow::find(&transaction, &place, thread)?;
        let key = row.filter(|row| row.head == checkpoint).and_then(|row| row.key.checkpoint(row.head));
        let Some(key) = key else {
            return Err(CheckpointError::Conflict { thread: thread.clone(), expected: Some(checkpoint) });
        };
        let written = write(&transaction, key).map_err(refused)?;
        transaction.commit().map_err(refused)?;
        self.wrote(bytes);
        Ok(written)
    }

    pub(crate) fn delete(&mut self, thread: &ThreadId) -> Result<(), CheckpointError> {
        self.writable()?;
        let place = self.place.clone();
        let refused = |cause| error::database(&place, &format!("delete thread `{thread}`"), cause);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
        let found = ThreadKey::find_any(&transaction, thread).map_err(refused)?;
        let mut keys: Vec<ThreadKey> = found.into_iter().collect();
        keys.extend(ThreadKey::under(&transaction, thread).map_err(refused)?.into_iter().map(|(key, _)| key));
        for key in keys {
            key.delete(&transaction).map_err(refused)?;
        }
        transaction.commit().map_err(refused)
    }

    /// Creates the error of a commit after the last possible checkpoint id.
    fn no_id_left(&self, new: &NewCheckpoint) -> Result<CheckpointError, CheckpointError> {
        let row = ThreadRow::find(&self.connection, &self.place, &new.thread)?;
        let is_full = row.is_some_and(|row| Some(row.head) == new.expected);
        Ok(if is_full { error::too_long(&new.thread) } else { conflict(new) })
    }
}

/// Appends a checkpoint with its records in a transaction.
fn add(
    transaction: &Connection,
    place: &Location,
    head: u32,
    id: u32,
    new: &NewCheckpoint,
) -> Result<(), CheckpointError> {
    let refused = |cause| error::database(place, &action(new), cause);
    let mut row = match (ThreadRow::find(transaction, place, &new.thread)?, new.expected) {
        (None, None) => ThreadRow::add(transaction, &new.thread).map_err(refused)?,
        (Some(row), Some(_)) if row.head.0 == u64::from(head) => row,
        _ => return Err(conflict(new)),
    };
    if let Some(parent) = new.parent {
        let known = parent.0 <= head.into() && exists(transaction, row.key, parent).map_err(refused)?;
        if !known {
            return Err(CheckpointError::no_parent(&new.thread, parent));
        }
    }
    if let Some(slot) = unfinished(transaction, row.key, new.parent, &new.recorded).map_err(refused)? {
        return Err(CheckpointError::not_recorded(&new.thread, new.parent, slot));
    }
    let id = CheckpointId(id.into());
    let key = row.key.checkpoint(id).expect("the id is small");
    insert(transaction, key, new).map_err(refused)?;
    for (slot, record) in &new.records {
        upsert(transaction, key, *slot, record).map_err(refused)?;
    }
    row.grow(transaction, &new.thread, id, new.parent).map_err(refused)
}

fn insert(connection: &Connection, key: i64, new: &NewCheckpoint) -> rusqlite::Result<()> {
    let parent =
        new.parent.map(|parent| i64::try_from(parent.0).expect("a parent that exists has a small id"));
    connection.prepare_cached(INSERT_CHECKPOINT)?.execute(params![
        key,
        parent,
        new.source.as_str(),
        new.created_ms,
        new.control,
        new.metadata,
        new.applied,
        new.snapshot,
    ])?;
    Ok(())
}

/// Stores a record and replaces an earlier one of the same task.
fn upsert(connection: &Connection, checkpoint: i64, slot: u32, record: &str) -> rusqlite::Result<()> {
    let share = format!("SELECT {TASK_SHARE} FROM tasks WHERE checkpoint = ?1 AND slot = ?2");
    let mut share = connection.prepare_cached(&share)?;
    let mut share = || share.query_row((checkpoint, slot), |row| row.get::<_, i64>(0));
    let before = match share().optional()? {
        Some(share) => share + drop_effects(connection, checkpoint, slot)?,
        None => 0,
    };
    connection.prepare_cached(UPSERT_RECORD)?.execute((checkpoint, slot, record))?;
    connection.prepare_cached(ADD_TO_SUM)?.execute((checkpoint, share()? - before))?;
    Ok(())
}

/// Adds a row with results of effects to those of an unfinished task; `false` if the task has no record.
fn add_effects(connection: &Connection, checkpoint: i64, slot: u32, record: &str) -> rusqlite::Result<bool> {
    let EffectSlots { first, last } = EffectSlots::of(slot);
    let mut add = connection.prepare_cached(ADD_EFFECTS)?;
    let added = add.query_row(params![checkpoint, slot, first, last, record], |row| row.get::<_, i64>(0));
    let Some(share) = added.optional()? else { return Ok(false) };
    connection.prepare_cached(ADD_TO_SUM)?.execute((checkpoint, share))?;
    Ok(true)
}

/// Deletes the rows with results of the effects of a task, and returns the sum of their shares.
pub(crate) fn drop_effects(connection: &Connection, checkpoint: i64, slot: u32) -> rusqlite::Result<i64> {
    let EffectSlots { first, last } = EffectSlots::of(slot);
    let mut delete = connection.prepare_cached(DROP_EFFECTS)?;
    delete.query_map((checkpoint, first, last), |row| row.get::<_, i64>(0))?.sum()
}

fn exists(connection: &Connection, thread: ThreadKey, id: CheckpointId) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM checkpoints WHERE key = ?1")?.exists([thread.checkpoint(id)])
}

/// Returns the first of some slots under which `parent` has no record of a finished task.
fn unfinished(
    connection: &Connection,
    thread: ThreadKey,
    parent: Option<CheckpointId>,
    slots: &[u32],
) -> rusqlite::Result<Option<u32>> {
    if slots.is_empty() {
        return Ok(None);
    }
    let parent = parent.and_then(|parent| thread.checkpoint(parent));
    let mut find = connection.prepare_cached(FINISHED)?;
    let mut found = find.query([parent])?;
    let mut finished = Vec::with_capacity(slots.len());
    while let Some(row) = found.next()? {
        finished.push(row.get::<_, u32>(0)?);
    }
    Ok(slots.iter().find(|slot| finished.binary_search(slot).is_err()).copied())
}

fn conflict(new: &NewCheckpoint) -> CheckpointError {
    CheckpointError::Conflict { thread: new.thread.clone(), expected: new.expected }
}

fn action(new: &NewCheckpoint) -> String {
    format!("commit to thread `{}`", new.thread)
}
