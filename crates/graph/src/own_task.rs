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
    slot: Arc<Slot>,
    task: AbortHandle,
}

struct Slot {
    place: Mutex<FutureState>,
    gone: Condvar,
}

/// The place of the future.
enum FutureState {
    /// Here, waiting to be polled.
    Here(BoxFuture<'static, ()>),
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
        let slot = Arc::new(Slot { place: Mutex::new(FutureState::Here(future)), gone: Condvar::new() });
        let task = tokio::spawn(Poller(slot.clone()).in_current_span()).abort_handle();
        Self { slot, task }
    }
}

impl Drop for OwnTask {
    fn drop(&mut self) {
        self.slot.drop_future();
        self.task.abort();
    }
}

/// The task that polls the future in its place.
struct Poller(Arc<Slot>);

impl Future for Poller {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(mut future) = self.0.take() else { return Poll::Ready(()) };
        let polled = future.as_mut().poll(context);
        self.0.put_back(future, polled.is_ready());
        polled
    }
}

impl Drop for Poller {
    /// Drops the future. The runtime does this when it shuts down.
    fn drop(&mut self) {
        self.0.drop_future();
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, FutureState> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<BoxFuture<'static, ()>> {
        let mut place = self.lock();
        match mem::replace(&mut *place, FutureState::Polled(thread::current().id())) {
            FutureState::Here(future) => Some(future),
            elsewhere => {
                *place = elsewhere;
                None
            }
        }
    }

    fn put_back(&self, future: BoxFuture<'static, ()>, is_over: bool) {
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
                    let unwanted = |place: &mut FutureState| matches!(place, FutureState::Unwanted);
                    drop(self.gone.wait_timeout_while(place, PATIENCE, unwanted));
                }
            }
            elsewhere => *place = elsewhere,
        }
    }
}
