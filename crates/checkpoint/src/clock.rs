//! The source of the current time.

use std::time::{SystemTime, UNIX_EPOCH};

/// A source of the current time for a run.
pub trait Clock: Send + Sync + 'static {
    /// Returns the UTC time in milliseconds since 1970.
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
