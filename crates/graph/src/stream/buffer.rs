//! The buffer of a run's unread events.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread,
};

use crate::{
    Event, Outcome, RunError, State,
    stream::{emitter::Sink, patience::ConsumerWait},
};

/// The end of a run; an error is its panic.
pub(super) type End<S> = thread::Result<Result<Outcome<S>, RunError>>;

/// A bounded queue of events, followed by the end of the run.
///
/// ```text
/// settled: interrupts, marks of lost events       recent: all events since, in order
/// [!] [3 lost] [!] [1 lost]                       [e] [e] [!] [e] …
/// ```
///
/// Events are dropped from the front of `recent`; those that must not be lost move to `settled`.
pub(super) struct Buffer<S: State>(Mutex<Inner<S>>);

struct Inner<S: State> {
    settled: VecDeque<Event<S>>,
    recent: VecDeque<Event<S>>,
    /// The number of events in `recent` that may be dropped, and its maximum.
    losable: usize,
    capacity: usize,
    /// The number of events that the consumer took.
    taken: u64,
    consumer: Option<Waker>,
    /// The tasks that wait until events are taken.
    crowd: Vec<Waker>,
    /// `true` if a wait for the consumer was in vain, and it has taken no event since.
    stalled: bool,
    /// `true` if events are still wanted.
    open: bool,
    over: bool,
    /// `None` before the end of the run, and after it was taken.
    end: Option<End<S>>,
}

impl<S: State> Buffer<S> {
    pub(super) fn new(capacity: usize) -> Self {
        Self(Mutex::new(Inner {
            settled: VecDeque::new(),
            recent: VecDeque::new(),
            losable: 0,
            capacity: capacity.max(1),
            taken: 0,
            consumer: None,
            crowd: Vec::new(),
            stalled: false,
            open: true,
            over: false,
            end: None,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops all events, including later ones.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.open = false;
        let dropped = (std::mem::take(&mut inner.settled), std::mem::take(&mut inner.recent));
        let crowd = std::mem::take(&mut inner.crowd);
        drop(inner);
        drop(dropped);
        crowd.into_iter().for_each(Waker::wake);
    }

    /// Sets the end of the run; only the first call counts.
    pub(super) fn finish(&self, end: End<S>) {
        let mut inner = self.lock();
        if inner.over {
            return;
        }
        (inner.over, inner.open, inner.end) = (true, false, Some(end));
        let consumer = inner.consumer.take();
        drop(inner);
        if let Some(consumer) = consumer {
            consumer.wake();
        }
    }

    /// Returns the next event; `None` after the end of the run.
    pub(super) fn poll_next(&self, context: &Context<'_>) -> Poll<Option<Event<S>>> {
        let mut inner = self.lock();
        match inner.take() {
            Some(event) => {
                let crowd = if inner.has_room() { std::mem::take(&mut inner.crowd) } else { Vec::new() };
                drop(inner);
                crowd.into_iter().for_each(Waker::wake);
                Poll::Ready(Some(event))
            }
            None if inner.over => Poll::Ready(None),
            None => inner.wait(context),
        }
    }

    pub(super) fn poll_end(&self, context: &Context<'_>) -> Poll<End<S>> {
        let mut inner = self.lock();
        match inner.end.take() {
            Some(end) => Poll::Ready(end),
            None => inner.wait(context),
        }
    }
}

impl<S: State> Sink<S> for Buffer<S> {
    fn is_open(&self) -> bool {
        self.lock().open
    }

    fn send(&self, event: Event<S>) {
        let mut inner = self.lock();
        if !inner.open {
            return;
        }
        let lost = if may_be_lost(&event) { inner.make_room() } else { None };
        inner.recent.push_back(event);
        let consumer = inner.consumer.take();
        drop(inner);
        if let Some(consumer) = consumer {
            consumer.wake();
        }
        // The user's types are dropped outside the lock.
        drop(lost);
    }

    fn poll_room(&self, context: &mut Context<'_>, patience: &mut Option<ConsumerWait>) -> Poll<()> {
        let mut inner = self.lock();
        if !inner.open || inner.stalled || inner.losable <= inner.capacity / 2 {
            *patience = None;
            return Poll::Ready(());
        }
        if !inner.crowd.iter().any(|waker| waker.will_wake(context.waker())) {
            inner.crowd.push(context.waker().clone());
        }
        let taken = inner.taken;
        drop(inner);
        if patience.as_ref().is_some_and(|patience| patience.taken != taken) {
            *patience = None;
        }
        if patience.get_or_insert_with(|| ConsumerWait::begin(taken)).poll(context).is_pending() {
            return Poll::Pending;
        }
        *patience = None;
        let mut inner = self.lock();
        inner.stalled = inner.taken == taken;
        drop(inner);
        // Other waiting tasks need not detect it themselves, and the run continues on the consumer's thread.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn capacity(&self) -> usize {
        self.lock().capacity
    }
}

impl<S: State> Inner<S> {
    fn take(&mut self) -> Option<Event<S>> {
        let event = self.settled.pop_front().or_else(|| {
            let event = self.recent.pop_front()?;
            self.losable -= usize::from(may_be_lost(&event));
            Some(event)
        })?;
        self.taken += 1;
        self.stalled = false;
        Some(event)
    }

    /// Returns whether few enough events wait for the run to continue: fewer than at the start of its wait,
    /// so that it does not stop at each event.
    fn has_room(&self) -> bool {
        self.losable <= self.capacity / 2 - self.capacity / 8
    }

    /// Counts one more event that may be dropped, and removes the oldest one if there are too many.
    fn make_room(&mut self) -> Option<Event<S>> {
        if self.losable < self.capacity {
            self.losable += 1;
            return None;
        }
        while let Some(oldest) = self.recent.pop_front() {
            if !may_be_lost(&oldest) {
                self.settled.push_back(oldest);
                continue;
            }
            match self.settled.back_mut() {
                Some(Event::Lagged { skipped }) => *skipped += 1,
                _ => self.settled.push_back(Event::Lagged { skipped: 1 }),
            }
            return Some(oldest);
        }
        unreachable!("as many events as there may be are there")
    }

    fn wait<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        match &mut self.consumer {
            Some(consumer) => consumer.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

/// Returns whether the event may be dropped. A lost question would never be answered, and lost work would go
/// unnoticed.
fn may_be_lost<S: State>(event: &Event<S>) -> bool {
    match event {
        Event::Interrupt(_) | Event::Discarded { .. } | Event::Lagged { .. } => false,
        // A subgraph's questions are also questions of its caller.
        Event::Subgraph { event, .. } => event["event"] != "discarded",
        _ => true,
    }
}
