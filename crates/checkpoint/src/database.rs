//! A connection that knows where it leads, and the numbers of threads and checkpoints.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rusqlite::{Connection, OptionalExtension};
use superstep_graph::{CheckpointError, CheckpointId, ThreadId};

use crate::error;

/// Where a database is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    File(PathBuf),
    ReadOnly(PathBuf),
    Memory,
}

impl Place {
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) | Self::ReadOnly(path) => Some(path),
            Self::Memory => None,
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Self::ReadOnly(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file() {
            Some(path) => write!(f, "database `{}`", path.display()),
            None => f.write_str("the database in memory"),
        }
    }
}

/// The size in bytes at which the write-ahead log is to be folded: what SQLite thinks right.
const LONG_LOG: usize = 4 << 20;

/// What a small write adds to the log: a page, whole.
const PAGE: usize = 4096;

/// What the requests work on.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) connection: Connection,
    pub(crate) place: Arc<Place>,
    busy_timeout: Duration,
    waits: bool,
    /// About how many bytes the write-ahead log has that are not in the database yet.
    log: usize,
}

impl Database {
    pub(crate) fn new(connection: Connection, place: Arc<Place>, busy_timeout: Duration) -> Self {
        // As many as there are different statements, with room for more.
        connection.set_prepared_statement_cache_capacity(32);
        Self { connection, place, busy_timeout, waits: true, log: 0 }
    }

    /// Whether the next requests wait for other programs or fail at once.
    pub(crate) fn wait_for_others(&mut self, wait: bool) {
        if self.waits != wait {
            let timeout = if wait { self.busy_timeout } else { Duration::ZERO };
            self.connection.busy_timeout(timeout).expect("a connection can always be told how long to wait");
            self.waits = wait;
        }
    }

    /// Counts what a transaction wrote.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.log += bytes + PAGE;
    }

    pub(crate) fn log_is_long(&self) -> bool {
        self.log > LONG_LOG
    }

    /// Brings the write-ahead log into the database if it is long, so that it does not grow.
    pub(crate) fn fold_long_log(&mut self) {
        if self.log_is_long() {
            self.log = 0;
            // What stays in the log because someone reads it, or because it cannot be synced, is not lost. SQLite itself
            // tries again, in a commit that then says what is wrong.
            let _ = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    }
}

/// The rows of one thread: its checkpoints have the keys `base + id`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadKey(i64);

impl ThreadKey {
    pub(crate) fn find(
        connection: &Connection,
        place: &Place,
        thread: &ThreadId,
    ) -> Result<Option<Self>, CheckpointError> {
        connection
            .prepare_cached("SELECT key FROM threads WHERE name = ?1")
            .and_then(|mut find| find.query_row([thread.as_str()], |row| row.get(0)).optional())
            .map(|key| key.map(Self))
            .map_err(|cause| error::database(place, &format!("look up thread `{thread}`"), cause))
    }

    /// The threads of a thread's subgraphs, by name.
    pub(crate) fn under(
        connection: &Connection,
        thread: &ThreadId,
    ) -> rusqlite::Result<Vec<(Self, ThreadId)>> {
        // Names that begin with the thread's and the separator of subgraphs, which is right before the space.
        let [first, end] = ['\u{1f}', ' '].map(|end| format!("{}{end}", thread.as_str()));
        let mut find = connection
            .prepare_cached("SELECT key, name FROM threads WHERE name >= ?1 AND name < ?2 ORDER BY name")?;
        let found =
            find.query_map([first, end], |row| Ok((Self(row.get(0)?), row.get::<_, String>(1)?.into())))?;
        found.collect()
    }

    /// Deletes the thread, and not those under it.
    pub(crate) fn delete(self, connection: &Connection) -> rusqlite::Result<()> {
        let range = [self.first(), self.last()];
        connection.execute("DELETE FROM tasks WHERE checkpoint BETWEEN ?1 AND ?2", range)?;
        connection.execute("DELETE FROM checkpoints WHERE key BETWEEN ?1 AND ?2", range)?;
        connection.execute("DELETE FROM threads WHERE key = ?1", [self.0])?;
        Ok(())
    }

    /// The key of the thread itself.
    pub(crate) fn number(self) -> i64 {
        self.0
    }

    /// The key of a checkpoint; `None` if no thread can have it.
    pub(crate) fn checkpoint(self, id: CheckpointId) -> Option<i64> {
        u32::try_from(id.0).ok().map(|id| self.first() | i64::from(id))
    }

    /// The least key that a checkpoint of this thread can have.
    pub(crate) fn first(self) -> i64 {
        self.0 << 32
    }

    /// The greatest.
    pub(crate) fn last(self) -> i64 {
        self.first() | i64::from(u32::MAX)
    }
}

/// The id of the checkpoint with this key.
pub(crate) fn id_of(key: i64) -> CheckpointId {
    CheckpointId((key & i64::from(u32::MAX)).unsigned_abs())
}
