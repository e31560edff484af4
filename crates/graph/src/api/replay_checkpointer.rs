//! A checkpointer for replays: it reads the stored thread and discards all writes.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use superstep_checkpoint::{
    CheckpointError, CheckpointMeta, Commit, Lease, Loaded, Prune, TaskKey, TaskRecord,
};

use crate::{
    CheckpointId, Checkpointer, History, ThreadId,
    journal::replay_script::{Script, is_input},
};

/// The head of a thread is the cursor's position. A commit becomes the next checkpoint of the line, with its
/// number; equality was checked before.
pub(crate) struct ReplayCheckpointer(pub(crate) Arc<Script>);

impl Checkpointer for ReplayCheckpointer {
    fn lease(&self, _: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        // Leases are not needed without writes.
        async { Ok(Lease::new(())) }.boxed()
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        let thread = thread.clone();
        async move {
            let at = at.or(self.0.place(&thread).0.map(|at| at.id));
            let Some(at) = at else { return Ok(None) };
            let loaded = self.0.store.load(&thread, Some(at)).await?;
            Ok(loaded.map(|mut loaded| {
                loaded.head = at;
                loaded.tasks.retain(|(slot, _)| is_input(&loaded.meta, *slot));
                loaded
            }))
        }
        .boxed()
    }

    fn record(&self, _: &TaskKey, _: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        async { Ok(()) }.boxed()
    }

    /// Returns the nonce of the replayed thread.
    fn nonce(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<String>, CheckpointError>> {
        let nonce = self.0.place(thread).1.and_then(|next| next.nonce().map(str::to_owned));
        async { Ok(nonce) }.boxed()
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        _: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let next = self.0.place(thread).1.map(|next| next.id);
        let beyond = CheckpointId(expected.map_or(0, |head| head.0) + 1);
        async move { Ok(next.unwrap_or(beyond)) }.boxed()
    }

    fn commit_all(
        &self,
        _: &ThreadId,
        _: Option<CheckpointId>,
        _: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        async { Ok(()) }.boxed()
    }

    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        self.0.store.history(thread, range)
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        self.0.store.threads()
    }

    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        self.0.store.children(thread)
    }

    fn delete(&self, _: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        async { Ok(()) }.boxed()
    }

    fn copy(&self, _: &ThreadId, _: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        async { Ok(()) }.boxed()
    }

    fn prune(
        &self,
        _: &ThreadId,
        _: CheckpointId,
        _: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        async { Ok(0) }.boxed()
    }
}
