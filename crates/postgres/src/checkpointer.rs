//! The checkpointer.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{future::BoxFuture, stream::BoxStream};
use superstep_checkpoint::{
    CheckpointError, CheckpointId, CheckpointMeta, Checkpointer, Commit, HeadState, History, Lease, Loaded,
    LoadedHead, Prune, Storage, TaskKey, TaskRecord, ThreadId,
    internal::{Heads, in_span},
};
use superstep_state::RawJson;

use crate::{
    PostgresOptions,
    database::Open,
    error, follow, inputs, leases,
    leases::LeaseGuard,
    location::Location,
    maintain, read,
    rows::ThreadRow,
    stored::{NewCheckpoint, NewRecord, NewRecords},
    whole, write,
};

/// A checkpointer in a PostgreSQL database, which several processes on several machines may use at the same time.
///
/// A commit is one statement and thus one transaction: it compares the head, checks the lease, and appends a row to the thread. Its
/// cost does not depend on the length of the thread. Requests run on an OS thread of the checkpointer, with a bounded pool of
/// connections, and are completed even if their future is dropped.
///
/// # Durability
/// An acknowledged commit is as durable as the server: with the server's default settings, it survives a crash and a power
/// failure. A request whose connection breaks is repeated for [`PostgresOptions::reconnect`]; a commit only if it was not stored.
///
/// Each row has a checksum, and each thread and checkpoint has the number of its rows. Changed or missing rows result in
/// [`CheckpointError::Corrupt`], never in another state.
///
/// # Several programs
/// [`lease`](Checkpointer::lease) makes a process the owner of a thread for [`PostgresOptions::lease`], which it renews while it runs.
/// The thread of a process that died is free when that time is over. Each write of an owner checks its token in its own
/// transaction: an owner that was stopped, and whose thread another process took over, receives
/// [`CheckpointError::LeaseLost`]. The server's clock decides.
///
/// # Inspection
/// `psql URL -c 'SELECT * FROM superstep.history'` shows the checkpoints; see [`SCHEMA`](crate::SCHEMA).
///
/// # Example
/// ```no_run
/// use superstep_postgres::PostgresCheckpointer;
///
/// let store = PostgresCheckpointer::open("postgres://app@db.example/app?sslmode=require")?;
/// # Ok::<(), superstep_checkpoint::CheckpointError>(())
/// ```
pub struct PostgresCheckpointer {
    open: Open,
    heads: Arc<Mutex<Heads<ThreadRow>>>,
}

impl PostgresCheckpointer {
    /// Connects to a database by its URL or by [`PostgresOptions`], and creates or migrates the tables. Blocks the calling thread.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if the URL is not valid, the server refuses, or the tables belong to another program or to a
    /// newer superstep. No error contains the URL.
    pub fn open(options: impl Into<PostgresOptions>) -> Result<Self, CheckpointError> {
        let options = options.into();
        let (place, _) = Location::parse(&options)?;
        Self::find(options)?.ok_or_else(|| error::not_ours(&place, "it has no tables of superstep"))
    }

    /// Connects like [`open`](Self::open). Returns `None` if the options are [read-only](PostgresOptions::read_only) and there are no
    /// tables.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn find(options: impl Into<PostgresOptions>) -> Result<Option<Self>, CheckpointError> {
        let options = options.into();
        let heads = Arc::new(Mutex::new(Heads::new(options.head_states_bytes)));
        let Some(open) = Open::new(options)? else { return Ok(None) };
        open.service.spawn(leases::renew(Arc::downgrade(&open.database)));
        open.service.spawn(follow::listen(open.database.options.clone(), open.database.followed.clone()));
        Ok(Some(Self { open, heads }))
    }

    /// Returns the random text that distinguishes this schema from others, by any name of its server. A copy of the
    /// database has the same.
    pub fn identity(&self) -> &str {
        &self.open.database.tables().identity
    }

    /// Returns whether this opening has created the tables.
    pub fn is_new(&self) -> bool {
        self.open.database.tables().are_new
    }

    pub(crate) fn opened(&self) -> &Open {
        &self.open
    }
}

/// Locks the remembered states.
fn lock(heads: &Mutex<Heads<ThreadRow>>) -> std::sync::MutexGuard<'_, Heads<ThreadRow>> {
    heads.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checkpointer for PostgresCheckpointer {
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        let (open, thread) = (self.open.clone(), thread.clone());
        // If the future is dropped, the guard is dropped with its result.
        Box::pin(async move {
            let guard: LeaseGuard = self.open.run(leases::acquire(open, thread)).await?;
            Ok(Lease::new(guard))
        })
    }

    fn has_writer(&self, thread: &ThreadId) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let (database, thread) = (self.open.database.clone(), thread.clone());
        Box::pin(self.open.run(async move { leases::is_held(&database, &thread).await }))
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        let database = self.open.database.clone();
        in_span("postgresql", "load", thread, |thread| {
            self.open.run(async move { read::load(&database, &thread, at).await })
        })
    }

    fn read_commit(
        &self,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> BoxFuture<'_, Result<Option<Commit>, CheckpointError>> {
        let (database, thread) = (self.open.database.clone(), thread.clone());
        Box::pin(self.open.run(async move { read::read_commit(&database, &thread, at).await }))
    }

    fn load_head(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<LoadedHead>, CheckpointError>> {
        let (database, heads) = (self.open.database.clone(), self.heads.clone());
        in_span("postgresql", "load", thread, |thread| {
            self.open.run(async move {
                let state = |row: &ThreadRow| lock(&heads).get(&thread, row);
                let loaded = read::load_head(&database, &thread, state).await?;
                Ok(loaded.map(|(loaded, state)| LoadedHead { loaded, state }))
            })
        })
    }

    fn remember(&self, thread: &ThreadId, head: CheckpointId, state: HeadState) {
        // Of the row that this process stored last: any other write changes it.
        if let Some(row) = self.open.database.known(thread).filter(|row| row.head() == head) {
            lock(&self.heads).insert(thread.clone(), row, state);
        }
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.record_all(&task.thread, task.checkpoint, vec![(task.slot, record)])
    }

    fn record_all(
        &self,
        thread: &ThreadId,
        checkpoint: CheckpointId,
        records: Vec<(u32, TaskRecord)>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let (database, fence) = (self.open.database.clone(), self.open.fence(thread));
        in_span("postgresql", "record", thread, |thread| async move {
            if records.is_empty() {
                return Ok(());
            }
            let new = NewRecords::new(thread, checkpoint, &records)?;
            self.open.run(async move { write::record_all(&database, &new, fence.as_ref()).await }).await
        })
    }

    fn add_effects(
        &self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let (database, fence) = (self.open.database.clone(), self.open.fence(&task.thread));
        let key = task.clone();
        in_span("postgresql", "record", &task.thread, |_| async move {
            let new = NewRecord::of_effects(key, results)?;
            self.open.run(async move { write::add_effects(&database, &new, fence.as_ref()).await }).await
        })
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let (database, fence) = (self.open.database.clone(), self.open.fence(thread));
        in_span("postgresql", "commit", thread, |thread| async move {
            let new = NewCheckpoint::new(thread, expected, &next)?;
            self.open.run(async move { write::commit_all(&database, &[new], fence.as_ref()).await }).await?;
            Ok(CheckpointId(expected.map_or(0, |id| id.0) + 1))
        })
    }

    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let (database, fence) = (self.open.database.clone(), self.open.fence(thread));
        in_span("postgresql", "commit", thread, |thread| async move {
            let head = expected.map_or(0, |id| id.0);
            let expected = (0u64..).map(|nth| head.checked_add(nth).filter(|id| *id > 0).map(CheckpointId));
            let new = expected.zip(&next).map(|(head, next)| NewCheckpoint::new(thread.clone(), head, next));
            let new = new.collect::<Result<Vec<_>, _>>()?;
            self.open.run(async move { write::commit_all(&database, &new, fence.as_ref()).await }).await
        })
    }

    fn storage(&self) -> BoxFuture<'_, Result<Option<Storage>, CheckpointError>> {
        let database = self.open.database.clone();
        Box::pin(self.open.run(async move { whole::storage(&database).await.map(Some) }))
    }

    fn vacuum(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let database = self.open.database.clone();
        Box::pin(self.open.run(async move { whole::vacuum(&database).await }))
    }

    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        let (database, thread) = (self.open.database.clone(), thread.clone());
        Box::pin(self.open.run(async move { read::history(&database, &thread, &range).await }))
    }

    fn count(&self, thread: &ThreadId) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        let (database, thread) = (self.open.database.clone(), thread.clone());
        Box::pin(self.open.run(async move { read::count(&database, &thread).await }))
    }

    fn has_input(&self, thread: &ThreadId, id: &str) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let (database, thread, id) = (self.open.database.clone(), thread.clone(), id.to_owned());
        Box::pin(self.open.run(async move { inputs::has_input(&database, &thread, &id).await }))
    }

    fn changes(&self, thread: &ThreadId) -> Option<BoxStream<'static, ()>> {
        let database = &self.open.database;
        Some(database.followed.follow(database.follow_key(thread)))
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        let database = self.open.database.clone();
        Box::pin(self.open.run(async move { read::threads(&database).await }))
    }

    fn names(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        let database = self.open.database.clone();
        Box::pin(self.open.run(async move { read::names(&database).await }))
    }

    fn orphans(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        let database = self.open.database.clone();
        Box::pin(self.open.run(async move { read::orphans(&database).await }))
    }

    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        let (database, thread) = (self.open.database.clone(), thread.clone());
        Box::pin(self.open.run(async move { read::children(&database, &thread).await }))
    }

    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let (database, fence) = (self.open.database.clone(), self.open.fence(thread));
        let thread = thread.clone();
        Box::pin(self.open.run(async move { maintain::delete(&database, &thread, fence.as_ref()).await }))
    }

    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let fences: Vec<_> = [from, to].into_iter().filter_map(|thread| self.open.fence(thread)).collect();
        let (database, from, to) = (self.open.database.clone(), from.clone(), to.clone());
        Box::pin(self.open.run(async move { maintain::copy(&database, &from, &to, &fences).await }))
    }

    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        let (database, fence) = (self.open.database.clone(), self.open.fence(thread));
        in_span("postgresql", "prune", thread, |thread| {
            self.open
                .run(async move { maintain::prune(&database, &thread, head, &prune, fence.as_ref()).await })
        })
    }
}

impl fmt::Debug for PostgresCheckpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.open.database.place.to_string();
        f.debug_struct("PostgresCheckpointer").field("place", &place).finish_non_exhaustive()
    }
}
