//! A clock that stands still.

use superstep_graph::clock::Clock;

/// The time in a test without a time of its own: 2023-11-14, 22:13:20 UTC.
pub(crate) const NOW_MS: i64 = 1_700_000_000_000;

/// A clock that stands still, so that each execution is the same.
pub(crate) struct FixedClock(pub(crate) i64);

impl Clock for FixedClock {
    fn now_ms(&self) -> i64 {
        self.0
    }
}
