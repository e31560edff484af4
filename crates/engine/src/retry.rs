//! The number of attempts of a failed task, and the delay between them.

use std::time::Duration;

/// The retry policy of a task.
///
/// The wait before attempt `n + 1` is `initial · factor^(n-1)`, at most `cap`, plus a share of `jitter` that
/// the driver draws.
///
/// # Example: five attempts, the second after 50 ms
/// ```
/// # use std::time::Duration;
/// # use superstep_engine::RetryPolicy;
/// let policy = RetryPolicy::attempts(5).initial(Duration::from_millis(50));
/// assert_eq!(policy.delay(2, 0.0), Duration::from_millis(100));
/// ```
///
/// # Source
/// The defaults are those of langgraph's `RetryPolicy`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The maximum number of attempts, including the first. 1 never retries.
    pub max_attempts: u32,
    /// The delay before the second attempt.
    pub initial: Duration,
    /// The factor between consecutive delays.
    pub factor: f64,
    /// The maximum delay, before jitter.
    pub cap: Duration,
    /// The maximum random addition to a delay.
    pub jitter: Duration,
}

impl Default for RetryPolicy {
    /// Returns three attempts, 0.5 s doubling up to 128 s, and up to 1 s of jitter.
    fn default() -> Self {
        Self {
            max_attempts: 3,
            initial: Duration::from_millis(500),
            factor: 2.0,
            cap: Duration::from_secs(128),
            jitter: Duration::from_secs(1),
        }
    }
}

impl RetryPolicy {
    /// Creates a policy with this maximum number of attempts, including the first, and the default delays.
    pub fn attempts(max: u32) -> Self {
        Self { max_attempts: max, ..Self::default() }
    }

    /// Sets the delay before the second attempt.
    #[must_use]
    pub fn initial(self, delay: Duration) -> Self {
        Self { initial: delay, ..self }
    }

    /// Sets the factor between consecutive delays.
    #[must_use]
    pub fn factor(self, factor: f64) -> Self {
        Self { factor, ..self }
    }

    /// Sets the maximum delay, before jitter.
    #[must_use]
    pub fn cap(self, delay: Duration) -> Self {
        Self { cap: delay, ..self }
    }

    /// Sets the maximum random addition to a delay.
    #[must_use]
    pub fn jitter(self, addition: Duration) -> Self {
        Self { jitter: addition, ..self }
    }

    /// Returns the delay after `failed` failed attempts (from 1), with `jitter_share` in `0.0..=1.0` as the share
    /// of the jitter.
    pub fn delay(&self, failed: u32, jitter_share: f64) -> Duration {
        let exponent = i32::try_from(failed.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.initial.as_secs_f64() * self.factor.powi(exponent);
        let wait = Duration::try_from_secs_f64(seconds).unwrap_or(self.cap).min(self.cap);
        let jitter = self.jitter.as_secs_f64() * jitter_share.clamp(0.0, 1.0);
        wait.saturating_add(Duration::try_from_secs_f64(jitter).unwrap_or(self.jitter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_jitter_is_added() {
        let policy = RetryPolicy::default();
        let millis = |failed, share| policy.delay(failed, share).as_millis();
        assert_eq!([millis(1, 0.0), millis(2, 0.0), millis(3, 0.0)], [500, 1000, 2000]);
        assert_eq!(millis(1, 0.5), 1000);
        assert_eq!(millis(9, 1.0), 129_000);
        assert_eq!(millis(10, 0.0), 128_000);
        assert_eq!(millis(u32::MAX, 0.0), 128_000);
    }

    #[test]
    fn a_wait_without_bounds_is_as_long_as_can_be() {
        let longest = Duration::MAX;
        let policy = RetryPolicy::default().initial(longest).cap(longest).jitter(longest);
        assert_eq!(policy.delay(2, 1.0), longest);
    }
}
