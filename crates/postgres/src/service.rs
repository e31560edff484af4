//! The OS thread on which the connections live.
//!
//! A request is a task of its own there: it is completed even if its future is dropped, so that no connection returns to the pool
//! in the middle of a transaction, and the caller needs no runtime of tokio.
//!
//! Start at [`Service`].

use std::{
    future::Future,
    sync::atomic::{AtomicUsize, Ordering},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use superstep_checkpoint::CheckpointError;
use tokio::{
    runtime::{Builder, Handle},
    sync::Notify,
};

use crate::error;

/// The maximum wait for the last releases of leases.
const PATIENCE: Duration = Duration::from_secs(2);

/// A runtime with its OS thread, which ends when this is dropped.
pub(crate) struct Service {
    handle: Handle,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    closed: Notify,
    /// The number of tasks that must be completed before the end.
    last: AtomicUsize,
    done: Notify,
}

impl Service {
    pub(crate) fn start() -> Result<Self, CheckpointError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(error::no_service)?;
        let (handle, state) = (runtime.handle().clone(), Arc::new(State::default()));
        let served = state.clone();
        let thread = thread::Builder::new().name("superstep-postgres".into()).spawn(move || {
            runtime.block_on(async {
                served.closed.notified().await;
                let all_done = async {
                    while served.last.load(Ordering::Acquire) > 0 {
                        served.done.notified().await;
                    }
                };
                // A release that fails is made up for by the end of the lease's time.
                let _ = tokio::time::timeout(PATIENCE, all_done).await;
            });
            runtime.shutdown_background();
        });
        Ok(Self { handle, state, thread: Some(thread.map_err(error::no_service)?) })
    }

    /// Runs a task to its end. Returns `None` if it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.handle.spawn(task).await.ok()
    }

    /// Runs a task, and blocks the calling thread until its end. Returns `None` if it panics.
    pub(crate) fn block_on<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, end) = mpsc::channel();
        self.handle.spawn(async move {
            let _ = done.send(task.await);
        });
        end.recv().ok()
    }

    /// Starts a task that ends with the service.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Starts a task for whose end the service waits before it ends itself.
    pub(crate) fn spawn_last(&self, task: impl Future<Output = ()> + Send + 'static) {
        let state = self.state.clone();
        state.last.fetch_add(1, Ordering::AcqRel);
        self.handle.spawn(async move {
            task.await;
            state.last.fetch_sub(1, Ordering::AcqRel);
            state.done.notify_one();
        });
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.state.closed.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // Its requests have failed if it panicked.
            let _ = thread.join();
        }
    }
}
