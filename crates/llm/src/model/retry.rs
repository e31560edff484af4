//! The policy of retries; [`Retrying`](crate::retries::Retrying) applies it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{ModelError, ModelErrorKind};

/// The retry policy of requests.
///
/// The delay after the n-th failed attempt is `base · factor^(n-1)`, at most `cap`, plus jitter. There is no
/// delay after the last attempt.
/// # Example: 1 s, 2 s, 4 s, 8 s, then 10 s, each with up to one second more
/// ```
/// # use std::time::Duration;
/// # use superstep_llm::{ModelRetry, retries::Jitter};
/// let policy = ModelRetry {
///     cap: Duration::from_secs(10),
///     jitter: Jitter::UpTo(Duration::from_secs(1)),
///     ..ModelRetry::default()
/// };
/// assert_eq!(policy.backoff(5), Duration::from_secs(10));
/// assert_eq!(policy.most_jitter(5), Duration::from_secs(1));
/// ```
///
/// Its serialized form has its times in whole milliseconds, under names that end in `_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelRetry {
    /// The maximum number of requests, including the first; 0 counts as 1.
    pub max_attempts: u32,
    /// The delay after the first failure.
    #[serde(rename = "base_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub base: Duration,
    /// The factor between consecutive delays.
    pub factor: u32,
    /// The maximum delay, without jitter.
    #[serde(rename = "cap_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub cap: Duration,
    /// The random addition to a delay, so that clients do not retry all at the same time.
    pub jitter: Jitter,
    /// The maximum `Retry-After` that is honoured, exactly and without jitter; with a longer one the request
    /// fails immediately. `None`, in the serialized form 0, ignores the header.
    #[serde(
        rename = "longest_retry_after_ms",
        serialize_with = "to_optional_ms",
        deserialize_with = "from_optional_ms"
    )]
    pub longest_retry_after: Option<Duration>,
    /// The maximum total delay of a request, over all attempts and models; a delay that would exceed it is
    /// not started.
    #[serde(rename = "longest_wait_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub longest_wait: Duration,
    /// The failures that are retried.
    pub retries: RetryClass,
}

/// The random addition to a delay, after its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// Adds nothing.
    None,
    /// Up to this percentage of the delay.
    Percent(u32),
    /// Up to this long.
    #[serde(rename = "up_to_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    UpTo(Duration),
}

/// The failures that are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RetryClass {
    /// Transient failures: see [`ModelErrorKind::is_transient`].
    Transient,
    /// Overload: too many requests, timeouts, server errors (500 and above), and broken connections and streams.
    Overload,
    /// All failures, including an invalid key. Exceptions: a request that is too long, which must be changed,
    /// and an answer beyond its bounds, which would exceed them again.
    Any,
}

impl RetryClass {
    /// Returns whether it contains this failure.
    pub fn has(self, kind: ModelErrorKind) -> bool {
        match self {
            Self::Transient => kind.is_transient(),
            Self::Overload => matches!(
                kind,
                ModelErrorKind::RateLimited
                    | ModelErrorKind::Timeout
                    | ModelErrorKind::Server
                    | ModelErrorKind::Connect
                    | ModelErrorKind::TruncatedStream
            ),
            Self::Any => !matches!(kind, ModelErrorKind::ContextOverflow | ModelErrorKind::AnswerLimit),
        }
    }

    /// Returns whether this failure is retried. Transient client errors, 409 and 425, are no overload.
    fn covers(self, error: &ModelError) -> bool {
        // These must be changed before another attempt, also if the provider says otherwise.
        let is_fixed = matches!(error.kind, ModelErrorKind::ContextOverflow | ModelErrorKind::AnswerLimit);
        let is_conflict = matches!(error.status, Some(409 | 425));
        let is_covered = self.has(error.kind) && !(self == Self::Overload && is_conflict);
        error.should_retry.filter(|_| !is_fixed).unwrap_or(is_covered)
    }
}

pub(crate) fn to_ms<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(millis(*time))
}

pub(crate) fn from_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

fn to_optional_ms<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.map_or(0, millis))
}

fn from_optional_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let ms = u64::deserialize(deserializer)?;
    Ok((ms != 0).then(|| Duration::from_millis(ms)))
}

impl Default for ModelRetry {
    /// Returns 4 attempts; 1, 2, 4 s, at most 30 s, plus up to a quarter; `Retry-After` up to a minute; five
    /// minutes in all.
    fn default() -> Self {
        Self {
            max_attempts: 4,
            base: Duration::from_secs(1),
            factor: 2,
            cap: Duration::from_secs(30),
            jitter: Jitter::Percent(25),
            longest_retry_after: Some(Duration::from_secs(60)),
            longest_wait: Duration::from_secs(300),
            retries: RetryClass::Transient,
        }
    }
}

impl ModelRetry {
    /// Returns a policy without retries.
    pub fn never() -> Self {
        Self { max_attempts: 1, ..Self::default() }
    }

    /// Returns the delay after the failed attempt `failed`, counted from 1, without jitter.
    pub fn backoff(&self, failed: u32) -> Duration {
        let factor = self.factor.saturating_pow(failed.saturating_sub(1));
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// Returns the maximum addition to [`ModelRetry::backoff`].
    pub fn most_jitter(&self, failed: u32) -> Duration {
        match self.jitter {
            Jitter::None => Duration::ZERO,
            Jitter::Percent(percent) => self.backoff(failed).saturating_mul(percent) / 100,
            Jitter::UpTo(most) => most,
        }
    }

    /// Returns the consequence of the failed attempt `failed` of a request that has waited for `waited`: a
    /// delay, or the error for the caller.
    pub(crate) fn after(
        &self,
        failed: u32,
        waited: Duration,
        error: ModelError,
        jitter: &JitterSource,
    ) -> Result<Duration, ModelError> {
        if failed >= self.max_attempts || !self.retries.covers(&error) {
            return Err(error);
        }
        let wait = match (error.retry_after, self.longest_retry_after) {
            (Some(wish), Some(longest)) if wish > longest => {
                return Err(too_long(error, "it asks to wait", wish, longest));
            }
            (Some(wish), Some(_)) => wish,
            _ => {
                let most = millis(self.most_jitter(failed));
                let jitter = if most == 0 { 0 } else { jitter(most).min(most) };
                self.backoff(failed).saturating_add(Duration::from_millis(jitter))
            }
        };
        let left = self.longest_wait.saturating_sub(waited);
        if wait > left { Err(too_long(error, "the next wait is", wait, left)) } else { Ok(wait) }
    }
}

/// Creates the error of an attempt whose retry would take too long.
fn too_long(error: ModelError, what: &str, wait: Duration, longest: Duration) -> ModelError {
    let (cause, wait, longest) = (&error.message, wait.as_secs_f64(), longest.as_secs_f64());
    let message =
        format!("{cause}; {what} {wait} s, more than the {longest} s this policy waits: try again later");
    ModelError { message, ..error }
}

impl ModelErrorKind {
    /// Returns whether another model may answer the same request. A request that is invalid or too long is so
    /// for the next model as well.
    // The window of the next model may be larger or smaller. A conversation that is too long is compacted, for all
    // models.
    pub fn may_pass_elsewhere(self) -> bool {
        !matches!(self, Self::BadRequest | Self::ContextOverflow)
    }

    /// Returns whether the same request may succeed later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::Connect
            | Self::Timeout
            | Self::RateLimited
            | Self::Server
            | Self::TruncatedStream
            | Self::Malformed => true,
            Self::QuotaExceeded
            | Self::Auth
            | Self::NotFound
            | Self::BadRequest
            | Self::ContextOverflow
            // A model that repeats itself does so again, and each attempt costs as much as the limit allows.
            | Self::AnswerLimit => false,
        }
    }
}

/// A source of jitter: receives the maximum in milliseconds and returns the addition.
pub type JitterSource = Arc<dyn Fn(u64) -> u64 + Send + Sync>;

/// Creates evenly distributed jitter, with the same sequence for the same seed.
pub fn seeded_jitter(seed: u64) -> JitterSource {
    let rng = Mutex::new(StdRng::seed_from_u64(seed));
    Arc::new(move |most| rng.lock().unwrap_or_else(PoisonError::into_inner).random_range(0..=most))
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap() {
        let policy = ModelRetry::default();
        let waits: Vec<u64> = (1..=7).map(|failed| policy.backoff(failed).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(policy.backoff(u32::MAX), policy.cap);
        assert_eq!(policy.most_jitter(6), Duration::from_millis(7500));
    }

    #[test]
    fn the_providers_word_precedes_the_kind() {
        let covers = |kind, should_retry| {
            RetryClass::Transient.covers(&ModelError { should_retry, ..ModelError::new(kind, "") })
        };
        assert!(covers(ModelErrorKind::Server, None) && !covers(ModelErrorKind::Server, Some(false)));
        assert!(!covers(ModelErrorKind::BadRequest, None) && covers(ModelErrorKind::BadRequest, Some(true)));
        assert!(!covers(ModelErrorKind::ContextOverflow, Some(true)));
    }

    #[test]
    fn jitter_repeats_for_its_seed_and_stays_in_bounds() {
        let draw = |seed| {
            let source = seeded_jitter(seed);
            (0..50).map(|_| source(10)).collect::<Vec<u64>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(1).iter().all(|jitter| *jitter <= 10));
    }
}
