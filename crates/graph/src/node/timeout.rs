//! The time limits of a task's attempt.
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

use crate::timers::{NoTimers, sleep_until};

/// The error of an attempt that exceeded a time limit of its node: the cause of a
/// [`NodeError`](crate::NodeError) that may be retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", match .kind {
    TimeoutKind::Run => format!("ran longer than its timeout of {limit:?}"),
    TimeoutKind::Idle => format!("was silent for longer than its idle timeout of {limit:?}, {elapsed:?} after it began"),
})]
#[non_exhaustive]
pub struct TimedOut {
    /// The exceeded limit.
    pub kind: TimeoutKind,
    /// The limit.
    pub limit: Duration,
    /// The duration of the attempt.
    pub elapsed: Duration,
}

/// A time limit of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutKind {
    /// [`NodeOptions::timeout`](crate::NodeOptions::timeout).
    Run,
    /// [`NodeOptions::idle_timeout`](crate::NodeOptions::idle_timeout).
    Idle,
}

/// The time of a task's last activity.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    begun: Instant,
    /// Nanoseconds since the start.
    last: AtomicU64,
    /// The heartbeat of the calling task, if it has an idle timeout.
    above: Option<Arc<Heartbeat>>,
}

impl Heartbeat {
    /// Creates the heartbeat of a task that starts now.
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

/// The time limits of an attempt.
pub(crate) struct Deadlines {
    begun: Instant,
    run: Option<Duration>,
    idle: Option<(Duration, Arc<Heartbeat>)>,
    /// Ends when the next limit may be due.
    sleep: Pin<Box<Sleep>>,
}

impl Deadlines {
    /// Starts the limits of an attempt; `None` if it has none.
    pub(crate) fn begin(
        run: Option<Duration>,
        idle: Option<(Duration, Arc<Heartbeat>)>,
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

    /// Waits for the first exceeded limit.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<TimedOut> {
        loop {
            ready!(self.sleep.as_mut().poll(context));
            if let Some(out) = self.out(Instant::now()) {
                return Poll::Ready(out);
            }
            // The task was active since, so that its idle time restarted.
            let next = self.next().expect("what was due can be due again");
            self.sleep.as_mut().reset(next);
        }
    }

    /// Returns the time at which a limit may be due; `None` for never.
    fn next(&self) -> Option<Instant> {
        let run = self.run.and_then(|limit| self.begun.checked_add(limit));
        let idle = self.idle.as_ref().and_then(|(limit, heartbeat)| heartbeat.last().checked_add(*limit));
        [run, idle].into_iter().flatten().min()
    }

    fn out(&self, now: Instant) -> Option<TimedOut> {
        let elapsed = now - self.begun;
        let out = |kind, limit| TimedOut { kind, limit, elapsed };
        if let Some(limit) = self.run.filter(|limit| elapsed >= *limit) {
            return Some(out(TimeoutKind::Run, limit));
        }
        let (limit, heartbeat) = self.idle.as_ref()?;
        (now.saturating_duration_since(heartbeat.last()) >= *limit).then(|| out(TimeoutKind::Idle, *limit))
    }
}

impl std::fmt::Debug for Deadlines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deadlines").field("run", &self.run).finish_non_exhaustive()
    }
}
