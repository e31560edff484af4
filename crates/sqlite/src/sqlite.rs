//! The checkpointer, and the thread that owns its connection.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use futures::future::BoxFuture;
use rusqlite::Connection;
use superstep_checkpoint::{
    CheckpointError, CheckpointId, CheckpointMeta, Checkpointer, Commit, HeadState, History, Lease, Loaded,
    LoadedHead, Prune, TaskKey, TaskRecord, ThreadId,
};
use superstep_state::RawJson;
use tokio::sync::{mpsc, oneshot};

use crate::{
    SqliteOptions,
    database::Database,
    error,
    heads::Heads,
    location::Location,
    locks::Locks,
    open,
    stored::{Bytes, NewCheckpoint, NewRecord, NewRecords},
};

/// The maximum number of requests that wait for the database; further ones wait for space in the queue.
const QUEUE: usize = 256;

/// The maximum size of a small commit or record, in bytes.
const SMALL: usize = 64 * 1024;

/// A checkpointer in an SQLite database.
///
/// An OS thread executes the requests one after the other. A small commit or record runs directly on the
/// caller's thread if the database is idle: that takes some ten microseconds, less than waking the other
/// thread. A sent request is executed even if its future is dropped. Dropping the checkpointer finishes all
/// requests and closes the file.
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
/// Any number of programs may use the same file. [`lease`](Checkpointer::lease) locks a file in
/// `<database>-locks/`; the operating system releases the lock when the process ends.
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
    shared: Arc<Shared>,
    heads: Arc<Mutex<Heads>>,
    jobs: Option<mpsc::Sender<Job>>,
    worker: Option<JoinHandle<()>>,
}

struct Shared {
    database: Mutex<Database>,
    /// `true` while the worker executes a job, which may have to wait.
    at_work: AtomicBool,
}

type Job = Box<dyn FnOnce(&mut Database) + Send>;

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
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, CheckpointError> {
        if open::is_memory(path.as_ref()) {
            return Self::in_memory();
        }
        let (connection, file) = open::for_writing(path.as_ref(), &options)?;
        Self::start(connection, Location::File(file), &options)
    }

    /// Opens the database at `path` read-only: every request to write fails.
    ///
    /// An unfinished write of a killed process is completed or undone. If the file or its folder is not
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
        let (jobs, mut asked) = mpsc::channel::<Job>(QUEUE);
        let database = Mutex::new(Database::new(connection, place.clone(), options));
        let shared = Arc::new(Shared { database, at_work: AtomicBool::new(false) });
        let served = shared.clone();
        let worker = thread::Builder::new().name("superstep-sqlite".into()).spawn(move || {
            while let Some(job) = asked.blocking_recv() {
                served.at_work.store(true, Ordering::Relaxed);
                let mut database = served.database.lock().unwrap_or_else(PoisonError::into_inner);
                database.wait_for_others(true);
                job(&mut database);
                // After the answer, because a sync takes time.
                database.fold_long_log();
                served.at_work.store(false, Ordering::Relaxed);
            }
        });
        Ok(Self {
            locks: Arc::new(Locks::new(place.clone())),
            shared,
            heads: Arc::new(Mutex::new(Heads::new(options.head_states_bytes))),
            jobs: Some(jobs),
            worker: Some(worker.map_err(|cause| error::no_worker(&place, cause))?),
            place,
        })
    }

    /// Returns the path of the database; `None` if it is in memory.
    pub fn path(&self) -> Option<PathBuf> {
        self.place.file().map(Path::to_path_buf)
    }

    /// Executes a request in its turn.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Database) -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |database| {
            // The caller may have dropped its future.
            let _ = answer.send(job(database));
        });
        self.jobs().send(job).await.map_err(|_| error::worker_ended(&self.place))?;
        answered.await.map_err(|_| error::worker_ended(&self.place))?
    }

    /// Performs a write on this thread if it is small and the database is idle; otherwise sends it to the
    /// worker.
    async fn write<T: Send + 'static, R: Bytes + Send + 'static>(
        &self,
        request: R,
        job: fn(&mut Database, &R) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        if request.bytes() <= SMALL
            && let Some(answer) = self.at_once(&request, job)
        {
            return answer;
        }
        self.run(move |database| job(database, &request)).await
    }

    fn at_once<T, R: Bytes>(
        &self,
        request: &R,
        job: fn(&mut Database, &R) -> Result<T, CheckpointError>,
    ) -> Option<Result<T, CheckpointError>> {
        // Requests in the queue come first; a lock alone would not ensure this.
        let queued = self.jobs().capacity() < self.jobs().max_capacity();
        if queued || self.shared.at_work.load(Ordering::Relaxed) {
            return None;
        }
        let mut database = match self.shared.database.try_lock() {
            Ok(database) => database,
            Err(TryLockError::Poisoned(database)) => database.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if database.log_is_long() {
            // The worker should fold it.
            return None;
        }
        // Another program may lock the file for long. The worker can wait for it, this thread must not.
        database.wait_for_others(false);
        match job(&mut database, request) {
            Err(error) if error::is_busy(&error) => None,
            answer => Some(answer),
        }
    }

    fn heads(&self) -> MutexGuard<'_, Heads> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn jobs(&self) -> &mpsc::Sender<Job> {
        self.jobs.as_ref().expect("the queue lasts until the checkpointer is dropped")
    }
}

impl Checkpointer for SqliteCheckpointer {
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        let thread = thread.clone();
        let locks = self.locks.clone();
        Box::pin(self.run(move |_| Ok(Lease::new(locks.acquire(&thread)?))))
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(self.run(move |database| database.load(&thread, at)))
    }

    fn load_head(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<LoadedHead>, CheckpointError>> {
        let (thread, heads) = (thread.clone(), self.heads.clone());
        Box::pin(self.run(move |database| database.load_head(&thread, &heads)))
    }

    fn remember(&self, thread: &ThreadId, head: CheckpointId, state: HeadState) {
        self.heads().insert(thread.clone(), head, state);
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let task = task.clone();
        Box::pin(async move {
            let new = NewRecord::new(task, &record)?;
            self.write(new, Database::record).await
        })
    }

    fn record_all(
        &self,
        thread: &ThreadId,
        checkpoint: CheckpointId,
        records: Vec<(u32, TaskRecord)>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
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
        let task = task.clone();
        Box::pin(async move {
            let new = NewRecord::of_effects(task, results)?;
            self.write(new, Database::add_effects).await
        })
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
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
        let thread = thread.clone();
        Box::pin(async move {
            let head = expected.map_or(0, |id| id.0);
            let expected = (0u64..).map(|nth| (head + nth > 0).then_some(CheckpointId(head + nth)));
            let new = expected.zip(&next).map(|(head, next)| NewCheckpoint::new(thread.clone(), head, next));
            let new = new.collect::<Result<Vec<_>, _>>()?;
            self.write(new, Database::commit_all).await
        })
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        Box::pin(self.run(Database::sync))
    }

    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(self.run(move |database| database.history(&thread, &range)))
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        Box::pin(self.run(|database| database.threads()))
    }

    fn names(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        Box::pin(self.run(|database| database.names()))
    }

    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(self.run(move |database| database.children(&thread)))
    }

    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let (thread, heads) = (thread.clone(), self.heads.clone());
        Box::pin(self.run(move |database| {
            // Ids start again in a new thread of this name.
            heads.lock().unwrap_or_else(PoisonError::into_inner).remove(&thread);
            database.delete(&thread)
        }))
    }

    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let (from, to) = (from.clone(), to.clone());
        Box::pin(self.run(move |database| database.copy(&from, &to)))
    }

    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        let (thread, heads) = (thread.clone(), self.heads.clone());
        Box::pin(self.run(move |database| {
            // Snapshots are due elsewhere afterwards.
            heads.lock().unwrap_or_else(PoisonError::into_inner).remove(&thread);
            database.prune(&thread, head, &prune)
        }))
    }
}

impl Drop for SqliteCheckpointer {
    fn drop(&mut self) {
        // The worker ends when no caller is left; then the connection closes and folds the write-ahead log.
        drop(self.jobs.take());
        if let Some(worker) = self.worker.take() {
            // Callers have received its panic, if any: their requests failed.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for SqliteCheckpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteCheckpointer").field("place", &self.place.to_string()).finish_non_exhaustive()
    }
}
