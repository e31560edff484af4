//! Work that nodes spawn in parallel to the graph.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::task::JoinSet;

/// The work that a run waits for at its end, and that is dropped with it.
#[derive(Default)]
pub(crate) struct Background(Mutex<PendingWork>);

#[derive(Default)]
struct PendingWork {
    left: Option<JoinSet<()>>,
    over: bool,
}

impl Background {
    fn work(&self) -> MutexGuard<'_, PendingWork> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it, unless the run has ended.
    pub(crate) fn spawn(&self, more: impl Future<Output = ()> + Send + 'static) {
        let mut work = self.work();
        if !work.over {
            work.left.get_or_insert_default().spawn(more);
        }
    }

    /// Waits for all of it. Its panics are ignored.
    pub(crate) async fn finish(&self) {
        let left = || self.work().left.take();
        while let Some(mut left) = left() {
            while left.join_next().await.is_some() {}
        }
    }

    /// Drops unfinished work, and starts no more.
    pub(crate) fn end(&self) {
        let left = {
            let mut work = self.work();
            work.over = true;
            work.left.take()
        };
        // Dropped outside of the lock, because a drop may need it.
        drop(left);
    }
}
