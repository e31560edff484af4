//! Timers, which a runtime may lack.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use crate::{ModelError, ModelErrorKind, ToolError};

/// A delay or a time limit on a tokio runtime without timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "SS178: the tokio runtime has no timers, which waits and timeouts need; build it with `enable_time`, or \
     with `enable_all`"
)]
pub struct NoTimers;

/// Checks that the current tokio runtime has timers. Use it before delays and time limits, which would panic
/// without them.
///
/// # Errors
/// [`NoTimers`].
pub fn check_timers() -> Result<(), NoTimers> {
    // This is the only test for a timer.
    catch_unwind(AssertUnwindSafe(|| drop(tokio::time::sleep(Duration::ZERO)))).map_err(|_| NoTimers)
}

impl From<NoTimers> for ModelError {
    fn from(error: NoTimers) -> Self {
        Self::new(ModelErrorKind::BadRequest, error.to_string())
    }
}

impl From<NoTimers> for ToolError {
    fn from(error: NoTimers) -> Self {
        Self::Failed(error.to_string())
    }
}
