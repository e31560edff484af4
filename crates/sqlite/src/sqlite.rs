//! The checkpointer.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use rusqlite::Connection;
use superstep_checkpoint::{
    CheckpointError, CheckpointId, CheckpointMeta, Checkpointer, Commit, HeadState, History, Lease, Loaded,
    LoadedHead, Prune, Storage, TaskKey, TaskRecord, ThreadId,
    internal::{Heads, in_span},
};
use superstep_state::RawJson;

use crate::{
    SqliteOptions,
    database::Database,
    location::Location,
    locks::Locks,
    open,
    requests::Requests,
    stored::{Bytes, NewCheckpoint, NewRecord, NewRecords},
};

/// A checkpointer in an SQLite database.
///
/// Requests are executed one after the other, by an OS thread. A small commit or record, and the start of a run, are executed
/// on the caller's thread if the database is idle: that takes some ten microseconds, less than waking the other thread.
/// While several threads are leased, commits and records that wait at the same time share a transaction. A commit that
/// fails does not affect the others.
///
/// A request is executed even if its future is dropped, unless it still waits for its turn. Dropping the checkpointer
/// closes the file.
///
/// # Durability
/// Committed data survives any end of the process. The write-ahead log is synced when it is folded into the
/// database, and when a node requests it before an effect that must not be repeated
/// ([`sync`](Checkpointer::sync)). It is synced on each commit only with [`Synchronous::Commits`](crate::Synchronous::Commits). A power
/// failure may therefore lose the newest commits, from some commit on; it cannot damage older ones.
///
/// Each row has a checksum, and each thread and checkpoint has the number of its rows. Changed or missing
/// rows result in [`CheckpointError::Corrupt`], never in another state. A log with a damaged end is read up
/// to the damage.
///
/// # Several programs
/// Any number of programs may use the same file, unless it is opened [exclusively](SqliteOptions::exclusive).
/// [`lease`](Checkpointer::lease) takes a lock on a file in `<database>-locks/`; the operating system releases it when the
/// process ends.
///
/// # Inspection
/// `sqlite3 FILE 'SELECT * FROM history'` shows the checkpoints; see [`SCHEMA`](crate::SCHEMA).
///
/// # Example
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use superstep_sqlite::SqliteCheckpointer;
/// use superstep_checkpoint::Checkpointer;
///
/// let store = SqliteCheckpointer::in_memory()?;
/// assert_eq!(store.load(&"chat".into(), None).await?, None);
/// # Ok::<(), superstep_checkpoint::CheckpointError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SqliteCheckpointer {
    place: Arc<Location>,
    locks: Arc<Locks>,
    requests: Requests,
    heads: Arc<Mutex<Heads<CheckpointId>>>,
}

impl SqliteCheckpointer {
    /// Opens the database at `path`, and creates it if it does not exist; `:memory:` is one [in
    /// memory](Self::in_memory).
    ///
    /// The file is readable by its owner only. Its folder must exist. Blocks the calling thread. A database
    /// of an older superstep is migrated to the current schema.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if the file cannot be opened for writing, is not a database, belongs to
    /// another program or to a newer superstep.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens like [`open`](Self::open), with options.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, CheckpointError> {
        if open::is_memory(path.as_ref()) {
            return Self::in_memory();
        }
        let (connection, file) = open::for_writing(path.as_ref(), &options)?;
        Self::start(connection, Location::File(file), &options)
    }

    /// Opens the database at `path` read-only: every request to write fails.
    ///
    /// Nothing is left beside the file. An unfinished write of a killed process is completed or undone. If the file or its folder is not
    /// writable, as on a read-only medium, it is read as it is. A database of an older superstep is read in
    /// its own schema and not migrated.
    ///
    /// # Errors
    /// See [`open`](Self::open); also if the file does not exist.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        if open::is_memory(path.as_ref()) {
            return Self::in_memory();
        }
        let options = SqliteOptions::default();
        let (connection, file) = open::for_reading(path.as_ref(), &options)?;
        Self::start(connection, Location::ReadOnly(file), &options)
    }

    /// Opens a database in memory.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if there is not enough memory.
    pub fn in_memory() -> Result<Self, CheckpointError> {
        Self::start(open::in_memory()?, Location::Memory, &SqliteOptions::default())
    }

    fn start(
        connection: Connection,
        place: Location,
        options: &SqliteOptions,
    ) -> Result<Self, CheckpointError> {
        let place = Arc::new(place);
        let database = Database::new(connection, place.clone(), options);
        Ok(Self {
            locks: Arc::new(Locks::new(place.clone(), !options.exclusive)),
            requests: Requests::start(place.clone(), database)?,
            heads: Arc::new(Mutex::new(Heads::new(options.head_states_bytes))),
            place,
        })
    }

    /// Returns the path of the database; `None` if it is in memory.
    pub fn path(&self) -> Option<PathBuf> {
        self.place.file().map(Path::to_path_buf)
    }

    /// Executes a write, together with those of other runs.
    async fn write<T: Send + 'static, R: Bytes + Send + 'static>(
        &self,
        request: R,
        job: fn(&mut Database, &R) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        self.requests.write(self.locks.are_several(), request, job).await
    }

    fn heads(&self) -> MutexGuard<'_, Heads<CheckpointId>> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checkpointer for SqliteCheckpointer {
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        let thread = thread.clone();
        // A few system calls, which do not wait.
        Box::pin(async move { self.locks.acquire(&thread).map(Lease::new) })
    }

    fn has_writer(&self, thread: &ThreadId) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move { self.locks.is_held(&thread) })
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        in_span("sqlite", "load", thread, |thread| async move {
            if at.is_none() && self.requests.at_once(|database| database.is_fresh(&thread)) == Some(true) {
                return Ok(None);
            }
            self.requests.run(move |database| database.load(&thread, at)).await
        })
    }

    fn read_commit(
        &self,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> BoxFuture<'_, Result<Option<Commit>, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(self.requests.run(move |database| database.read_commit(&thread, at)))
    }

    fn load_head(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<LoadedHead>, CheckpointError>> {
        in_span("sqlite", "load", thread, |thread| async move {
            let short = self.requests.at_once(|database| database.load_short_head(&thread, &self.heads));
            if let Some(loaded) = short {
                return loaded;
            }
            let heads = self.heads.clone();
            self.requests.run(move |database| database.load_head(&thread, &heads)).await
        })
    }

    fn remember(&self, thread: &ThreadId, head: CheckpointId, state: HeadState) {
        self.heads().insert(thread.clone(), head, state);
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let key = task.clone();
        in_span("sqlite", "record", &task.thread, |_| async move {
            let new = NewRecord::new(key, &record)?;
            self.write(new, Database::record).await
        })
    }

    fn record_all(
        &self,
        thread: &ThreadId,
        checkpoint: CheckpointId,
        records: Vec<(u32, TaskRecord)>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        in_span("sqlite", "record", thread, |thread| async move {
            if records.is_empty() {
                return Ok(());
            }
            let new = NewRecords::new(thread, checkpoint, &records)?;
            self.write(new, Database::record_all).await
        })
    }

    fn add_effects(
        &self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let key = task.clone();
        in_span("sqlite", "record", &task.thread, |_| async move {
            let new = NewRecord::of_effects(key, results)?;
            self.write(new, Database::add_effects).await
        })
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        in_span("sqlite", "commit", thread, |thread| async move {
            let new = NewCheckpoint::new(thread, expected, &next)?;
            self.write(new, Database::commit).await
        })
    }

    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        in_span("sqlite", "commit", thread, |thread| async move {
            let head = expected.map_or(0, |id| id.0);
            let expected = (0u64..).map(|nth| (head + nth > 0).then_some(CheckpointId(head + nth)));
            let new = expected.zip(&next).map(|(head, next)| NewCheckpoint::new(thread.clone(), head, next));
            let new = new.collect::<Result<Vec<_>, _>>()?;
            self.write(new, Database::commit_all).await
        })
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        Box::pin(self.requests.run(Database::sync))
    }

    fn storage(&self) -> BoxFuture<'_, Result<Option<Storage>, CheckpointError>> {
        Box::pin(async { self.requests.run(|database| database.storage()).await.map(Some) })
    }

    fn verify(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        Box::pin(self.requests.run(|database| database.verify()))
    }

    fn vacuum(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        Box::pin(self.requests.run(Database::vacuum))
    }

    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(self.requests.run(move |database| database.history(&thread, &range)))
    }

    fn count(&self, thread: &ThreadId) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(self.requests.run(move |database| database.count(&thread)))
    }

    fn has_input(&self, thread: &ThreadId, id: &str) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let (thread, id) = (thread.clone(), id.to_owned());
        Box::pin(self.requests.run(move |database| database.has_input(&thread, &id)))
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        Box::pin(self.requests.run(|database| database.threads()))
    }

    fn names(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        Box::pin(self.requests.run(|database| database.names()))
    }

    fn orphans(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        Box::pin(self.requests.run(|database| database.orphans()))
    }

    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(self.requests.run(move |database| database.children(&thread)))
    }

    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let (thread, heads) = (thread.clone(), self.heads.clone());
        Box::pin(self.requests.run(move |database| {
            // Ids start again in a new thread of this name.
            heads.lock().unwrap_or_else(PoisonError::into_inner).remove(&thread);
            database.delete(&thread)
        }))
    }

    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let (from, to) = (from.clone(), to.clone());
        Box::pin(self.requests.run(move |database| database.copy(&from, &to)))
    }

    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        let heads = self.heads.clone();
        in_span("sqlite", "prune", thread, |thread| {
            self.requests.run(move |database| {
                // Snapshots are due elsewhere afterwards.
                heads.lock().unwrap_or_else(PoisonError::into_inner).remove(&thread);
                database.prune(&thread, head, &prune)
            })
        })
    }
}

impl fmt::Debug for SqliteCheckpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteCheckpointer").field("place", &self.place.to_string()).finish_non_exhaustive()
    }
}
