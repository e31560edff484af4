//! Databases of an older superstep.

use rusqlite::Connection;

use crate::{
    checksum::{CHECKPOINT, CONTENT, TASK, TASK_SHARE, THREAD},
    schema::SCHEMA,
};

/// Migrates the tables of schema 1 to the current schema, inside the caller's transaction.
///
/// Their data is accepted as it is: it has no checksums that could reveal damage.
pub(crate) fn from_1(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "DROP VIEW history;
         DROP INDEX branches;
         ALTER TABLE threads RENAME TO threads_1;
         ALTER TABLE checkpoints RENAME TO checkpoints_1;
         ALTER TABLE tasks RENAME TO tasks_1;",
    )?;
    connection.execute_batch(SCHEMA)?;
    connection.execute_batch(&format!(
        "INSERT INTO checkpoints (key, parent, source, created_ms, control, metadata, parent_pruned, checksum,
             content_checksum, applied, snapshot)
         SELECT key, parent, source, created_ms, control, metadata, parent_pruned, {CHECKPOINT}, {CONTENT}, applied, snapshot
         FROM (
             SELECT *, parent IS NOT NULL AND (key - id + parent) NOT IN (SELECT key FROM checkpoints_1) AS parent_pruned
             FROM checkpoints_1
         );
         INSERT INTO tasks SELECT checkpoint, slot, record, {TASK} FROM tasks_1;
         INSERT INTO task_sums SELECT checkpoint, sum({TASK_SHARE}) FROM tasks GROUP BY checkpoint;
         INSERT INTO threads
         SELECT key, name, head, checkpoints, branched, {THREAD} FROM (
             SELECT threads_1.key, name, max(id) AS head, count(*) AS checkpoints,
                 count(*) FILTER (WHERE parent <> id - 1) AS branched
             FROM threads_1 JOIN checkpoints ON checkpoints.thread = threads_1.key GROUP BY threads_1.key
         );
         DROP TABLE tasks_1;
         DROP TABLE checkpoints_1;
         DROP TABLE threads_1;"
    ))
}
