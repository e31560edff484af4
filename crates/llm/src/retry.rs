//! The one retry layer.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{ChatModel, Delta, ModelError, ModelErrorKind, Request, ResponseStream, assemble::truncated};

/// When a failed request is sent again, and after which wait.
///
/// The wait after the n-th failed attempt is `base · factor^(n-1)`, at most `cap`, plus jitter. There is no wait after
/// the last attempt.
/// # Example: 1 s, 2 s, 4 s, 8 s, then 10 s, each with up to one second more
/// ```
/// # use std::time::Duration;
/// # use superstep_llm::{Jitter, ModelRetry};
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
    /// Most requests that are sent, the first included; 0 counts as 1.
    pub max_attempts: u32,
    /// The wait after the first failure.
    #[serde(rename = "base_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub base: Duration,
    /// How much longer each wait is than the one before.
    pub factor: u32,
    /// The longest wait, without jitter.
    #[serde(rename = "cap_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub cap: Duration,
    /// What is added to a wait, so that clients do not come back all at once.
    pub jitter: Jitter,
    /// The longest `Retry-After` that is waited out, exactly and without jitter; for a longer one the request fails at
    /// once. `None`, in the serialized form 0, ignores the header.
    #[serde(
        rename = "longest_retry_after_ms",
        serialize_with = "to_optional_ms",
        deserialize_with = "from_optional_ms"
    )]
    pub longest_retry_after: Option<Duration>,
    /// Which failures are worth another attempt.
    pub retries: RetryClass,
}

/// What is added to a wait, after its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// Nothing.
    None,
    /// Up to this many hundredths of the wait.
    Percent(u32),
    /// Up to this long.
    #[serde(rename = "up_to_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    UpTo(Duration),
}

/// Which failures are worth another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryClass {
    /// Those that may pass: see [`ModelErrorKind::is_transient`].
    Transient,
    /// Too many requests, no answer in time, and errors of the server, but no broken connections and streams.
    Overload,
    /// All of them, a wrong key included.
    Any,
}

impl RetryClass {
    /// Whether it has this failure.
    pub fn has(self, kind: ModelErrorKind) -> bool {
        match self {
            Self::Transient => kind.is_transient(),
            Self::Overload => {
                matches!(kind, ModelErrorKind::RateLimited | ModelErrorKind::Timeout | ModelErrorKind::Server)
            }
            Self::Any => true,
        }
    }
}

fn to_ms<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(millis(*time))
}

fn from_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
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
    /// 4 attempts; 1, 2, 4 s, at most 30 s, plus up to a quarter; `Retry-After` up to a minute.
    fn default() -> Self {
        Self {
            max_attempts: 4,
            base: Duration::from_secs(1),
            factor: 2,
            cap: Duration::from_secs(30),
            jitter: Jitter::Percent(25),
            longest_retry_after: Some(Duration::from_secs(60)),
            retries: RetryClass::Transient,
        }
    }
}

impl ModelRetry {
    /// One attempt only.
    pub fn never() -> Self {
        Self { max_attempts: 1, ..Self::default() }
    }

    /// The wait after the failed attempt `failed`, counted from 1, without jitter.
    pub fn backoff(&self, failed: u32) -> Duration {
        let factor = self.factor.saturating_pow(failed.saturating_sub(1));
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// The most that is added to [`ModelRetry::backoff`].
    pub fn most_jitter(&self, failed: u32) -> Duration {
        match self.jitter {
            Jitter::None => Duration::ZERO,
            Jitter::Percent(percent) => self.backoff(failed).saturating_mul(percent) / 100,
            Jitter::UpTo(most) => most,
        }
    }

    /// What follows the failed attempt `failed`: a wait, or the error for the caller.
    fn after(&self, failed: u32, error: ModelError, jitter: &JitterSource) -> Result<Duration, ModelError> {
        if failed >= self.max_attempts || !self.retries.has(error.kind) {
            return Err(error);
        }
        match (error.retry_after, self.longest_retry_after) {
            (Some(wish), Some(longest)) if wish > longest => Err(ModelError {
                message: format!(
                    "{}; it asks to wait {} s, more than the {} s this policy waits: try again later",
                    error.message,
                    wish.as_secs_f64(),
                    longest.as_secs_f64()
                ),
                ..error
            }),
            (Some(wish), Some(_)) => Ok(wish),
            _ => {
                let most = millis(self.most_jitter(failed));
                let jitter = if most == 0 { 0 } else { jitter(most).min(most) };
                Ok(self.backoff(failed).saturating_add(Duration::from_millis(jitter)))
            }
        }
    }
}

impl ModelErrorKind {
    /// Whether the same request may succeed a little later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::Connect
            | Self::Timeout
            | Self::RateLimited
            | Self::Server
            | Self::TruncatedStream
            | Self::Malformed => true,
            Self::QuotaExceeded | Self::Auth | Self::NotFound | Self::BadRequest | Self::ContextOverflow => {
                false
            }
        }
    }
}

/// Where jitter comes from: given the most milliseconds, returns how many it is to be.
pub type JitterSource = Arc<dyn Fn(u64) -> u64 + Send + Sync>;

/// Evenly distributed jitter, the same sequence for the same seed.
pub fn seeded_jitter(seed: u64) -> JitterSource {
    let rng = Mutex::new(StdRng::seed_from_u64(seed));
    Arc::new(move |most| rng.lock().unwrap_or_else(PoisonError::into_inner).random_range(0..=most))
}

/// A model that sends a failed request again.
///
/// It is the only place that does. A failure is announced before the wait: [`Delta::AttemptDiscarded`] if the failed
/// attempt had streamed anything, then [`Delta::Retry`]. Dropping the stream ends a wait at once.
#[derive(Clone)]
pub struct Retrying<M> {
    model: M,
    policy: ModelRetry,
    jitter: JitterSource,
}

impl<M: ChatModel> Retrying<M> {
    /// Retries `model` as `policy` says, with the jitter of seed 0.
    ///
    /// Programs that share a provider should not share a seed: see [`Retrying::with_jitter`].
    pub fn new(model: M, policy: ModelRetry) -> Self {
        Self { model, policy, jitter: seeded_jitter(0) }
    }

    /// The same model with jitter from `source`, such as [`seeded_jitter`].
    #[must_use]
    pub fn with_jitter(mut self, source: JitterSource) -> Self {
        self.jitter = source;
        self
    }
}

impl<M: ChatModel> fmt::Debug for Retrying<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Retrying");
        out.field("model", &self.model.name()).field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<M: ChatModel> ChatModel for Retrying<M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let run = Attempts {
            model: &self.model,
            policy: &self.policy,
            jitter: &self.jitter,
            current: Some(self.model.stream(request.clone())),
            request,
            attempt: 1,
            streamed: false,
            finished: false,
            announced: VecDeque::new(),
            wait: Duration::ZERO,
        };
        stream::unfold(run, |mut run| async { run.next().await.map(|item| (item, run)) }).boxed()
    }
}

/// The attempts of one request. Between two attempts, and after the last one, there is no `current` stream.
struct Attempts<'a> {
    model: &'a dyn ChatModel,
    policy: &'a ModelRetry,
    jitter: &'a JitterSource,
    request: Request,
    current: Option<ResponseStream<'a>>,
    attempt: u32,
    /// Whether the current attempt has yielded anything.
    streamed: bool,
    finished: bool,
    /// What is to be said before the wait; the wait begins when it is empty.
    announced: VecDeque<Delta>,
    wait: Duration,
}

impl Attempts<'_> {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        if let Some(delta) = self.announced.pop_front() {
            return Some(Ok(delta));
        }
        if self.finished && self.current.is_none() {
            return None;
        }
        if self.current.is_none() {
            tokio::time::sleep(self.wait).await;
            self.attempt += 1;
            self.streamed = false;
            self.current = Some(self.model.stream(self.request.clone()));
        }
        let current = self.current.as_mut().expect("an attempt was started in the lines above");
        let error = match current.next().await {
            Some(Ok(delta)) => {
                self.streamed = true;
                self.finished |= matches!(delta, Delta::Finish(_));
                return Some(Ok(delta));
            }
            None if self.finished => return None,
            None => truncated(),
            Some(Err(error)) => error,
        };
        self.current = None;
        let (status, reason) = (error.status, error.message.clone());
        match self.policy.after(self.attempt, error, self.jitter) {
            Err(error) => {
                self.finished = true;
                Some(Err(error))
            }
            Ok(wait) => {
                self.finished = false;
                self.wait = wait;
                if self.streamed {
                    self.announced.push_back(Delta::AttemptDiscarded { attempt: self.attempt });
                }
                let attempt = self.attempt + 1;
                self.announced.push_back(Delta::Retry { attempt, delay_ms: millis(wait), status, reason });
                self.announced.pop_front().map(Ok)
            }
        }
    }
}

fn millis(duration: Duration) -> u64 {
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
