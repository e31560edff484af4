//! The minimum cost of SQLite: the bytes that a run stores, each commit and record as one row in a
//! transaction of its own.

use std::{path::Path, sync::Arc, time::Duration};

use rusqlite::{Connection, OpenFlags};
use superstep::{Checkpointer, sqlite::SqliteCheckpointer};
use tokio::runtime::Runtime;

use crate::stopwatch::Stopwatch;

/// The data that a run stored, in order: one text for each transaction.
pub(crate) struct Rows(Vec<String>);

/// Every checkpoint as one text, then every record of a task as one. An input is stored together with its checkpoint.
const STORED: &str = "
SELECT key AS place, 0 AS nth,
    source || created_ms || control || ifnull(metadata, '') || applied || ifnull(snapshot, '')
        || iif(source = 'input', (SELECT record FROM tasks WHERE checkpoint = key), '') AS text
FROM checkpoints
UNION ALL
SELECT checkpoint, slot + 1, record FROM tasks
WHERE (SELECT source FROM checkpoints WHERE key = checkpoint) <> 'input'
ORDER BY place, nth";

impl Rows {
    /// Reads the data of the database at `path`, without the first `skipped` rows.
    pub(crate) fn read(path: &Path, skipped: usize) -> rusqlite::Result<Self> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut query = connection.prepare(STORED)?;
        let rows = query.query_map([], |row| row.get("text"))?;
        Ok(Self(rows.skip(skipped).collect::<rusqlite::Result<_>>()?))
    }

    /// Inserts the rows in a new database at `path`; returns the duration.
    fn insert(&self, path: &Path, stopwatch: &Stopwatch) -> rusqlite::Result<Duration> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch("CREATE TABLE rows (key INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT")?;
        let mut insert = connection.prepare("INSERT INTO rows (text) VALUES (?1)")?;
        stopwatch.start();
        for row in &self.0 {
            insert.execute([row])?;
        }
        Ok(stopwatch.elapsed())
    }
}

/// Opens a checkpointer on a new database at `path`.
pub(crate) fn open(path: &Path) -> Arc<dyn Checkpointer> {
    Arc::new(SqliteCheckpointer::open(path).expect("a database can be made"))
}

/// Runs the inserts on a worker thread, like the other measurements.
pub(crate) fn time(runtime: &Runtime, rows: &Arc<Rows>, path: &Path, stopwatch: &Stopwatch) -> Duration {
    let (rows, path, stopwatch) = (rows.clone(), path.to_path_buf(), stopwatch.clone());
    let inserts = async move { rows.insert(&path, &stopwatch).expect("the rows fit") };
    runtime.block_on(async { tokio::spawn(inserts).await.expect("the work does not panic") })
}
