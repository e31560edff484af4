//! Timers, which a runtime may lack, and a clock that follows them.
//!
//! Start at [`sleep`] and [`TokioClock`].

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};

use superstep_checkpoint::Clock;
use tokio::time::{self, Instant, Sleep};

// `llm` has a type of this name as well: neither crate depends on the other, and a crate for one error of three lines
// would cost more.
/// An operation with a timer on a runtime without timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "SS178: the tokio runtime has no timers, which waits and timeouts need; build it with `enable_time`, or \
     with `enable_all`"
)]
pub struct NoTimers;

/// Creates a sleep that starts now.
///
/// # Errors
/// [`NoTimers`].
pub(crate) fn sleep(duration: Duration) -> Result<Sleep, NoTimers> {
    // This is the only test for timers.
    catch_unwind(AssertUnwindSafe(|| time::sleep(duration))).map_err(|_| NoTimers)
}

/// Creates a sleep until a moment.
pub(crate) fn sleep_until(moment: Instant) -> Result<Sleep, NoTimers> {
    catch_unwind(AssertUnwindSafe(|| time::sleep_until(moment))).map_err(|_| NoTimers)
}

/// Creates a sleep for a node, or ends the node: with a panic that only the node's runner sees.
pub(crate) fn sleep_in_node(duration: Duration) -> Sleep {
    sleep(duration).unwrap_or_else(|error| resume_unwind(Box::new(error.to_string())))
}

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
