//! The checksums of rows: as SQL, for rows of the database, and for new rows, whose texts SQLite would copy.

use rusqlite::{Connection, functions::FunctionFlags, types::ValueRef};
use superstep_checkpoint::internal::{Cell, add_cell, row_sum};

use crate::stored::NewCheckpoint;

/// The checksum of a row of `threads`.
pub(crate) const THREAD: &str = "row_sum('thread', key, name, head, checkpoints, branched)";

/// The checksum of a row of `checkpoints` without its content.
pub(crate) const CHECKPOINT: &str =
    "row_sum('checkpoint', key, parent, source, created_ms, control, metadata, parent_pruned)";

/// The checksum of the content of a row of `checkpoints`.
pub(crate) const CONTENT: &str = "row_sum('content', key, applied, snapshot)";

/// The checksum of a row of `tasks`.
pub(crate) const TASK: &str = "row_sum('task', checkpoint, slot, record)";

/// A task's share of a checkpoint's task sum, limited so that no sum overflows SQLite's integers.
pub(crate) const TASK_SHARE: &str = "(checksum & 0xffffffff)";

/// Computes [`THREAD`] of a row. `counts` are its columns after the name.
pub(crate) fn of_thread(key: i64, name: &str, counts: [i64; 3]) -> i64 {
    let [head, checkpoints, branched] = counts.map(Cell::Integer);
    row_sum(&[Cell::Text(b"thread"), Cell::Integer(key), text(name), head, checkpoints, branched])
}

/// Computes [`CHECKPOINT`] of a new row.
pub(crate) fn of_checkpoint(key: i64, parent: Option<i64>, new: &NewCheckpoint) -> i64 {
    row_sum(&[
        Cell::Text(b"checkpoint"),
        Cell::Integer(key),
        parent.map_or(Cell::Null, Cell::Integer),
        text(new.source.as_str()),
        Cell::Integer(new.created_ms),
        text(&new.control),
        new.metadata.as_deref().map_or(Cell::Null, text),
        Cell::Integer(0),
    ])
}

/// Computes [`CONTENT`] of a new row.
pub(crate) fn of_content(key: i64, new: &NewCheckpoint) -> i64 {
    let snapshot = new.snapshot.as_deref().map_or(Cell::Null, text);
    row_sum(&[Cell::Text(b"content"), Cell::Integer(key), text(&new.applied), snapshot])
}

/// Computes [`TASK`] of a new row.
pub(crate) fn of_task(checkpoint: i64, slot: u32, record: &str) -> i64 {
    row_sum(&[Cell::Text(b"task"), Cell::Integer(checkpoint), Cell::Integer(slot.into()), text(record)])
}

/// Computes [`TASK_SHARE`] of a checksum.
pub(crate) fn task_share(checksum: i64) -> i64 {
    checksum & 0xffff_ffff
}

fn text(text: &str) -> Cell<'_> {
    Cell::Text(text.as_bytes())
}

/// Registers the SQL function `row_sum('table', column, ...)`, which computes the checksum of a row.
///
/// Stable format: checksums are stored.
pub(crate) fn register(connection: &Connection) -> rusqlite::Result<()> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_scalar_function("row_sum", -1, flags, |context| {
        let sum = (0..context.len()).fold(0, |sum, column| add(sum, context.get_raw(column)));
        Ok(sum.cast_signed())
    })
}

/// Adds a value to the checksum of a row.
fn add(sum: u64, value: ValueRef<'_>) -> u64 {
    let cell = match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Integer(number),
        ValueRef::Real(number) => Cell::Real(number),
        ValueRef::Text(text) => Cell::Text(text),
        ValueRef::Blob(bytes) => Cell::Bytes(bytes),
    };
    add_cell(sum, cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_row_is_stable() {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection).unwrap();
        let sum = |row: &str| -> i64 {
            connection.query_row(&format!("SELECT row_sum({row})"), [], |row| row.get(0)).unwrap()
        };
        assert_eq!(sum("'task', 4294967297, 0, '{\"end\":\"cancelled\"}'"), 8_245_100_590_163_630_612);
        let rows = ["NULL", "''", "x''", "0", "0.0", "'0'", "'', ''", "'a', 'b'", "'ab'", "1, 2", "2, 1"];
        let sums: std::collections::BTreeSet<i64> = rows.into_iter().map(sum).collect();
        assert_eq!(sums.len(), rows.len());
    }
}
