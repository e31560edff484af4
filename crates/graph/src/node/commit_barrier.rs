//! Tasks that wait for a commit.
//!
//! Start at [`CommitBarrier`].

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::Context,
};

use futures::task::AtomicWaker;
use tokio::sync::oneshot;

/// Tasks that wait until their checkpoint is stored.
pub(crate) struct CommitBarrier {
    /// `None` when no task is left.
    waiters: Mutex<Option<Vec<oneshot::Sender<()>>>>,
    driver: AtomicWaker,
}

impl Default for CommitBarrier {
    fn default() -> Self {
        Self { waiters: Mutex::new(Some(Vec::new())), driver: AtomicWaker::new() }
    }
}

impl CommitBarrier {
    /// Waits until the checkpoint with the current tasks is stored. Not needed with
    /// [`Durability::Sync`](crate::Durability::Sync), where it always is.
    pub(crate) async fn settle(&self) {
        let (sender, stored) = oneshot::channel();
        match &mut *self.waiters() {
            Some(waiters) => waiters.push(sender),
            // Applies to work that a node left behind. The run stores the rest after it ends.
            None => return,
        }
        self.driver.wake();
        if stored.await.is_err() {
            // The run has ended, and all waiting tasks with it.
            std::future::pending::<()>().await;
        }
    }

    /// Takes the requests since the last call; wakes the run when there are new ones.
    pub(crate) fn take(&self, context: &Context<'_>) -> Vec<oneshot::Sender<()>> {
        self.driver.register(context.waker());
        self.waiters().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Releases all current and later requests, because the run will not take them any more.
    pub(crate) fn close(&self) {
        for waiter in self.waiters().take().into_iter().flatten() {
            // The requester may have stopped waiting.
            let _ = waiter.send(());
        }
    }

    fn waiters(&self) -> MutexGuard<'_, Option<Vec<oneshot::Sender<()>>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
