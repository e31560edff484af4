//! A connection that knows where it leads, and the numbers of threads and checkpoints.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
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

/// What the requests work on.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) connection: Connection,
    pub(crate) place: Arc<Place>,
}

impl Database {
    pub(crate) fn new(connection: Connection, place: Arc<Place>) -> Self {
        // As many as there are different statements, with room for more.
        connection.set_prepared_statement_cache_capacity(32);
        Self { connection, place }
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
