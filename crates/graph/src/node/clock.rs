//! A clock that follows the time of tokio.
//!
//! Start at [`TokioClock`].

use superstep_checkpoint::Clock;
use tokio::time::Instant;

/// A clock that starts at a fixed moment and follows tokio's time, so that a paused runtime makes it exact.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: Instant,
    start_ms: i64,
}

impl TokioClock {
    /// Creates a clock that shows `start_ms` now.
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
