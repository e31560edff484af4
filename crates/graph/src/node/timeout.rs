//! How long an attempt of a task may take.
//!
//! Start at [`TimedOut`].

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

use crate::{NoTimers, timers::sleep_until};

/// An attempt of a task that took longer than its node may: the cause of a [`NodeError`](crate::NodeError), which another
/// attempt may mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", match .kind {
    TimeoutKind::Run => format!("ran longer than its timeout of {limit:?}"),
    TimeoutKind::Idle => format!("was silent for longer than its idle timeout of {limit:?}, {elapsed:?} after it began"),
})]
#[non_exhaustive]
pub struct TimedOut {
    /// Which of the two limits it was.
    pub kind: TimeoutKind,
    /// The limit.
    pub limit: Duration,
    /// How long the attempt had run.
    pub elapsed: Duration,
}

/// Which limit a node did not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutKind {
    /// [`NodeOptions::timeout`](crate::NodeOptions::timeout).
    Run,
    /// [`NodeOptions::idle_timeout`](crate::NodeOptions::idle_timeout).
    Idle,
}

/// When a task was last heard of.
#[derive(Debug)]
pub(crate) struct Pulse {
    begun: Instant,
    /// Nanoseconds after that.
    last: AtomicU64,
    /// That of the task which called the graph that this one is in, if anybody minds its silence.
    above: Option<Arc<Pulse>>,
}

impl Pulse {
    /// The pulse of a task that begins now.
    pub(crate) fn begin(above: Option<Arc<Self>>) -> Self {
        Self { begun: Instant::now(), last: AtomicU64::new(0), above }
    }

    pub(crate) fn beat(&self) {
        let since = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last.store(since, Ordering::Relaxed);
        if let Some(above) = &self.above {
            above.beat();
        }
    }

    fn last(&self) -> Instant {
        self.begun + Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }
}

/// The limits of an attempt that has any.
pub(crate) struct Deadlines {
    begun: Instant,
    run: Option<Duration>,
    idle: Option<(Duration, Arc<Pulse>)>,
    /// Ends when the next of them may be due.
    sleep: Pin<Box<Sleep>>,
}

impl Deadlines {
    /// For an attempt that begins now; `None` if there is nothing to wait for.
    pub(crate) fn begin(
        run: Option<Duration>,
        idle: Option<(Duration, Arc<Pulse>)>,
    ) -> Result<Option<Self>, NoTimers> {
        if run.is_none() && idle.is_none() {
            return Ok(None);
        }
        let begun = Instant::now();
        let sleep = Box::pin(sleep_until(begun)?);
        let mut deadlines = Self { begun, run, idle, sleep };
        let Some(first) = deadlines.next() else { return Ok(None) };
        deadlines.sleep.as_mut().reset(first);
        Ok(Some(deadlines))
    }

    /// Waits for the first limit that is not kept.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<TimedOut> {
        loop {
            ready!(self.sleep.as_mut().poll(context));
            if let Some(out) = self.out(Instant::now()) {
                return Poll::Ready(out);
            }
            // The task was heard of since, so that its silence began later.
            let next = self.next().expect("what was due can be due again");
            self.sleep.as_mut().reset(next);
        }
    }

    /// When a limit may be due; `None` for never.
    fn next(&self) -> Option<Instant> {
        let run = self.run.and_then(|limit| self.begun.checked_add(limit));
        let idle = self.idle.as_ref().and_then(|(limit, pulse)| pulse.last().checked_add(*limit));
        [run, idle].into_iter().flatten().min()
    }

    fn out(&self, now: Instant) -> Option<TimedOut> {
        let elapsed = now - self.begun;
        let out = |kind, limit| TimedOut { kind, limit, elapsed };
        if let Some(limit) = self.run.filter(|limit| elapsed >= *limit) {
            return Some(out(TimeoutKind::Run, limit));
        }
        let (limit, pulse) = self.idle.as_ref()?;
        (now.saturating_duration_since(pulse.last()) >= *limit).then(|| out(TimeoutKind::Idle, *limit))
    }
}

impl std::fmt::Debug for Deadlines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deadlines").field("run", &self.run).finish_non_exhaustive()
    }
}
