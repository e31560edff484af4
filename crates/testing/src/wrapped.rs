//! A wrapper around a checkpointer, for tests.
//!
//! Start at [`Wrapper`].

use std::collections::BTreeMap;

use futures::{future::BoxFuture, stream::BoxStream};
use superstep_graph::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{
        CheckpointError, CheckpointMeta, Commit, Lease, Loaded, Prune, Storage, TaskKey, TaskRecord,
    },
    state::RawJson,
};

/// A layer around a [`Checkpointer`] that delegates to it by default. [`Wrapped`] turns it into a checkpointer.
///
/// [`record`](Self::record) receives all records and [`commit`](Self::commit) all commits, and [`load`](Self::load) all loads of the
/// head: the methods of [`Checkpointer`] that combine or avoid them (`record_all`, `load_head`, `remember`, `keeps_values`) are not
/// delegated.
///
/// Use it for stores that fail, wait, lose data or observe: only the differing methods are implemented.
///
/// # Example: a store that rejects deletion
/// ```
/// use futures::future::BoxFuture;
/// use superstep_graph::{Checkpointer, MemoryCheckpointer, ThreadId, checkpoint::CheckpointError};
/// use superstep_testing::wrapped::{Wrapped, Wrapper};
///
/// struct Keeps(MemoryCheckpointer);
///
/// impl Wrapper for Keeps {
///     fn store(&self) -> &dyn Checkpointer {
///         &self.0
///     }
///
///     fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
///         let busy = CheckpointError::Busy { thread: thread.clone() };
///         Box::pin(async { Err(busy) })
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = Wrapped(Keeps(MemoryCheckpointer::new()));
/// assert!(store.delete(&"t".into()).await.is_err());
/// assert_eq!(store.load(&"t".into(), None).await?, None);
/// # Ok::<(), CheckpointError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Wrapper: Send + Sync + 'static {
    /// Returns the store behind it.
    fn store(&self) -> &dyn Checkpointer;

    /// See [`Checkpointer::lease`].
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        self.store().lease(thread)
    }

    /// See [`Checkpointer::has_writer`].
    fn has_writer(&self, thread: &ThreadId) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        self.store().has_writer(thread)
    }

    /// See [`Checkpointer::load`].
    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        self.store().load(thread, at)
    }

    /// See [`Checkpointer::read_commit`].
    fn read_commit(
        &self,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> BoxFuture<'_, Result<Option<Commit>, CheckpointError>> {
        self.store().read_commit(thread, at)
    }

    /// See [`Checkpointer::record`]. It also receives each record of [`Checkpointer::record_all`].
    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.store().record(task, record)
    }

    /// See [`Checkpointer::add_effects`]. Not delegated unless it is implemented, so that
    /// [`record`](Self::record) receives all records.
    fn add_effects(
        &self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let _ = (task, results);
        Box::pin(std::future::ready(Ok(false)))
    }

    /// See [`Checkpointer::nonce`].
    fn nonce(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<String>, CheckpointError>> {
        self.store().nonce(thread)
    }

    /// See [`Checkpointer::commit`].
    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        self.store().commit(thread, expected, next)
    }

    /// See [`Checkpointer::sync`].
    fn sync(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.store().sync()
    }

    /// See [`Checkpointer::storage`].
    fn storage(&self) -> BoxFuture<'_, Result<Option<Storage>, CheckpointError>> {
        self.store().storage()
    }

    /// See [`Checkpointer::verify`].
    fn verify(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.store().verify()
    }

    /// See [`Checkpointer::vacuum`].
    fn vacuum(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.store().vacuum()
    }

    /// See [`Checkpointer::changes`].
    fn changes(&self, thread: &ThreadId) -> Option<BoxStream<'static, ()>> {
        self.store().changes(thread)
    }

    /// See [`Checkpointer::names`].
    fn names(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        self.store().names()
    }

    /// See [`Checkpointer::orphans`].
    fn orphans(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        self.store().orphans()
    }

    /// See [`Checkpointer::history`].
    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        self.store().history(thread, range)
    }

    /// See [`Checkpointer::count`].
    fn count(&self, thread: &ThreadId) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        self.store().count(thread)
    }

    /// See [`Checkpointer::has_input`].
    fn has_input(&self, thread: &ThreadId, id: &str) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        self.store().has_input(thread, id)
    }

    /// See [`Checkpointer::threads`].
    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        self.store().threads()
    }

    /// See [`Checkpointer::children`].
    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        self.store().children(thread)
    }

    /// See [`Checkpointer::delete`].
    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.store().delete(thread)
    }

    /// See [`Checkpointer::commit_all`]. Calls [`commit`](Self::commit) for each, so that it receives all commits. Delegate
    /// it if they must be stored atomically.
    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let thread = thread.clone();
        Box::pin(async move {
            let mut expected = expected;
            for next in next {
                expected = Some(self.commit(&thread, expected, next).await?);
            }
            Ok(())
        })
    }

    /// See [`Checkpointer::copy`].
    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.store().copy(from, to)
    }

    /// See [`Checkpointer::prune`].
    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        self.store().prune(thread, head, prune)
    }
}

/// The checkpointer of a [`Wrapper`].
#[derive(Clone, Debug)]
pub struct Wrapped<W>(pub W);

impl<W: Wrapper> Checkpointer for Wrapped<W> {
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        self.0.lease(thread)
    }

    fn has_writer(&self, thread: &ThreadId) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        self.0.has_writer(thread)
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        self.0.load(thread, at)
    }

    fn read_commit(
        &self,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> BoxFuture<'_, Result<Option<Commit>, CheckpointError>> {
        self.0.read_commit(thread, at)
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.0.record(task, record)
    }

    fn add_effects(
        &self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        self.0.add_effects(task, results)
    }

    fn nonce(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<String>, CheckpointError>> {
        self.0.nonce(thread)
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        self.0.commit(thread, expected, next)
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.0.sync()
    }

    fn storage(&self) -> BoxFuture<'_, Result<Option<Storage>, CheckpointError>> {
        self.0.storage()
    }

    fn verify(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.0.verify()
    }

    fn vacuum(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.0.vacuum()
    }

    fn changes(&self, thread: &ThreadId) -> Option<BoxStream<'static, ()>> {
        self.0.changes(thread)
    }

    fn names(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        self.0.names()
    }

    fn orphans(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        self.0.orphans()
    }

    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        self.0.history(thread, range)
    }

    fn count(&self, thread: &ThreadId) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        self.0.count(thread)
    }

    fn has_input(&self, thread: &ThreadId, id: &str) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        self.0.has_input(thread, id)
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        self.0.threads()
    }

    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        self.0.children(thread)
    }

    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.0.delete(thread)
    }

    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.0.commit_all(thread, expected, next)
    }

    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        self.0.copy(from, to)
    }

    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        self.0.prune(thread, head, prune)
    }
}
