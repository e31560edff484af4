//! Scenarios on PostgreSQL: one server for all, and one schema for each scenario at a time.

#[path = "../../crates/postgres/tests/it/server.rs"]
#[allow(dead_code, reason = "the tests of the crate use more of it")]
pub(crate) mod server;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use futures_executor::block_on;
use superstep::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{
        CheckpointError, CheckpointMeta, Commit, HeadState, Lease, Loaded, LoadedHead, Prune, TaskKey,
        TaskRecord,
    },
    postgres::{PostgresCheckpointer, PostgresOptions},
    state::RawJson,
};

/// The schemas that no scenario uses.
static FREE: Mutex<Vec<PostgresOptions>> = Mutex::new(Vec::new());

/// An empty schema, until it is dropped.
pub(crate) struct Schema(PostgresOptions);

impl Schema {
    /// Returns a schema; `None` where PostgreSQL is not installed.
    pub(crate) fn new() -> Option<Self> {
        let server = server::shared()?;
        let free = FREE.lock().unwrap().pop();
        let options = free.unwrap_or_else(|| {
            // A busy machine opens a connection, and releases a lease, in seconds.
            PostgresOptions::new(server.url())
                .connect_timeout(Duration::from_secs(120))
                .lease_wait(Duration::from_secs(5))
                .connections(2)
                .schema(server.schema())
        });
        Some(Self(options))
    }

    /// Opens it as another process does.
    pub(crate) fn open(&self) -> Arc<dyn Checkpointer> {
        Arc::new(Real(Arc::new(PostgresCheckpointer::open(self.0.clone()).unwrap())))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let store = PostgresCheckpointer::open(self.0.clone()).unwrap();
        for thread in block_on(store.names()).unwrap() {
            block_on(store.delete(&thread)).unwrap();
        }
        FREE.lock().unwrap().push(self.0.clone());
    }
}

/// A checkpointer whose answers take time although the clock of the test is stopped.
struct Real(Arc<PostgresCheckpointer>);

/// Runs a request on a thread of its own, which stops the clock meanwhile.
fn real<T: Send + 'static>(
    store: &Real,
    request: impl FnOnce(&PostgresCheckpointer) -> Result<T, CheckpointError> + Send + 'static,
) -> BoxFuture<'static, Result<T, CheckpointError>> {
    let store = store.0.clone();
    Box::pin(async move { tokio::task::spawn_blocking(move || request(&store)).await.unwrap() })
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
