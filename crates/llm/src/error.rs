//! The errors between a request and its answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A request without a usable answer.
#[derive(Clone, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The kind of failure, which decides whether another attempt makes sense.
    pub kind: ModelErrorKind,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// The description, with the place and a remedy. Never contains a key.
    pub message: String,
    /// The delay that the provider requests before the next attempt.
    pub retry_after: Option<Duration>,
    /// The provider's own word on whether another attempt makes sense, which precedes that of the kind.
    pub should_retry: Option<bool>,
}

crate::debug_by_chain!(ModelError);

impl ModelError {
    /// Creates an error of `kind` without a status.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, status: None, message: message.into(), retry_after: None, should_retry: None }
    }
}

/// Kinds of [`ModelError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// The server cannot be reached.
    Connect,
    /// The server did not answer in time, or with 408.
    Timeout,
    /// 429: too many requests.
    RateLimited,
    /// 429 or 402 with an exhausted quota: waiting does not help.
    QuotaExceeded,
    /// 401 or 403: a missing or wrong key.
    Auth,
    /// 404: the model or the address does not exist.
    NotFound,
    /// 400 or 422: the request itself is invalid.
    BadRequest,
    /// The conversation is too long for the model.
    ContextOverflow,
    /// 409, 425, 5xx and 529: the server cannot answer now.
    Server,
    /// The stream ended before the answer was complete.
    TruncatedStream,
    /// The server's answer cannot be parsed.
    Malformed,
    /// The answer exceeded one of its [bounds](crate::limits::AnswerLimits).
    AnswerLimit,
}
