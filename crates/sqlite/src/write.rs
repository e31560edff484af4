//! Commits, records, deletion.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use superstep_checkpoint::{CheckpointError, CheckpointId, ThreadId, internal::leftovers};

use crate::{
    checksum::{self, TASK_SHARE},
    database::{Database, ThreadKey, ThreadRow},
    error::{self, Failed},
    stored::{Bytes, EffectSlots, NewCheckpoint, NewRecord, NewRecords},
};

const INSERT_CHECKPOINT: &str = "
INSERT INTO checkpoints (key, parent, source, created_ms, control, metadata, parent_pruned, checksum, content_checksum,
    applied, snapshot)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, ?9, ?10)";

const UPSERT_RECORD: &str = "
INSERT INTO tasks (checkpoint, slot, record, checksum) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO UPDATE SET record = excluded.record, checksum = excluded.checksum";

const HAS_TASKS: &str = "SELECT 1 FROM tasks WHERE checkpoint = ?1";

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
        let (head, id) = self.next_id(new)?;
        self.write(|| action(new), |database| add(database, head, id, new))?;
        self.wrote(new.bytes());
        Ok(CheckpointId(id.into()))
    }

    /// Appends all checkpoints or none.
    pub(crate) fn commit_all(&mut self, all: &Vec<NewCheckpoint>) -> Result<(), CheckpointError> {
        let Some(first) = all.first() else { return self.writable() };
        let ids: Vec<_> = all.iter().map(|new| self.next_id(new)).collect::<Result<_, _>>()?;
        self.write(
            || action(first),
            |database| all.iter().zip(ids).try_for_each(|(new, (head, id))| add(database, head, id, new)),
        )?;
        self.wrote(all.bytes());
        Ok(())
    }

    /// Returns the ids of the head and of the checkpoint after it.
    fn next_id(&mut self, new: &NewCheckpoint) -> Result<(u32, u32), CheckpointError> {
        self.writable()?;
        let head = new.expected.map_or(Ok(0), |id| u32::try_from(id.0)).map_err(|_| new.conflict())?;
        match head.checked_add(1) {
            Some(id) => Ok((head, id)),
            None => Err(self.ids_exhausted(new)?),
        }
    }

    /// Stores a record and replaces an earlier one of the same task.
    pub(crate) fn record(&mut self, new: &NewRecord) -> Result<(), CheckpointError> {
        let NewRecord { task, text } = new;
        self.at_head(&task.thread, task.checkpoint, text.len(), |transaction, key| {
            upsert_all(transaction, key, &[(task.slot, text)])
        })
    }

    /// Stores the records of several tasks.
    pub(crate) fn record_all(&mut self, new: &NewRecords) -> Result<(), CheckpointError> {
        self.at_head(&new.thread, new.checkpoint, new.bytes(), |transaction, key| {
            upsert_all(transaction, key, &new.texts)
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
        let written = self.write(
            || format!("record tasks of thread `{thread}`"),
            |database| {
                let row = database.find(thread)?;
                let key =
                    row.filter(|row| row.head == checkpoint).and_then(|row| row.key.checkpoint(row.head));
                let key = key.ok_or_else(|| CheckpointError::conflict(thread, Some(checkpoint)))?;
                Ok(write(&database.connection, key)?)
            },
        )?;
        self.wrote(bytes);
        Ok(written)
    }

    pub(crate) fn delete(&mut self, thread: &ThreadId) -> Result<(), CheckpointError> {
        self.writable()?;
        let deleted = self.try_delete(thread);
        deleted.map_err(|cause| error::database(&self.place, &format!("delete thread `{thread}`"), cause))
    }

    fn try_delete(&mut self, thread: &ThreadId) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let own = ThreadKey::find_any(&transaction, thread)?;
        let children = ThreadKey::under(&transaction, thread)?;
        for key in own.into_iter().chain(children.into_iter().map(|(key, _)| key)) {
            key.delete(&transaction)?;
        }
        transaction.commit()
    }

    /// Returns the row of a thread.
    fn find(&self, thread: &ThreadId) -> Result<Option<ThreadRow>, CheckpointError> {
        ThreadRow::find(&self.connection, &self.place, &self.names, thread)
    }

    /// Rejects the first checkpoint of a thread below which others are stored.
    fn check_unused(&self, thread: &ThreadId) -> Result<(), CheckpointError> {
        if thread.is_child() {
            return Ok(());
        }
        let found = ThreadKey::known_under(&self.connection, &self.names, thread);
        let found = found.map_err(|cause| {
            error::database(&self.place, &format!("look up the subgraphs of thread `{thread}`"), cause)
        })?;
        let children = leftovers(found.into_iter().map(|(_, child)| child).collect());
        if children.is_empty() {
            Ok(())
        } else {
            Err(CheckpointError::Leftovers { thread: thread.clone(), children })
        }
    }

    /// Creates the error of a commit after the last possible checkpoint id.
    fn ids_exhausted(&self, new: &NewCheckpoint) -> Result<CheckpointError, CheckpointError> {
        let row = self.find(&new.thread)?;
        let is_full = row.is_some_and(|row| Some(row.head) == new.expected);
        Ok(if is_full { CheckpointError::too_long(&new.thread) } else { new.conflict() })
    }
}

/// Appends a checkpoint with its records in a transaction. A commit that is rejected changes nothing.
fn add(database: &Database, head: u32, id: u32, new: &NewCheckpoint) -> Result<(), Failed> {
    let connection = &database.connection;
    let row = match (database.find(&new.thread)?, new.expected) {
        (None, None) => None,
        (Some(row), Some(_)) if row.head.0 == u64::from(head) => Some(row),
        _ => return Err(new.conflict().into()),
    };
    let thread = row.map(|row| row.key);
    if let Some(parent) = new.parent {
        // The head exists, and is the parent of nearly all checkpoints.
        let is_known = match thread.filter(|_| parent.0 <= head.into()) {
            Some(thread) => parent.0 == u64::from(head) || exists(connection, thread, parent)?,
            None => false,
        };
        if !is_known {
            return Err(CheckpointError::no_parent(&new.thread, parent).into());
        }
    }
    if let Some(slot) = unfinished(connection, thread, new.parent, &new.recorded)? {
        return Err(CheckpointError::not_recorded(&new.thread, new.parent, slot).into());
    }
    let mut row = match row {
        Some(row) => row,
        None => {
            database.check_unused(&new.thread)?;
            ThreadRow::add(connection, &new.thread)?
        }
    };
    let id = CheckpointId(id.into());
    let key = row.key.checkpoint(id).expect("the id is small");
    insert(connection, key, new)?;
    upsert_all(connection, key, &new.records)?;
    Ok(row.grow(connection, &new.thread, id, new.parent)?)
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
        checksum::of_checkpoint(key, parent, new),
        checksum::of_content(key, new),
        new.applied,
        new.snapshot,
    ])?;
    Ok(())
}

/// Stores records and replaces earlier ones of the same tasks.
fn upsert_all<T: AsRef<str>>(
    connection: &Connection,
    checkpoint: i64,
    records: &[(u32, T)],
) -> rusqlite::Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let share = format!("SELECT {TASK_SHARE} FROM tasks WHERE checkpoint = ?1 AND slot = ?2");
    let mut share = connection.prepare_cached(&share)?;
    let mut upsert = connection.prepare_cached(UPSERT_RECORD)?;
    let mut slots = BTreeSet::new();
    let are_first = records.len() > 1 && !connection.prepare_cached(HAS_TASKS)?.exists([checkpoint])?;
    let mut added = 0;
    for (slot, record) in records {
        // Usually the first records of the checkpoint, which replace none.
        if !slots.insert(slot) || !are_first {
            let before = share.query_row((checkpoint, slot), |row| row.get::<_, i64>(0)).optional()?;
            if let Some(before) = before {
                added -= before + drop_effects(connection, checkpoint, *slot)?;
            }
        }
        let checksum = checksum::of_task(checkpoint, *slot, record.as_ref());
        upsert.execute((checkpoint, slot, record.as_ref(), checksum))?;
        added += checksum::task_share(checksum);
    }
    connection.prepare_cached(ADD_TO_SUM)?.execute((checkpoint, added))?;
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
    thread: Option<ThreadKey>,
    parent: Option<CheckpointId>,
    slots: &[u32],
) -> rusqlite::Result<Option<u32>> {
    if slots.is_empty() {
        return Ok(None);
    }
    let parent = parent.zip(thread).and_then(|(parent, thread)| thread.checkpoint(parent));
    let mut find = connection.prepare_cached(FINISHED)?;
    let mut found = find.query([parent])?;
    let mut finished = Vec::with_capacity(slots.len());
    while let Some(row) = found.next()? {
        finished.push(row.get::<_, u32>(0)?);
    }
    Ok(slots.iter().find(|slot| finished.binary_search(slot).is_err()).copied())
}

fn action(new: &NewCheckpoint) -> String {
    format!("commit to thread `{}`", new.thread)
}
