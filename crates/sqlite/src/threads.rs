//! Copy and prune.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, TransactionBehavior, params};
use superstep_checkpoint::{CheckpointError, CheckpointId, Prune, Source, TaskRecord, ThreadId};

use crate::{
    checksum::{CHECKPOINT, CONTENT, TASK, TASK_SHARE},
    database::{Database, ThreadKey, ThreadRow, id_of},
    error::Failed,
    read::Reader,
    stored::{self, Known, PrunePlan},
    write::drop_effects,
};

impl Database {
    pub(crate) fn copy(&mut self, from: &ThreadId, to: &ThreadId) -> Result<(), CheckpointError> {
        self.writable()?;
        let copied = self.try_copy(from, to);
        copied.map_err(|failed| failed.into_error(&self.place, &format!("copy thread `{from}`")))
    }

    fn try_copy(&mut self, from: &ThreadId, to: &ThreadId) -> Result<(), Failed> {
        let (place, names) = (&self.place, &self.names);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        ThreadRow::find(&transaction, place, names, from)?
            .filter(|_| !from.is_child() && !to.is_child())
            .ok_or_else(|| CheckpointError::NoThread { thread: from.clone() })?;
        let taken = ThreadRow::find(&transaction, place, names, to)?.is_some()
            || !ThreadKey::under(&transaction, to)?.is_empty();
        if taken {
            return Err(CheckpointError::ThreadExists { thread: to.clone() }.into());
        }
        let children = ThreadKey::checked_under(&transaction, place, from)?;
        for source in [from.clone()].into_iter().chain(children.into_iter().map(|(_, child)| child)) {
            let row = ThreadRow::find(&transaction, place, names, &source)?
                .ok_or_else(|| CheckpointError::NoThread { thread: source.clone() })?;
            Reader { connection: &transaction, place, thread: &source, row }.check()?;
            copy_rows(&transaction, row, &source.moved(from, to))?;
        }
        Ok(transaction.commit()?)
    }

    pub(crate) fn prune(
        &mut self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: &Prune,
    ) -> Result<usize, CheckpointError> {
        self.writable()?;
        let pruned = self.try_prune(thread, head, prune);
        pruned.map_err(|failed| failed.into_error(&self.place, &format!("prune thread `{thread}`")))
    }

    fn try_prune(&mut self, thread: &ThreadId, head: CheckpointId, prune: &Prune) -> Result<usize, Failed> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let row = ThreadRow::find(&transaction, &self.place, &self.names, thread)?;
        let row = row.filter(|row| row.head == head);
        let row = row.ok_or_else(|| CheckpointError::conflict(thread, Some(head)))?;
        let reader = Reader { connection: &transaction, place: &self.place, thread, row };
        let pruned = Pruning { reader }.run(head, prune)?;
        transaction.commit()?;
        Ok(pruned)
    }
}

/// Copies one thread without its subgraphs.
fn copy_rows(connection: &Connection, source: ThreadRow, to: &ThreadId) -> rusqlite::Result<()> {
    let mut copy = ThreadRow::add(connection, to)?;
    copy.head = source.head;
    let source = source.key;
    let keys = params![source.first(), source.last(), copy.key.first() - source.first()];
    connection.execute(
        &format!(
            "INSERT INTO checkpoints (key, parent, source, created_ms, control, metadata, parent_pruned, checksum,
                 content_checksum, applied, snapshot)
             SELECT key, parent, source, created_ms, control, metadata, parent_pruned, {CHECKPOINT}, {CONTENT}, applied,
                 snapshot
             FROM (
                 SELECT key + ?3 AS key, parent, source, created_ms, control, metadata, parent_pruned, applied, snapshot
                 FROM checkpoints WHERE key BETWEEN ?1 AND ?2
             )"
        ),
        keys,
    )?;
    connection.execute(
        &format!(
            "INSERT INTO tasks (checkpoint, slot, record, checksum)
             SELECT checkpoint, slot, record, {TASK} FROM (
                 SELECT checkpoint + ?3 AS checkpoint, slot, record FROM tasks WHERE checkpoint BETWEEN ?1 AND ?2
             )"
        ),
        keys,
    )?;
    sum_tasks(connection, copy.key)?;
    copy.recount(connection, to)
}

/// Recomputes the sum of a thread's task checksums.
fn sum_tasks(connection: &Connection, thread: ThreadKey) -> rusqlite::Result<()> {
    let range = [thread.first(), thread.last()];
    connection.execute("DELETE FROM task_sums WHERE checkpoint BETWEEN ?1 AND ?2", range)?;
    let sum = format!(
        "INSERT INTO task_sums
         SELECT checkpoint, sum({TASK_SHARE}) FROM tasks WHERE checkpoint BETWEEN ?1 AND ?2 GROUP BY checkpoint"
    );
    connection.execute(&sum, range).map(drop)
}

const SET_SNAPSHOT: &str = "
UPDATE checkpoints SET snapshot = ?2, content_checksum = row_sum('content', key, applied, ?2) WHERE key = ?1";

const SET_METADATA: &str = "
UPDATE checkpoints SET metadata = ?2, checksum = row_sum(
    'checkpoint', key, parent, source, created_ms, control, ?2, parent_pruned
) WHERE key = ?1";

struct Pruning<'a> {
    reader: Reader<'a>,
}

impl Pruning<'_> {
    fn run(&self, head: CheckpointId, prune: &Prune) -> Result<usize, Failed> {
        let Reader { connection, thread, .. } = self.reader;
        self.reader.check()?;
        let known = self.known()?;
        let plan = PrunePlan::new(thread, head, prune, known)?;
        for (id, channels) in prune.snapshots.iter().filter(|(id, _)| plan.keep.contains(id)) {
            if plan.adds_snapshot(*id) {
                let snapshot = stored::snapshot_text(thread, channels)?;
                self.update(SET_SNAPSHOT, *id, &snapshot)?;
            }
        }
        for (id, metadata) in prune.metadata.iter().filter(|(id, _)| plan.keep.contains(id)) {
            let metadata = serde_json::to_string(metadata).expect("an object is JSON");
            self.update(SET_METADATA, *id, &metadata)?;
        }
        for parent in plan.lost_results() {
            self.keep_results(parent)?;
        }
        let children = ThreadKey::under(connection, thread)?;
        for (child, _) in children.iter().filter(|(_, name)| plan.deletes(thread, name)) {
            child.delete(connection)?;
        }
        Ok(self.delete(&plan.keep)?)
    }

    fn known(&self) -> rusqlite::Result<BTreeMap<CheckpointId, Known>> {
        let mut known = self.reader.connection.prepare_cached(
            "SELECT key, parent, source, snapshot IS NOT NULL FROM checkpoints WHERE key BETWEEN ?1 AND ?2",
        )?;
        let rows = known.query_map([self.reader.row.key.first(), self.reader.row.key.last()], |row| {
            let parent: Option<i64> = row.get(1)?;
            let known = Known {
                parent: parent.map(|parent| CheckpointId(parent.unsigned_abs())),
                is_loop: row.get_ref(2)?.as_bytes()? == Source::Loop.as_str().as_bytes(),
                has_snapshot: row.get(3)?,
            };
            Ok((id_of(row.get(0)?), known))
        })?;
        rows.collect()
    }

    fn update(&self, sql: &str, id: CheckpointId, text: &str) -> Result<(), Failed> {
        self.reader.connection.execute(sql, (self.reader.row.key.checkpoint(id), text))?;
        Ok(())
    }

    /// Records the writes of a retained checkpoint's tasks, whose superstep is about to be deleted.
    fn keep_results(&self, parent: CheckpointId) -> Result<(), Failed> {
        let Reader { connection, thread, .. } = self.reader;
        let Some(key) = self.reader.row.key.checkpoint(parent) else { return Ok(()) };
        for (slot, record) in self.reader.tasks(parent)? {
            if let TaskRecord::Finished { .. } = record {
                let record = stored::record_text(thread, slot, &record)?;
                drop_effects(connection, key, slot)?;
                connection
                    .prepare_cached(
                        "INSERT OR REPLACE INTO tasks (checkpoint, slot, record, checksum)
                         VALUES (?1, ?2, ?3, row_sum('task', ?1, ?2, ?3))",
                    )
                    .and_then(|mut insert| insert.execute(params![key, slot, record]))?;
            }
        }
        Ok(())
    }

    /// Deletes the rows that are not retained, and returns the number of checkpoints.
    fn delete(&self, keep: &BTreeSet<CheckpointId>) -> rusqlite::Result<usize> {
        let Reader { connection, thread, row, .. } = self.reader;
        let kept: Vec<i64> = keep.iter().filter_map(|id| row.key.checkpoint(*id)).collect();
        let kept = serde_json::to_string(&kept).expect("numbers become JSON");
        let range = params![row.key.first(), row.key.last(), kept];
        connection.execute(
            "DELETE FROM tasks WHERE checkpoint BETWEEN ?1 AND ?2
             AND checkpoint NOT IN (SELECT value FROM json_each(?3))",
            range,
        )?;
        let pruned = connection.execute(
            "DELETE FROM checkpoints WHERE key BETWEEN ?1 AND ?2 AND key NOT IN (SELECT value FROM json_each(?3))",
            range,
        )?;
        connection.execute(
            "UPDATE checkpoints SET parent_pruned = 1, checksum = row_sum(
                 'checkpoint', key, parent, source, created_ms, control, metadata, 1
             )
             WHERE key BETWEEN ?1 AND ?2 AND parent IS NOT NULL AND (?1 | parent) NOT IN (SELECT key FROM checkpoints)",
            [row.key.first(), row.key.last()],
        )?;
        sum_tasks(connection, row.key)?;
        row.recount(connection, thread)?;
        Ok(pruned)
    }
}
