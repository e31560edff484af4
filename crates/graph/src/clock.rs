//! Time, which comes from outside.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Tells a run what time it is.
pub trait Clock: Send + Sync + 'static {
    /// UTC milliseconds since 1970.
    fn now_ms(&self) -> i64;
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

/// A clock that starts at a fixed moment and follows tokio's time, so that a paused runtime makes it exact.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: Instant,
    start_ms: i64,
}

impl TokioClock {
    /// A clock that shows `start_ms` now.
    pub fn starting_at(start_ms: i64) -> Self {
        Self { start: Instant::now(), start_ms }
    }
}

impl Clock for TokioClock {
    fn now_ms(&self) -> i64 {
        let passed = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.start_ms.saturating_add(passed)
    }
}
