//! The settings of a database.
//!
//! Start at [`SqliteOptions`].

use std::time::Duration;

/// Options for opening a database.
///
/// ```
/// # use superstep_sqlite::{SqliteOptions, Synchronous};
/// let options = SqliteOptions::new().synchronous(Synchronous::Commits).max_bytes(1 << 30);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The maximum wait for another program that is writing. 5 s by default.
    pub busy_timeout: Duration,
    /// The maximum size of the database in bytes; commits that exceed it fail. Unlimited by default.
    pub max_bytes: Option<u64>,
    /// The time at which commits are written to the disk.
    pub synchronous: Synchronous,
    /// `true` if no other connection, of this program or of another, may open the database until it is closed; opening fails
    /// if there is one. Commits are a third faster, and leases need no files. `false` by default.
    pub exclusive: bool,
    /// The maximum size of the states that are retained in memory between the runs of a thread, so that a run need not fold its
    /// thread again; measured by their stored updates. 64 MiB by default; 0 retains none. A write through
    /// another connection, such as that of a store in the same file, drops them.
    pub head_states_bytes: usize,
}

/// The time at which commits are synced to the disk, so that they survive a power failure. They survive the
/// end of the process in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// A sync before a node continues that requested it (`Cx::durable`), as agents do before a tool that must
    /// not run twice, and when the write-ahead log is folded into the database. A power failure loses later
    /// commits.
    #[default]
    Effects,
    /// A sync with each commit, at the speed of the disk: `synchronous = FULL`.
    Commits,
}

impl SqliteOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self {
            busy_timeout: Duration::from_secs(5),
            max_bytes: None,
            synchronous: Synchronous::default(),
            exclusive: false,
            head_states_bytes: 64 << 20,
        }
    }
    /// Sets the maximum wait for another program that is writing.
    #[must_use]
    pub fn busy_timeout(self, wait: Duration) -> Self {
        Self { busy_timeout: wait, ..self }
    }

    /// Limits the size of the database in bytes; `None` is no limit.
    #[must_use]
    pub fn max_bytes(self, limit: impl Into<Option<u64>>) -> Self {
        Self { max_bytes: limit.into(), ..self }
    }

    /// Sets the time at which commits are written to the disk.
    #[must_use]
    pub fn synchronous(self, time: Synchronous) -> Self {
        Self { synchronous: time, ..self }
    }

    /// Lets no other connection open the database until it is closed.
    #[must_use]
    pub fn exclusive(self) -> Self {
        Self { exclusive: true, ..self }
    }

    /// Limits the size of the states that are retained in memory between the runs of a thread; 0 retains none.
    #[must_use]
    pub fn head_states_bytes(self, limit: usize) -> Self {
        Self { head_states_bytes: limit, ..self }
    }
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self::new()
    }
}
