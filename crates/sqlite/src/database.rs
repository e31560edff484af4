//! A connection with its location, and the numbers of threads and checkpoints.

use std::{cell::Cell, fs::File, io, path::Path, sync::Arc, time::Duration};

use rusqlite::{Connection, OptionalExtension, Row};
use superstep_checkpoint::{CheckpointError, CheckpointId, ThreadId};

use crate::{
    SqliteOptions, Synchronous, checksum,
    error::{self, Failed},
    location::{Location, beside},
    stored::{self, Counts},
};

/// The size in bytes at which the write-ahead log is folded: SQLite's own default.
const LONG_LOG: usize = 4 << 20;

/// The size that a small write adds to the log: a whole page.
const PAGE: usize = 4096;

/// The connection and its state, for all requests.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) connection: Connection,
    pub(crate) place: Arc<Location>,
    pub(crate) names: Names,
    /// `true` while several writes share a transaction.
    in_group: bool,
    busy_timeout: Duration,
    waits: bool,
    /// The approximate number of bytes in the write-ahead log.
    log: usize,
    sync: Synced,
    /// `true` if the folder entry of the log survives a power failure. The log exists until the last connection is closed.
    log_is_linked: bool,
}

/// The data that is known to survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Synced {
    /// All data, always.
    Always,
    /// All data so far.
    Done,
    /// All data but the last writes.
    Due,
}

/// The result of several writes in one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Committed,
    /// The database was not changed.
    Undone,
    /// The request was not executed, because another program has the database locked.
    Busy,
}

impl Database {
    pub(crate) fn new(connection: Connection, place: Arc<Location>, options: &SqliteOptions) -> Self {
        // One for each statement, with a reserve.
        connection.set_prepared_statement_cache_capacity(64);
        let sync = match (&*place, options.synchronous) {
            (Location::File(_), Synchronous::Effects) => Synced::Due,
            _ => Synced::Always,
        };
        Self {
            connection,
            place,
            names: Names::default(),
            in_group: false,
            busy_timeout: options.busy_timeout,
            waits: true,
            log: 0,
            sync,
            log_is_linked: false,
        }
    }

    /// Runs a write in a transaction: that of the current group, or one of its own. `action` names it in errors.
    pub(crate) fn write<T>(
        &mut self,
        action: impl FnOnce() -> String,
        job: impl FnOnce(&Self) -> Result<T, Failed>,
    ) -> Result<T, CheckpointError> {
        self.writable()?;
        self.try_write(job).map_err(|failed| failed.into_error(&self.place, &action()))
    }

    fn try_write<T>(&self, job: impl FnOnce(&Self) -> Result<T, Failed>) -> Result<T, Failed> {
        if self.in_group {
            return job(self);
        }
        self.execute("BEGIN IMMEDIATE")?;
        let done = job(self).and_then(|done| {
            self.execute("COMMIT")?;
            Ok(done)
        });
        if done.is_err() {
            self.roll_back();
        }
        done
    }

    /// Runs several writes in one transaction. It is undone if `job` returns `false`.
    pub(crate) fn group(&mut self, job: impl FnOnce(&mut Self) -> bool) -> Group {
        match self.execute("BEGIN IMMEDIATE") {
            Ok(()) => {}
            Err(cause) if error::is_refused_as_busy(&cause) => return Group::Busy,
            Err(_) => return Group::Undone,
        }
        self.in_group = true;
        let is_complete = job(self);
        self.in_group = false;
        // Some errors of the disk end the transaction.
        let is_open = !self.connection.is_autocommit();
        if is_complete && is_open && self.execute("COMMIT").is_ok() {
            return Group::Committed;
        }
        self.roll_back();
        Group::Undone
    }

    /// Undoes a write that ended with a panic.
    pub(crate) fn end_interrupted_write(&mut self) {
        self.in_group = false;
        self.roll_back();
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            // Fails if an error of the disk has already undone the transaction.
            let _ = self.execute("ROLLBACK");
        }
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }

    /// Rejects a write to a database that was opened for reading; otherwise marks it as written.
    pub(crate) fn writable(&mut self) -> Result<(), CheckpointError> {
        if self.place.is_read_only() {
            return Err(error::read_only(&self.place));
        }
        if self.sync == Synced::Done {
            self.sync = Synced::Due;
        }
        Ok(())
    }

    /// Makes all written data survive a power failure.
    pub(crate) fn sync(&mut self) -> Result<(), CheckpointError> {
        if let (Synced::Due, Location::File(file)) = (self.sync, &*self.place) {
            // Data outside the log was synced when it was folded into the database.
            let refused = |cause| error::cannot_sync(&self.place, cause);
            let has_log = sync_file(&beside(file, "-wal")).map_err(refused)?;
            if cfg!(unix) && !self.log_is_linked {
                sync_file(file.parent().unwrap_or(Path::new("/"))).map_err(refused)?;
                self.log_is_linked = has_log;
            }
            self.sync = Synced::Done;
        }
        Ok(())
    }

    /// Sets whether the next requests wait for other programs or fail immediately.
    pub(crate) fn wait_for_others(&mut self, wait: bool) {
        if self.waits != wait {
            let timeout = if wait { self.busy_timeout } else { Duration::ZERO };
            self.connection.busy_timeout(timeout).expect("a connection can always be told how long to wait");
            self.waits = wait;
        }
    }

    /// Counts the bytes of a transaction.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.log += bytes + PAGE;
    }

    pub(crate) fn log_is_long(&self) -> bool {
        self.log > LONG_LOG
    }

    /// Folds the write-ahead log into the database if it is long, so that it does not grow.
    pub(crate) fn fold_long_log(&mut self) {
        if self.log_is_long() {
            self.log = 0;
            // Data that stays in the log, because of a reader or because it cannot be synced, is not lost.
            // SQLite itself tries again in a later commit, which then reports the error.
            let _ = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    }
}

/// Syncs a file, and returns whether it exists.
fn sync_file(path: &Path) -> io::Result<bool> {
    match File::open(path) {
        Ok(file) => file.sync_data().map(|()| true),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(cause),
    }
}

// A thread that the index does not have may be in the table, if the index is damaged; each new thread would search the whole
// table for its name, and 10,000 new threads 10,000 times. After eight searches a connection compares table and index as a
// whole, and then relies on SQLite, which changes both together.

/// The knowledge whether the index of names has all threads.
#[derive(Debug, Default)]
pub(crate) struct Names {
    searches: Cell<u32>,
    agree: Cell<bool>,
}

impl Names {
    /// The number of searches before the comparison.
    const SEARCHES: u32 = 8;

    /// Returns whether a thread that the index lacks is in the table.
    fn are_hiding(&self, connection: &Connection, thread: &ThreadId) -> rusqlite::Result<bool> {
        if self.agree.get() {
            return Ok(false);
        }
        if self.searches.get() == Self::SEARCHES {
            let sum = |by| format!("(SELECT sum(row_sum('name', key, name) & 0xffffffff) FROM threads {by})");
            let (table, index) = (sum("NOT INDEXED"), sum("INDEXED BY sqlite_autoindex_threads_1"));
            let agree = connection.query_row(&format!("SELECT {table} IS {index}"), [], |row| row.get(0))?;
            self.agree.set(agree);
            if agree {
                return Ok(false);
            }
        }
        // Beyond the limit if they disagree: then each name is searched.
        self.searches.set(self.searches.get().saturating_add(1));
        connection
            .prepare_cached("SELECT 1 FROM threads NOT INDEXED WHERE name = ?1")
            .and_then(|mut there| there.exists([thread.as_str()]))
    }
}

/// A row of the table `threads`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadRow {
    pub(crate) key: ThreadKey,
    /// The newest checkpoint.
    pub(crate) head: CheckpointId,
    /// The number of checkpoints.
    pub(crate) checkpoints: u64,
    /// The number of checkpoints that do not follow the one committed before them.
    branched: u64,
}

impl ThreadRow {
    pub(crate) fn find(
        connection: &Connection,
        place: &Location,
        names: &Names,
        thread: &ThreadId,
    ) -> Result<Option<Self>, CheckpointError> {
        let refused = |cause| error::database(place, &format!("look up thread `{thread}`"), cause);
        let found = connection
            .prepare_cached(
                "SELECT key, name, head, checkpoints, branched, checksum FROM threads WHERE name = ?1",
            )
            .and_then(|mut find| find.query_row([thread.as_str()], |row| Ok(Self::read(row))).optional());
        match found.map_err(refused)? {
            Some(Ok(row)) => Ok(Some(row)),
            Some(Err(cause)) => Err(error::damaged_thread(place, thread, cause)),
            None => {
                if names.are_hiding(connection, thread).map_err(refused)? {
                    Err(error::damaged_thread(place, thread, "the index of names does not have it"))
                } else {
                    Ok(None)
                }
            }
        }
    }

    /// Reads the row from a query like that of [`find`](Self::find).
    pub(crate) fn read(row: &Row<'_>) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let (key, name) = (row.get(0)?, row.get_ref(1)?.as_str()?);
        let counts = [row.get(2)?, row.get(3)?, row.get(4)?];
        if row.get::<_, i64>(5)? != checksum::of_thread(key, name, counts) {
            return Err(stored::CHECKSUM.into());
        }
        let [head, checkpoints, branched] = counts.map(|count| u32::try_from(count).map(u64::from));
        let head = CheckpointId(head?);
        Ok(Self { key: ThreadKey(key), head, checkpoints: checkpoints?, branched: branched? })
    }

    /// Rejects a table of threads whose number of rows differs from that of its index.
    pub(crate) fn check_all(connection: &Connection, place: &Location) -> Result<(), CheckpointError> {
        let refused = |cause| error::database(place, "count the threads", cause);
        let counts = connection.prepare_cached(
            "SELECT (SELECT count(*) FROM threads NOT INDEXED) = (SELECT count(*) FROM threads INDEXED BY sqlite_autoindex_threads_1)",
        );
        if counts.and_then(|mut counts| counts.query_row([], |row| row.get(0))).map_err(refused)? {
            Ok(())
        } else {
            Err(error::damaged_threads(place))
        }
    }

    /// Adds a thread without checkpoints. Its key is behind those of all rows, so that it has none of a thread that is not there.
    pub(crate) fn add(connection: &Connection, thread: &ThreadId) -> rusqlite::Result<Self> {
        let key: i64 = connection
            .prepare_cached(
                "SELECT 1 + max(
                    coalesce((SELECT max(key) FROM threads), 0),
                    coalesce((SELECT max(key) >> 32 FROM checkpoints), 0),
                    coalesce((SELECT max(checkpoint) >> 32 FROM tasks), 0),
                    coalesce((SELECT max(checkpoint) >> 32 FROM task_sums), 0)
                )",
            )?
            .query_row([], |row| row.get(0))?;
        let row = Self { key: ThreadKey(key), head: CheckpointId(0), checkpoints: 0, branched: 0 };
        row.store(connection, thread)?;
        Ok(row)
    }

    /// Records a new checkpoint of the thread as its head.
    pub(crate) fn grow(
        &mut self,
        connection: &Connection,
        thread: &ThreadId,
        head: CheckpointId,
        parent: Option<CheckpointId>,
    ) -> rusqlite::Result<()> {
        self.head = head;
        self.checkpoints += 1;
        self.branched += u64::from(parent.is_some_and(|parent| parent.0 + 1 != head.0));
        self.store(connection, thread)
    }

    /// Recounts the thread's checkpoints.
    pub(crate) fn recount(mut self, connection: &Connection, thread: &ThreadId) -> rusqlite::Result<()> {
        self.checkpoints =
            self.count(connection, "SELECT count(*) FROM checkpoints WHERE key BETWEEN ?1 AND ?2")?;
        self.branched = self.count(
            connection,
            "SELECT count(*) FROM checkpoints WHERE key BETWEEN ?1 AND ?2 AND parent <> id - 1",
        )?;
        self.store(connection, thread)
    }

    fn count(&self, connection: &Connection, sql: &str) -> rusqlite::Result<u64> {
        let range = [self.key.first(), self.key.last()];
        connection.query_row(sql, range, |row| row.get::<_, u32>(0)).map(u64::from)
    }

    fn store(&self, connection: &Connection, thread: &ThreadId) -> rusqlite::Result<()> {
        let counts = [self.head.0, self.checkpoints, self.branched]
            .map(|count| i64::try_from(count).expect("checkpoints are counted in 32 bits"));
        let (key, name, [head, checkpoints, branched]) = (self.key.0, thread.as_str(), counts);
        let checksum = checksum::of_thread(key, name, counts);
        connection
            .prepare_cached(
                "INSERT INTO threads (key, name, head, checkpoints, branched, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (key) DO UPDATE SET head = excluded.head, checkpoints = excluded.checkpoints,
                     branched = excluded.branched, checksum = excluded.checksum",
            )?
            .execute((key, name, head, checkpoints, branched, checksum))
            .map(drop)
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts { head: self.head, checkpoints: self.checkpoints, branched: self.branched }
    }
}

/// The key of a thread's rows: its checkpoints have the keys `base + id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadKey(i64);

impl ThreadKey {
    /// Returns the thread's key, however damaged its row is.
    pub(crate) fn find_any(connection: &Connection, thread: &ThreadId) -> rusqlite::Result<Option<Self>> {
        let mut find = connection.prepare_cached("SELECT key FROM threads NOT INDEXED WHERE name = ?1")?;
        find.query_row([thread.as_str()], |row| row.get(0).map(Self)).optional()
    }

    /// Returns the threads of a thread's subgraphs, by name, from the table.
    pub(crate) fn under(
        connection: &Connection,
        thread: &ThreadId,
    ) -> rusqlite::Result<Vec<(Self, ThreadId)>> {
        Self::under_by(connection, thread, "NOT INDEXED")
    }

    /// Returns the same threads by the index of names if it is known to have all of them.
    pub(crate) fn known_under(
        connection: &Connection,
        names: &Names,
        thread: &ThreadId,
    ) -> rusqlite::Result<Vec<(Self, ThreadId)>> {
        let by = if names.agree.get() { "INDEXED BY sqlite_autoindex_threads_1" } else { "NOT INDEXED" };
        Self::under_by(connection, thread, by)
    }

    /// Returns the same threads if the index of names agrees; a thread missing from one of the two is damage.
    pub(crate) fn checked_under(
        connection: &Connection,
        place: &Location,
        thread: &ThreadId,
    ) -> Result<Vec<(Self, ThreadId)>, CheckpointError> {
        let refused =
            |cause| error::database(place, &format!("list the subgraphs of thread `{thread}`"), cause);
        let found = Self::under(connection, thread).map_err(refused)?;
        let indexed =
            Self::under_by(connection, thread, "INDEXED BY sqlite_autoindex_threads_1").map_err(refused)?;
        if found == indexed { Ok(found) } else { Err(error::damaged_threads(place)) }
    }

    fn under_by(
        connection: &Connection,
        thread: &ThreadId,
        by: &str,
    ) -> rusqlite::Result<Vec<(Self, ThreadId)>> {
        // Names that begin with the thread's name and the separator of subgraphs, which directly precedes the
        // space.
        let [first, end] = ['\u{1f}', ' '].map(|end| format!("{}{end}", thread.as_str()));
        let sql = format!("SELECT key, name FROM threads {by} WHERE name >= ?1 AND name < ?2 ORDER BY name");
        let mut find = connection.prepare_cached(&sql)?;
        let found =
            find.query_map([first, end], |row| Ok((Self(row.get(0)?), row.get::<_, String>(1)?.into())))?;
        found.collect()
    }

    /// Deletes the thread without its subgraphs.
    pub(crate) fn delete(self, connection: &Connection) -> rusqlite::Result<()> {
        let range = [self.first(), self.last()];
        connection.execute("DELETE FROM tasks WHERE checkpoint BETWEEN ?1 AND ?2", range)?;
        connection.execute("DELETE FROM task_sums WHERE checkpoint BETWEEN ?1 AND ?2", range)?;
        connection.execute("DELETE FROM checkpoints WHERE key BETWEEN ?1 AND ?2", range)?;
        connection.execute("DELETE FROM threads WHERE key = ?1", [self.0])?;
        Ok(())
    }

    /// Returns the key of the thread itself.
    pub(crate) fn number(self) -> i64 {
        self.0
    }

    /// Returns the key of a checkpoint; `None` if no thread can have it.
    pub(crate) fn checkpoint(self, id: CheckpointId) -> Option<i64> {
        u32::try_from(id.0).ok().map(|id| self.first() | i64::from(id))
    }

    /// Returns the least key that a checkpoint of this thread can have.
    pub(crate) fn first(self) -> i64 {
        self.0 << 32
    }

    /// Returns the greatest key of this thread.
    pub(crate) fn last(self) -> i64 {
        self.first() | i64::from(u32::MAX)
    }
}

/// Returns the id of the checkpoint with this key.
pub(crate) fn id_of(key: i64) -> CheckpointId {
    CheckpointId((key & i64::from(u32::MAX)).unsigned_abs())
}
