//! Commit, record, delete.

use rusqlite::{Connection, TransactionBehavior, params};
use superstep_graph::{CheckpointError, CheckpointId, ThreadId};

use crate::{
    database::{Database, Place, ThreadKey},
    error,
    stored::{Bytes, NewCheckpoint, NewRecord},
};

/// Adds a checkpoint behind the expected head, or nothing if the thread has another head, which leaves no `source`. That
/// the id behind the expected one is free says nothing, because what had it may be pruned.
///
/// These are values and not a query that reads the table, because SQLite would keep its result in a table of its own.
const INSERT_CHECKPOINT: &str = "
INSERT OR IGNORE INTO checkpoints (key, parent, source, created_ms, control, metadata, applied, snapshot)
VALUES (
    ((SELECT key FROM threads WHERE name = ?1) << 32) | (?2 + 1),
    ?3,
    (SELECT ?4 FROM threads WHERE name = ?1
        AND ((threads.key << 32) | ?2) = coalesce((
            SELECT max(checkpoints.key) FROM checkpoints
            WHERE checkpoints.key BETWEEN threads.key << 32 AND (threads.key << 32) | 0xffffffff
        ), threads.key << 32)),
    ?5, ?6, ?7, ?8, ?9
)";

/// Stores a record under the head, or nothing if the thread has another head.
///
/// With `EXISTS`, SQLite would prepare a statement anew each time that it has other parameters.
const UPSERT_RECORD: &str = "
INSERT OR REPLACE INTO tasks (checkpoint, slot, record)
SELECT (key << 32) | ?2, ?3, ?4 FROM threads
WHERE name = ?1
    AND ((threads.key << 32) | ?2) = (
        SELECT max(checkpoints.key) FROM checkpoints
        WHERE checkpoints.key BETWEEN threads.key << 32 AND (threads.key << 32) | 0xffffffff
    )";

/// The slots of finished tasks. A record begins with how its task ended.
const FINISHED: &str = r#"
SELECT slot FROM tasks WHERE checkpoint = ?1 AND substr(record, 1, 17) = '{"end":"finished"' ORDER BY slot"#;

impl Database {
    pub(crate) fn commit(&mut self, new: &NewCheckpoint) -> Result<CheckpointId, CheckpointError> {
        self.writable()?;
        let head = new.expected.map_or(Ok(0), |id| u32::try_from(id.0)).map_err(|_| conflict(new))?;
        let Some(id) = head.checked_add(1) else { return Err(self.no_id_left(new)?) };
        let one_row = new.expected.is_some()
            && new.parent == new.expected
            && new.recorded.is_empty()
            && new.records.is_empty();
        if one_row {
            // A statement is a transaction.
            if !insert(&self.connection, head, new).map_err(|cause| self.refused(new, cause))? {
                return Err(conflict(new));
            }
        } else {
            self.commit_rows(head, id, new)?;
        }
        self.wrote(new.bytes());
        Ok(CheckpointId(id.into()))
    }

    /// Adds all of them or none.
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

    /// Stores a checkpoint that is more than one row, or has to be checked.
    fn commit_rows(&mut self, head: u32, id: u32, new: &NewCheckpoint) -> Result<(), CheckpointError> {
        let place = self.place.clone();
        let refused = |cause| error::database(&place, &action(new), cause);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
        add(&transaction, &place, head, id, new)?;
        transaction.commit().map_err(refused)
    }

    pub(crate) fn record(&mut self, new: &NewRecord) -> Result<(), CheckpointError> {
        self.writable()?;
        let task = &new.task;
        let conflict =
            || CheckpointError::Conflict { thread: task.thread.clone(), expected: Some(task.checkpoint) };
        let head = u32::try_from(task.checkpoint.0).map_err(|_| conflict())?;
        let stored = upsert(&self.connection, &task.thread, head, task.slot, &new.text).map_err(|cause| {
            let action = format!("record task {} of thread `{}`", task.slot, task.thread);
            error::database(&self.place, &action, cause)
        })?;
        if !stored {
            return Err(conflict());
        }
        self.wrote(new.bytes());
        Ok(())
    }

    pub(crate) fn delete(&mut self, thread: &ThreadId) -> Result<(), CheckpointError> {
        self.writable()?;
        let place = self.place.clone();
        let refused = |cause| error::database(&place, &format!("delete thread `{thread}`"), cause);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
        let mut keys: Vec<ThreadKey> = ThreadKey::find(&transaction, &place, thread)?.into_iter().collect();
        keys.extend(ThreadKey::under(&transaction, thread).map_err(refused)?.into_iter().map(|(key, _)| key));
        for key in keys {
            key.delete(&transaction).map_err(refused)?;
        }
        transaction.commit().map_err(refused)
    }

    pub(crate) fn writable(&self) -> Result<(), CheckpointError> {
        if self.place.is_read_only() { Err(error::read_only(&self.place)) } else { Ok(()) }
    }

    /// What is wrong with a commit behind the last possible checkpoint.
    fn no_id_left(&self, new: &NewCheckpoint) -> Result<CheckpointError, CheckpointError> {
        let key = ThreadKey::find(&self.connection, &self.place, &new.thread)?;
        let (Some(key), Some(head)) = (key, new.expected) else { return Ok(conflict(new)) };
        let full = exists(&self.connection, key, head).map_err(|cause| self.refused(new, cause))?;
        Ok(if full { error::too_long(&new.thread) } else { conflict(new) })
    }

    fn refused(&self, new: &NewCheckpoint, cause: rusqlite::Error) -> CheckpointError {
        error::database(&self.place, &action(new), cause)
    }
}

/// Adds a checkpoint with its records in a transaction.
fn add(
    transaction: &Connection,
    place: &Place,
    head: u32,
    id: u32,
    new: &NewCheckpoint,
) -> Result<(), CheckpointError> {
    let refused = |cause| error::database(place, &action(new), cause);
    if new.expected.is_none() {
        let added = transaction
            .prepare_cached("INSERT OR IGNORE INTO threads (name) VALUES (?1)")
            .and_then(|mut add| add.execute([new.thread.as_str()]))
            .map_err(refused)?;
        if added == 0 {
            return Err(conflict(new));
        }
    }
    if !insert(transaction, head, new).map_err(refused)? {
        return Err(conflict(new));
    }
    let key = ThreadKey::find(transaction, place, &new.thread)?.ok_or_else(|| conflict(new))?;
    if let Some(parent) = new.parent {
        // The new checkpoint is there already, and cannot follow itself.
        let known = parent.0 <= head.into() && exists(transaction, key, parent).map_err(refused)?;
        if !known {
            return Err(CheckpointError::no_parent(&new.thread, parent));
        }
    }
    if let Some(slot) = unfinished(transaction, key, new.parent, &new.recorded).map_err(refused)? {
        return Err(CheckpointError::not_recorded(&new.thread, new.parent, slot));
    }
    for (slot, record) in &new.records {
        upsert(transaction, &new.thread, id, *slot, record).map_err(refused)?;
    }
    Ok(())
}

fn insert(connection: &Connection, head: u32, new: &NewCheckpoint) -> rusqlite::Result<bool> {
    let added = connection.prepare_cached(INSERT_CHECKPOINT)?.execute(params![
        new.thread.as_str(),
        head,
        new.parent.map(number),
        new.source.as_str(),
        new.created_ms,
        new.control,
        new.metadata,
        new.applied,
        new.snapshot,
    ])?;
    Ok(added == 1)
}

fn upsert(
    connection: &Connection,
    thread: &ThreadId,
    head: u32,
    slot: u32,
    record: &str,
) -> rusqlite::Result<bool> {
    let stored =
        connection.prepare_cached(UPSERT_RECORD)?.execute(params![thread.as_str(), head, slot, record])?;
    Ok(stored == 1)
}

fn exists(connection: &Connection, thread: ThreadKey, id: CheckpointId) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM checkpoints WHERE key = ?1")?.exists([thread.checkpoint(id)])
}

/// The first of some slots under which `parent` has no record of a finished task.
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

/// What SQLite has for ids. Ids beyond it are greater than any that exists.
fn number(id: CheckpointId) -> i64 {
    i64::try_from(id.0).unwrap_or(i64::MAX)
}

fn conflict(new: &NewCheckpoint) -> CheckpointError {
    CheckpointError::Conflict { thread: new.thread.clone(), expected: new.expected }
}

fn action(new: &NewCheckpoint) -> String {
    format!("commit to thread `{}`", new.thread)
}
