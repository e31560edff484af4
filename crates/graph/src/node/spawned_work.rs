//! What nodes leave running beside the graph.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::task::JoinSet;

/// The work that a run waits for at its end, and takes with it if it is dropped.
#[derive(Default)]
pub(crate) struct Background(Mutex<Work>);

#[derive(Default)]
struct Work {
    left: Option<JoinSet<()>>,
    over: bool,
}

impl Background {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins it, unless the run is over.
    pub(crate) fn spawn(&self, more: impl Future<Output = ()> + Send + 'static) {
        let mut work = self.work();
        if !work.over {
            work.left.get_or_insert_default().spawn(more);
        }
    }

    /// Waits for all of it. Its panics are its own.
    pub(crate) async fn finish(&self) {
        let left = || self.work().left.take();
        while let Some(mut left) = left() {
            while left.join_next().await.is_some() {}
        }
    }

    /// Drops what is not over, and begins nothing more.
    pub(crate) fn end(&self) {
        let left = {
            let mut work = self.work();
            work.over = true;
            work.left.take()
        };
        // Not while the lock is held: what is dropped may want it.
        drop(left);
    }
}
