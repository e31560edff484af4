//! The events that a run told and nobody took yet.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread,
};

use crate::{
    Event, Outcome, RunError, State,
    stream::{emitter::Sink, patience::Patience},
};

/// How a run ended; an error is its panic.
pub(super) type End<S> = thread::Result<Result<Outcome<S>, RunError>>;

/// A bounded queue of events, and the end of the run behind them.
///
/// ```text
/// settled: interrupts, marks of what was lost     recent: everything since, in order
/// [!] [3 lost] [!] [1 lost]                       [e] [e] [!] [e] …
/// ```
///
/// What is lost is taken from the front of `recent`; what must not be lost there goes over to `settled`.
pub(super) struct Buffer<S: State>(Mutex<Inner<S>>);

struct Inner<S: State> {
    settled: VecDeque<Event<S>>,
    recent: VecDeque<Event<S>>,
    /// How many of `recent` may be lost, and how many of those there may be.
    losable: usize,
    capacity: usize,
    /// How many events the consumer took.
    taken: u64,
    consumer: Option<Waker>,
    /// Those who wait until events are taken.
    crowd: Vec<Waker>,
    /// Whether the consumer was waited for in vain, and took nothing since.
    stalled: bool,
    /// Whether events are still wanted.
    open: bool,
    over: bool,
    /// `None` before the run is over, and once it was taken.
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

    /// Drops what there is, and whatever comes.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.open = false;
        let dropped = (std::mem::take(&mut inner.settled), std::mem::take(&mut inner.recent));
        let crowd = std::mem::take(&mut inner.crowd);
        drop(inner);
        drop(dropped);
        crowd.into_iter().for_each(Waker::wake);
    }

    /// Takes the end of the run; only the first counts.
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

    /// The next event; `None` once the run is over and there are no more.
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

    fn poll_room(&self, context: &mut Context<'_>, patience: &mut Option<Patience>) -> Poll<()> {
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
        if patience.get_or_insert_with(|| Patience::begin(taken)).poll(context).is_pending() {
            return Poll::Pending;
        }
        *patience = None;
        let mut inner = self.lock();
        inner.stalled = inner.taken == taken;
        drop(inner);
        // Whoever else waits need not find out by themselves, and it goes on from where the consumer is.
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

    /// Whether so few wait that the run may go on: fewer than when it began to wait, so that it does not stop at each event.
    fn has_room(&self) -> bool {
        self.losable <= self.capacity / 2 - self.capacity / 8
    }

    /// Counts one more event that may be lost, and takes out the oldest such if there are too many.
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

/// Whether the consumer can do without it. Questions would never be answered, and work be missed in silence.
fn may_be_lost<S: State>(event: &Event<S>) -> bool {
    match event {
        Event::Interrupt(_) | Event::Discarded { .. } | Event::Lagged { .. } => false,
        // What a subgraph asks its caller asks too.
        Event::Subgraph { event, .. } => event["event"] != "discarded",
        _ => true,
    }
}
