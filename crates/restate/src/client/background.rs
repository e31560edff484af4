//! The OS thread on which the requests of a checkpointer run.
//!
//! A request is a task of its own there: it is completed even if its future is dropped, and the caller needs no runtime of tokio.
//!
//! Start at [`Background`].

use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::Notify,
};

/// The maximum wait for the last releases of leases.
const PATIENCE: Duration = Duration::from_secs(2);

/// A runtime with its OS thread, which ends when this is dropped.
pub(super) struct Background {
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

impl Background {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, state) = (runtime.handle().clone(), Arc::new(State::default()));
        let served = state.clone();
        let thread = thread::Builder::new().name("superstep-restate".into()).spawn(move || {
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
        Ok(Self { handle, state, thread: Some(thread?) })
    }

    /// Runs a task to its end. Returns `None` if it panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.handle.spawn(task).await.ok()
    }

    /// Starts a task that ends with the background.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Starts a task for whose end the background waits before it ends itself.
    pub(super) fn spawn_last(&self, task: impl Future<Output = ()> + Send + 'static) {
        let state = self.state.clone();
        state.last.fetch_add(1, Ordering::AcqRel);
        self.handle.spawn(async move {
            task.await;
            state.last.fetch_sub(1, Ordering::AcqRel);
            state.done.notify_one();
        });
    }
}

impl Drop for Background {
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
