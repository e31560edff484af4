//! The storage of threads.
//!
//! Start at [`Checkpointer`].

use std::{any::Any, collections::BTreeMap, fmt};

use futures::{future::BoxFuture, stream::BoxStream};
use rand::{TryRng as _, rngs::SysRng};
use superstep_state::RawJson;

use crate::{
    CheckpointError, History, Prune,
    commit::{CheckpointMeta, Commit, Loaded, own::keys_of},
    head_state::{HeadState, LoadedHead},
    history::has_input,
    ids::{CheckpointId, ThreadId},
    record::{TaskKey, TaskRecord},
};

/// The size and the format of a checkpointer's storage.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Storage {
    /// The kind of database, such as `SQLite`.
    pub kind: &'static str,
    /// The version of the tables.
    pub version: u32,
    /// The size in bytes, with indexes, free space and other data that is stored there, such as memories.
    pub bytes: u64,
    /// The part of it that [`vacuum`](Checkpointer::vacuum) would return to the disk, in bytes; `None` if that is unknown.
    pub free_bytes: Option<u64>,
}

impl Storage {
    /// Creates the description of a database.
    pub fn new(kind: &'static str, version: u32, bytes: u64, free_bytes: Option<u64>) -> Self {
        Self { kind, version, bytes, free_bytes }
    }
}

/// A storage backend of threads: durable lines of checkpoints, each with one writer.
///
/// A checkpoint is a state and a control record. The state is stored as changes: the updates of its
/// superstep, and occasionally, if [`Commit::snapshot`] has one, the full value of every channel. Loading a
/// checkpoint reads the nearest snapshot before it and the updates since.
///
/// # Contract
/// - [`commit`](Self::commit) is atomic, and succeeds only if `expected` is still the head of the thread.
/// - Ids count up by one in the order of commits on a thread, from 1, and are never reused, so that branches
///   have different ids.
/// - Stored data is immutable, with two exceptions: [`record`](Self::record) replaces the record of the same
///   task while its checkpoint is the head, or [`add_effects`](Self::add_effects) adds to it; and
///   [`prune`](Self::prune) may add a snapshot to a checkpoint and change its metadata.
/// - A future that is dropped before it is ready may or may not have taken effect.
/// - A thread of a subgraph ([`ThreadId::child`]) is stored like any other, but belongs to its root: it has
///   no writer of its own, is not listed, and is deleted with any thread above it, in one transaction.
/// - [`superstep_testing`](https://docs.rs/superstep-testing) has the conformance suite for implementations.
pub trait Checkpointer: Send + Sync + 'static {
    /// Makes the caller the only writer of the thread until the [`Lease`] is dropped or its process ends.
    /// Does not wait for another writer, and does not create the thread.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if the thread has another writer.
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>>;

    /// Returns whether the thread has a writer, in this process or another one. A backend that was opened for reading must know it too.
    ///
    /// The default implementation takes the [lease](Self::lease) for a moment.
    // Backends override it: a lease that is held for a moment refuses a run that begins just then, and needs a
    // database that can be written.
    fn has_writer(&self, thread: &ThreadId) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let lease = self.lease(thread);
        Box::pin(async {
            match lease.await {
                Ok(_) => Ok(false),
                Err(CheckpointError::Busy { .. }) => Ok(true),
                Err(error) => Err(error),
            }
        })
    }

    /// Loads the checkpoint `at`, or the head. `None` if the thread or checkpoint does not exist.
    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>>;

    /// Reads a checkpoint as it was committed: its own updates and snapshot without the path to its state, and the
    /// records of its tasks without those that a later checkpoint applied. `None` if it does not exist.
    ///
    /// It is for programs that copy a thread, such as [`text::export`](crate::text::export). If the parent was pruned, the
    /// updates may be empty.
    ///
    /// The default implementation [loads](Self::load) the checkpoint and its parent, which costs more with each commit since
    /// the last snapshot, and returns applied updates among the records as well.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] from the default implementation if a snapshot hides the updates.
    fn read_commit(
        &self,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> BoxFuture<'_, Result<Option<Commit>, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let Some(loaded) = self.load(&thread, Some(at)).await? else { return Ok(None) };
            let parent = match loaded.meta.parent.filter(|_| !loaded.meta.parent_pruned) {
                Some(parent) => self.load(&thread, Some(parent)).await?,
                None => None,
            };
            Commit::of_loaded(&thread, loaded, parent).map(Some)
        })
    }

    /// Loads the head. If a state was [remembered](Self::remember) for exactly this checkpoint, returns it, and may leave
    /// out [`Loaded::snapshot`] and [`Loaded::commits`].
    ///
    /// A state that is no longer known for certain to be that of the head is not returned, for example because the
    /// thread was deleted or pruned, or another process has written. The default implementation calls
    /// [`load`](Self::load).
    fn load_head(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<LoadedHead>, CheckpointError>> {
        let loaded = self.load(thread, None);
        Box::pin(async { Ok(loaded.await?.map(|loaded| LoadedHead { loaded, state: None })) })
    }

    /// Accepts the state of the checkpoint `head` for the next [`load_head`](Self::load_head), from the writer of the
    /// thread, which has its lease: nothing deletes, copies or prunes the thread meanwhile. The default implementation drops
    /// it, which costs the next run a fold of the thread.
    ///
    /// An implementation limits the total [size](HeadState::bytes) of the states that it retains, unless they are part of
    /// the threads that it has in memory.
    fn remember(&self, thread: &ThreadId, head: CheckpointId, state: HeadState) {
        let _ = (thread, head, state);
    }

    /// Returns whether this stores typed updates and snapshots, which are encoded when they are read. The default is
    /// `false`: the driver encodes them, and checks that they can be read back.
    fn keeps_values(&self) -> bool {
        false
    }

    /// Stores the record of a task of the head before its superstep ends. Replaces an earlier record of the
    /// task.
    ///
    /// # Errors
    /// [`CheckpointError::Conflict`] if the task's checkpoint is not the head.
    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>>;

    /// Stores the records of several tasks of one checkpoint, by slot, as [`record`](Self::record) does. The driver calls
    /// it for tasks that end together.
    ///
    /// The default implementation calls `record` for each, in order. A backend with transactions stores them in one.
    ///
    /// # Errors
    /// Those of [`record`](Self::record). Earlier records of the list may then be stored.
    fn record_all(
        &self,
        thread: &ThreadId,
        checkpoint: CheckpointId,
        records: Vec<(u32, TaskRecord)>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            for (slot, record) in records {
                self.record(&TaskKey { thread: thread.clone(), checkpoint, slot }, record).await?;
            }
            Ok(())
        })
    }

    /// Adds results of effects to the record of an unfinished task of the head, as if the record with all its results
    /// replaced the earlier one. Returns `false` without an effect if the task has no such record, or if the backend
    /// stores whole records only, which is the default; the caller then stores the record.
    ///
    /// # Errors
    /// [`CheckpointError::Conflict`] if the task's checkpoint is not the head.
    fn add_effects(
        &self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let _ = (task, results);
        Box::pin(std::future::ready(Ok(false)))
    }

    /// Returns a nonce that distinguishes a new thread from deleted threads of the same name; see `Cx::key`.
    /// Called once, before the first commit of a thread, and stored with that commit.
    ///
    /// `None` if no thread of this name was ever deleted. The default implementation draws a random number,
    /// which stays unique even if the store is lost.
    fn nonce(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<String>, CheckpointError>> {
        let _ = thread;
        Box::pin(async { drawn().map(Some) })
    }

    /// Appends a checkpoint and makes it the head.
    ///
    /// # Errors
    /// [`CheckpointError::Conflict`] if `expected` is not the head. [`CheckpointError::Storage`] if the
    /// parent does not exist, or a task is applied as recorded and has no finished record under the parent.
    /// [`CheckpointError::Leftovers`] if it is the first checkpoint of a thread of no subgraph, and threads below it are stored.
    /// The store is then unchanged.
    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>>;

    /// Appends several consecutive checkpoints, atomically.
    ///
    /// # Shape
    /// The first follows any checkpoint, as with [`commit`](Self::commit). Later ones may also follow earlier
    /// ones of the list, whose ids continue from `expected`. An empty list has no effect.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>>;

    /// Waits until all data stored so far survives a power failure, not only the end of the process. The
    /// default does nothing, which is right for storage that syncs each write, or none.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if the data cannot be written to the disk.
    fn sync(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the size and the format of what is stored; `None`, the default, if there is no file and no server.
    fn storage(&self) -> BoxFuture<'_, Result<Option<Storage>, CheckpointError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Verifies the storage itself, such as the pages and indexes of a database. The rows of a thread are verified
    /// whenever they are read; [`text::export_to`](crate::text::export_to) reads all of them. The default does nothing.
    ///
    /// # Errors
    /// [`CheckpointError::Corrupt`] with what is damaged.
    fn verify(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the space of deleted data to the disk. Other requests wait meanwhile. The default does nothing.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if another program uses the database, or the disk is full. Nothing is lost.
    fn vacuum(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the thread's checkpoints, newest first. Empty if the thread does not exist.
    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>>;

    /// Returns the number of the thread's checkpoints; 0 if it does not exist. The default reads the history.
    fn count(&self, thread: &ThreadId) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        let history = self.history(thread, History::default());
        Box::pin(async { Ok(history.await?.len()) })
    }

    /// Returns whether the thread has accepted an input with this id: whether the list `$input` in the metadata of one of its
    /// checkpoints contains it. The default reads the history; a backend with an index need not, and then does not notice that
    /// another program has changed the metadata of a checkpoint that is not read.
    fn has_input(&self, thread: &ThreadId, id: &str) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let (history, id) = (self.history(thread, History::default()), id.to_owned());
        Box::pin(async move { Ok(history.await?.iter().any(|meta| has_input(&meta.metadata, &id))) })
    }

    /// Returns a stream that wakes a process that follows the thread. `None`, which is the default, if the storage cannot do so:
    /// the caller then reads the thread at intervals.
    ///
    /// An item follows each commit, record and end of a lease of the thread, by any process. The first one arrives as soon as later
    /// ones are noticed, so that a caller that reads the thread after each item misses nothing. Several may be one item, and some have
    /// no cause. The stream ends when the checkpointer is dropped.
    fn changes(&self, thread: &ThreadId) -> Option<BoxStream<'static, ()>> {
        let _ = thread;
        None
    }

    /// Returns the heads of all threads, newest first by [`CheckpointMeta::created_ms`], then by name. Those
    /// of subgraphs are not among them.
    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>>;

    /// Returns the names of those threads, in order; also of those whose head cannot be read.
    fn names(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        Box::pin(async {
            let mut names: Vec<_> = self.threads().await?.into_iter().map(|(thread, _)| thread).collect();
            names.sort_unstable();
            Ok(names)
        })
    }

    /// Returns the threads of subgraphs under a thread, at any depth, by name.
    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>>;

    /// Returns whether something is stored under the name of a thread: a checkpoint, a thread of a subgraph or an inbox. A thread
    /// without checkpoints of which something is stored cannot begin; see [`commit`](Self::commit).
    fn is_stored(&self, thread: &ThreadId) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let newest = self.history(&thread, History { limit: Some(1), ..History::default() }).await?;
            Ok(!newest.is_empty() || !leftovers(self.children(&thread).await?).is_empty())
        })
    }

    /// Returns the threads without checkpoints of which something else is stored, by name. They are not among the
    /// [`names`](Self::names), and can only be [deleted](Self::delete). The default finds none.
    fn orphans(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Deletes a thread and the threads of its subgraphs, so that the ids of a new thread of the same name
    /// start at 1. No effect if nothing of the thread [is stored](Self::is_stored).
    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>>;

    /// Copies the thread `from` to `to`, with its subgraphs, checkpoints and records, under the same ids. The
    /// copies are then independent.
    ///
    /// # Errors
    /// [`CheckpointError::NoThread`] if `from` does not exist, [`CheckpointError::ThreadExists`] if `to`
    /// exists.
    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>>;

    /// Deletes the checkpoints of a thread that are not retained, in one transaction, and returns their
    /// number.
    ///
    /// Threads of subgraphs that deleted tasks called are deleted too. Threads that retained tasks or
    /// [`Prune::callers`] called remain, and so do those that all tasks share ([`ThreadId::caller_under`]).
    ///
    /// A retained checkpoint loads as before, with the records of its tasks. Only its path changes if
    /// [`Prune::snapshots`] has a snapshot for it, and its metadata if [`Prune::metadata`] has some.
    /// [`CheckpointMeta::parent_pruned`] is set if its parent was deleted.
    ///
    /// # Errors
    /// [`CheckpointError::Conflict`] if `head` is not the head of the thread. [`CheckpointError::Storage`] if
    /// a checkpoint to retain does not exist, or would have neither its parent nor a snapshot. The store is
    /// then unchanged.
    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>>;
}

/// Returns those of the threads below one without checkpoints that a new thread must not continue: all but its data keys, which
/// are stored before its first checkpoint.
#[doc(hidden)]
// Superstep leaves none, except a post that is killed while its thread is deleted. So a rest is forged, or a part of
// a thread that its user wants back: it is refused and not deleted. The first commit checks it in its transaction,
// because a check before it would be one more request per thread, and could be late.
pub fn leftovers(mut children: Vec<ThreadId>) -> Vec<ThreadId> {
    children.retain(|child| *child != keys_of(&child.root()));
    children
}

/// Draws a unique random number.
pub(crate) fn drawn() -> Result<String, CheckpointError> {
    let drawn = SysRng.try_next_u64().map_err(|cause| CheckpointError::Storage {
        what: "this machine has no random number for a new thread; try again".to_owned(),
        source: Some(Box::new(cause)),
    })?;
    Ok(format!("{drawn:016x}"))
}

/// The exclusive right to write a thread. Released when dropped.
pub struct Lease(#[expect(dead_code, reason = "held for its Drop")] Box<dyn Any + Send + Sync>);

impl Lease {
    /// Creates a lease that lasts until `guard` is dropped.
    pub fn new(guard: impl Any + Send + Sync) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}
