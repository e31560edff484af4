//! Where a thread is kept.
//!
//! Start at [`Checkpointer`].

use std::{any::Any, fmt};

use futures::future::BoxFuture;
use rand::{TryRng as _, rngs::SysRng};

use crate::{
    CheckpointError, History, Prune,
    commit::{CheckpointMeta, Commit, Loaded},
    ids::{CheckpointId, ThreadId},
    record::{TaskKey, TaskRecord},
};

/// Keeps threads: durable lines of checkpoints, each with one writer.
///
/// A checkpoint is a state and a control record. What is stored of the state is what changed: the updates of its
/// superstep, and now and then, when [`Commit::snapshot`] has one, the full value of every channel. Loading a checkpoint
/// takes the nearest snapshot before it and the updates since.
///
/// # Contract
/// - [`commit`](Self::commit) is atomic, and succeeds only if `expected` is still the head of the thread.
/// - Ids count up by one in the order of commits on a thread, from 1, and are never used again, so branches cannot meet.
/// - What is stored cannot change afterwards, except that [`record`](Self::record) replaces the record of the same task
///   as long as its checkpoint is the head, and that [`prune`](Self::prune) may give a checkpoint a snapshot and other metadata.
/// - A future that is dropped before it is ready may or may not have had its effect.
/// - A thread of a subgraph ([`ThreadId::child`]) is kept like any other, but belongs to its root: it has no writer of its
///   own, is not listed, and is deleted with any thread above it, in one transaction.
/// - [`superstep_testing`](https://docs.rs/superstep-testing) has the suite that every implementation passes.
pub trait Checkpointer: Send + Sync + 'static {
    /// Makes the caller the thread's one writer until the [`Lease`] is dropped or its process ends. Does not wait for
    /// another writer, and makes no thread.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if someone else is.
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>>;

    /// The checkpoint `at`, or the head. `None` if there is no such thread or checkpoint.
    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>>;

    /// Stores how a task of the head ended before its superstep is over. Storing it again replaces it.
    ///
    /// # Errors
    /// [`CheckpointError::Conflict`] if the task's checkpoint is not the head.
    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>>;

    /// What is to tell a thread that is about to begin from those that had its name before, for
    /// `Cx::key`. Asked once, before the first commit of a thread, with which it is stored.
    ///
    /// `None` if no thread of this name was ever forgotten. Drawn by chance if nothing else is written here, so that it holds
    /// whatever became of the store.
    fn nonce(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<String>, CheckpointError>> {
        let _ = thread;
        Box::pin(async { drawn().map(Some) })
    }

    /// Adds a checkpoint and makes it the head.
    ///
    /// # Errors
    /// [`CheckpointError::Conflict`] if `expected` is not the head. [`CheckpointError::Storage`] if the parent does not
    /// exist, or a task is applied as recorded and has no finished record under the parent. Nothing is stored then.
    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>>;

    /// Adds several checkpoints one behind the other, or none of them.
    ///
    /// # Shape
    /// The first follows any checkpoint, as with [`commit`](Self::commit). Later ones may also follow those before them,
    /// whose ids count on from `expected`. An empty list does nothing.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>>;

    /// Waits until everything that was stored so far survives a power failure too, and not only the end of the process. Does
    /// nothing by default, which is right for storage that does so at once, or never.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if it cannot be written to the disk.
    fn sync(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The thread's checkpoints, newest first. Empty if there is no such thread.
    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>>;

    /// The heads of all threads, newest first by [`CheckpointMeta::created_ms`], then by name. Those of subgraphs are not
    /// among them.
    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>>;

    /// The names of those threads, in order; also of those whose head cannot be read.
    fn names(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        Box::pin(async {
            let mut names: Vec<_> = self.threads().await?.into_iter().map(|(thread, _)| thread).collect();
            names.sort_unstable();
            Ok(names)
        })
    }

    /// The threads of subgraphs under a thread, however deep, by name. Empty if there is none.
    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>>;

    /// Forgets a thread and with it the threads of its subgraphs, so that one of the same name begins at 1 again. Nothing
    /// happens if there is none.
    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>>;

    /// Makes `to` a thread that is like `from`, with its subgraphs, checkpoint by checkpoint and record by record, under
    /// the same ids. From then on they know nothing of each other.
    ///
    /// # Errors
    /// [`CheckpointError::NoThread`] if there is no `from`, [`CheckpointError::ThreadExists`] if there is a `to`.
    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>>;

    /// Forgets the checkpoints of a thread that are not to be kept, in one transaction, and returns how many those were.
    /// The threads of subgraphs that their tasks called go along; those that kept ones called stay, and so do those of
    /// [`Prune::callers`], and those that are there for all ([`ThreadId::caller_under`]).
    ///
    /// What is kept is loaded as before, with what is known of its tasks. Only the way to its state is another one where
    /// [`Prune::snapshots`] gave it a snapshot, its metadata where [`Prune::metadata`] has some for it, and
    /// [`CheckpointMeta::parent_pruned`] says so where its parent is gone.
    ///
    /// # Errors
    /// [`CheckpointError::Conflict`] if `head` is not the head of the thread. [`CheckpointError::Storage`] if a
    /// checkpoint to be kept does not exist, or would have neither its parent nor a snapshot. Nothing is forgotten then.
    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>>;
}

/// A number that nobody drew before.
fn drawn() -> Result<String, CheckpointError> {
    let drawn = SysRng.try_next_u64().map_err(|cause| CheckpointError::Storage {
        what: "this machine has no random number for a new thread; try again".to_owned(),
        source: Some(Box::new(cause)),
    })?;
    Ok(format!("{drawn:016x}"))
}

/// The right to write a thread. Given back when dropped.
pub struct Lease(#[expect(dead_code, reason = "held for its Drop")] Box<dyn Any + Send + Sync>);

impl Lease {
    /// A lease that lasts as long as `guard` is not dropped.
    pub fn new(guard: impl Any + Send + Sync) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}
