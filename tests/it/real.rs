//! Real databases under a clock that is stopped.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use futures_executor::block_on;
use superstep::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{
        CheckpointError, CheckpointMeta, Commit, HeadState, Lease, Loaded, LoadedHead, Prune, TaskKey,
        TaskRecord,
    },
    state::RawJson,
};

/// A checkpointer whose answers take time although the clock of the test is stopped.
pub(crate) struct Real(pub(crate) Arc<dyn Checkpointer>);

/// Runs a request on a thread of its own, which stops the clock meanwhile.
fn real<T: Send + 'static>(
    store: &Real,
    request: impl FnOnce(&dyn Checkpointer) -> Result<T, CheckpointError> + Send + 'static,
) -> BoxFuture<'static, Result<T, CheckpointError>> {
    let store = store.0.clone();
    Box::pin(async move { tokio::task::spawn_blocking(move || request(&*store)).await.unwrap() })
}

impl Checkpointer for Real {
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.lease(&thread)))
    }

    fn has_writer(&self, thread: &ThreadId) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.has_writer(&thread)))
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.load(&thread, at)))
    }

    fn read_commit(
        &self,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> BoxFuture<'_, Result<Option<Commit>, CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.read_commit(&thread, at)))
    }

    fn load_head(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<LoadedHead>, CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.load_head(&thread)))
    }

    fn remember(&self, thread: &ThreadId, head: CheckpointId, state: HeadState) {
        self.0.remember(thread, head, state);
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let task = task.clone();
        real(self, move |store| block_on(store.record(&task, record)))
    }

    fn record_all(
        &self,
        thread: &ThreadId,
        checkpoint: CheckpointId,
        records: Vec<(u32, TaskRecord)>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.record_all(&thread, checkpoint, records)))
    }

    fn add_effects(
        &self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let task = task.clone();
        real(self, move |store| block_on(store.add_effects(&task, results)))
    }

    fn nonce(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<String>, CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.nonce(&thread)))
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.commit(&thread, expected, next)))
    }

    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.commit_all(&thread, expected, next)))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), CheckpointError>> {
        real(self, |store| block_on(store.sync()))
    }

    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.history(&thread, range)))
    }

    fn has_input(&self, thread: &ThreadId, id: &str) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let (thread, id) = (thread.clone(), id.to_owned());
        real(self, move |store| block_on(store.has_input(&thread, &id)))
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        real(self, |store| block_on(store.threads()))
    }

    fn names(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        real(self, |store| block_on(store.names()))
    }

    fn orphans(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        real(self, |store| block_on(store.orphans()))
    }

    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.children(&thread)))
    }

    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.delete(&thread)))
    }

    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let (from, to) = (from.clone(), to.clone());
        real(self, move |store| block_on(store.copy(&from, &to)))
    }

    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        let thread = thread.clone();
        real(self, move |store| block_on(store.prune(&thread, head, prune)))
    }
}
