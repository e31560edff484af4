//! A future as a separate task, which its owner can take back.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    thread::{self, ThreadId},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::task::AbortHandle;
use tracing::Instrument as _;

use crate::flat_drop::drop_flat;

/// The maximum wait of a drop for the current poll of the future. A node that computes for longer, or that
/// waits for the owner, must not block its owner forever; a poll of microseconds may take seconds on an overloaded machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// A future that runs on the runtime until it completes, or until this value is dropped.
///
/// An aborted task would be dropped by the runtime at some later time. But the future's resources, above all
/// the lease of its thread, must be free when the owner continues. The future is therefore stored where the
/// owner can take it out.
pub(crate) struct OwnTask {
    owner: Owner<BoxFuture<'static, ()>>,
    task: AbortHandle,
}

/// The owner of a future that a task of the runtime polls. The future is dropped with it.
pub(crate) struct Owner<F: Future + Send + Unpin + 'static>(Arc<Slot<F>>);

struct Slot<F> {
    place: Mutex<FutureState<F>>,
    gone: Condvar,
}

/// The place of the future.
enum FutureState<F> {
    /// Here, waiting to be polled.
    Here(F),
    /// Being polled on this OS thread.
    Polled(ThreadId),
    /// Being polled, to be dropped after that.
    Unwanted,
    /// Dropped.
    Gone,
}

impl OwnTask {
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn spawn(future: BoxFuture<'static, ()>) -> Self {
        let (owner, poller) = owned(future);
        let polled = async move {
            poller.await;
        };
        Self { owner, task: tokio::spawn(polled.in_current_span()).abort_handle() }
    }
}

impl Drop for OwnTask {
    fn drop(&mut self) {
        // Before the abort, after which the runtime may drop the future at any time.
        self.owner.0.drop_future();
        self.task.abort();
    }
}

/// Returns the owner of a future, and the task that polls it.
pub(crate) fn owned<F: Future + Send + Unpin + 'static>(future: F) -> (Owner<F>, Poller<F>) {
    let slot = Arc::new(Slot { place: Mutex::new(FutureState::Here(future)), gone: Condvar::new() });
    (Owner(slot.clone()), Poller(slot))
}

impl<F: Future + Send + Unpin + 'static> Drop for Owner<F> {
    fn drop(&mut self) {
        self.0.drop_future();
    }
}

/// The task that polls the future in its place; `None` if its owner has dropped it.
pub(crate) struct Poller<F: Future + Send + Unpin + 'static>(Arc<Slot<F>>);

impl<F: Future + Send + Unpin + 'static> Future for Poller<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(mut future) = self.0.take() else { return Poll::Ready(None) };
        let polled = Pin::new(&mut future).poll(context);
        self.0.put_back(future, polled.is_ready());
        polled.map(Some)
    }
}

impl<F: Future + Send + Unpin + 'static> Drop for Poller<F> {
    /// Drops the future. The runtime does this when it shuts down.
    fn drop(&mut self) {
        self.0.drop_future();
    }
}

impl<F: Send + 'static> Slot<F> {
    fn lock(&self) -> MutexGuard<'_, FutureState<F>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<F> {
        let mut place = self.lock();
        match mem::replace(&mut *place, FutureState::Polled(thread::current().id())) {
            FutureState::Here(future) => Some(future),
            elsewhere => {
                *place = elsewhere;
                None
            }
        }
    }

    fn put_back(&self, future: F, is_over: bool) {
        let mut place = self.lock();
        if matches!(*place, FutureState::Polled(_)) && !is_over {
            *place = FutureState::Here(future);
            return;
        }
        drop(place);
        drop_flat(future);
        *self.lock() = FutureState::Gone;
        self.gone.notify_all();
    }

    /// Drops the future now, or, if it is being polled, after that.
    fn drop_future(&self) {
        let mut place = self.lock();
        match mem::replace(&mut *place, FutureState::Gone) {
            FutureState::Here(future) => {
                drop(place);
                drop_flat(future);
            }
            FutureState::Polled(by) => {
                *place = FutureState::Unwanted;
                // A future that drops its own owner cannot be waited for.
                if by != thread::current().id() {
                    let unwanted = |place: &mut FutureState<F>| matches!(place, FutureState::Unwanted);
                    drop(self.gone.wait_timeout_while(place, PATIENCE, unwanted));
                }
            }
            elsewhere => *place = elsewhere,
        }
    }
}
