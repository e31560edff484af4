//! Stores that report their writes, or stop there forever.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use superstep::{
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{CheckpointError, Commit, TaskKey, TaskRecord},
};
use superstep_testing::wrapped::{Wrapped, Wrapper};
use tokio::sync::Notify;

/// The behaviour at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// It is reported before it is made.
    Tells,
    /// It is reported and never made: a process that stops before it.
    HangsBefore,
    /// It is made, reported, and never returns: a process that stops after it.
    HangsAfter,
}

/// A store with an action at the `n`-th write.
struct Watched {
    store: Arc<dyn Checkpointer>,
    left: AtomicUsize,
    now: Arc<Notify>,
    at: At,
}

impl Watched {
    fn write<T: Send + 'static>(&self, write: BoxFuture<'static, T>) -> BoxFuture<'static, T> {
        if self.left.fetch_sub(1, Ordering::SeqCst) != 1 {
            return write;
        }
        let now = self.now.clone();
        match self.at {
            At::Tells => {
                now.notify_one();
                write
            }
            At::HangsBefore => {
                now.notify_one();
                Box::pin(std::future::pending())
            }
            At::HangsAfter => Box::pin(async move {
                write.await;
                now.notify_one();
                std::future::pending().await
            }),
        }
    }
}

impl Wrapper for Watched {
    fn store(&self) -> &dyn Checkpointer {
        &*self.store
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let (store, task) = (self.store.clone(), task.clone());
        self.write(Box::pin(async move { store.record(&task, record).await }))
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let (store, thread) = (self.store.clone(), thread.clone());
        self.write(Box::pin(async move { store.commit(&thread, expected, next).await }))
    }
}

/// Watches a store's `n`-th write from now on.
pub(crate) fn watched(
    store: Arc<dyn Checkpointer>,
    at: At,
    n: usize,
) -> (Arc<dyn Checkpointer>, Arc<Notify>) {
    let now = Arc::new(Notify::new());
    let watched = Watched { store, left: AtomicUsize::new(n), now: now.clone(), at };
    (Arc::new(Wrapped(watched)), now)
}
