//! Tasks that wait until what is stored is on the disk.
//!
//! Start at [`Settling`].

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    task::Context,
};

use futures::task::AtomicWaker;
use tokio::sync::oneshot;

/// Tasks that have to know that their checkpoint is stored before they go on.
pub(crate) struct Settling {
    /// `None` once no task is left.
    asked: Mutex<Option<Vec<oneshot::Sender<()>>>>,
    driver: AtomicWaker,
}

impl Default for Settling {
    fn default() -> Self {
        Self { asked: Mutex::new(Some(Vec::new())), driver: AtomicWaker::new() }
    }
}

impl Settling {
    /// Waits until the checkpoint that has the present tasks to run is stored. The run must not be [`Durability::Sync`](crate::Durability::Sync),
    /// where it always is.
    pub(crate) async fn settle(&self) {
        let (stored, told) = oneshot::channel();
        match &mut *self.asked() {
            Some(asked) => asked.push(stored),
            // For work that a node left behind. The run stores the rest once that is over.
            None => return,
        }
        self.driver.wake();
        if told.await.is_err() {
            // The run is over, and whoever asked along with it.
            std::future::pending::<()>().await;
        }
    }

    /// Those who asked since the last time; wakes the run when there are more.
    pub(crate) fn take(&self, context: &Context<'_>) -> Vec<oneshot::Sender<()>> {
        self.driver.register(context.waker());
        self.asked().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Lets go of whoever waits or would, for nobody will take what they ask.
    pub(crate) fn close(&self) {
        for asked in self.asked().take().into_iter().flatten() {
            // Who does not wait any more need not know.
            let _ = asked.send(());
        }
    }

    fn asked(&self) -> MutexGuard<'_, Option<Vec<oneshot::Sender<()>>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
