//! The server and its settings.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    ApiKey,
    model::{
        limits::AnswerLimits,
        retry::{from_ms, to_ms},
    },
    openai::request::WireConfig,
};

/// The server and its settings. Create it with [`OpenAiConfig::new`] and change the fields that differ.
#[derive(Clone, Debug)]
pub struct OpenAiConfig {
    /// The address before `/chat/completions`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// The key; without one, no `Authorization` header is sent.
    pub api_key: ApiKey,
    /// The model, and the provider's wire format.
    pub wire: WireConfig,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The bounds of an answer's size and time.
    pub limits: AnswerLimits,
}

impl OpenAiConfig {
    /// Creates the settings of `model` at `base_url`; an empty `api_key` means no key.
    pub fn new(base_url: impl Into<String>, api_key: impl Into<ApiKey>, model: impl Into<String>) -> Self {
        let wire = WireConfig { model: model.into(), ..WireConfig::default() };
        let (timeouts, limits) = (Timeouts::default(), AnswerLimits::default());
        Self { base_url: base_url.into(), api_key: api_key.into(), wire, timeouts, limits }
    }

    /// Creates the settings of `model` with the key `OPENAI_API_KEY` on the server `OPENAI_BASE_URL`, by default OpenAI's.
    ///
    /// # Errors
    /// [`OpenAiConfigError::NotSet`] if neither is set.
    pub fn from_env(model: impl Into<String>) -> Result<Self, OpenAiConfigError> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (url, key) = (set("OPENAI_BASE_URL"), set("OPENAI_API_KEY"));
        if url.is_none() && key.is_none() {
            return Err(OpenAiConfigError::NotSet);
        }
        let url = url.unwrap_or_else(|| "https://api.openai.com/v1".to_owned());
        Ok(Self::new(url, key.unwrap_or_default(), model))
    }
}

/// The maximum silence of a server.
///
/// Its serialized form has its times in whole milliseconds, under names that end in `_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// The time until the connection is established.
    #[serde(rename = "connect_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub connect: Duration,
    /// The time from the request to the header of the response; a local model may read a long prompt first.
    #[serde(rename = "response_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub response: Duration,
    /// The time between two reads of the answer.
    #[serde(rename = "idle_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub idle: Duration,
    /// The time from the finish reason to the end of the answer, in which the server reports the tokens. Silent or not, the answer
    /// is complete after it.
    #[serde(rename = "end_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub end: Duration,
}

impl Default for Timeouts {
    /// Returns 10 s, 5 min, 2 min and 2 s.
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self { connect: secs(10), response: secs(300), idle: secs(120), end: secs(2) }
    }
}

/// The error of an invalid [`OpenAiConfig`].
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenAiConfigError {
    /// The base URL is invalid.
    #[error("the base URL {problem}; write it like `https://api.openai.com/v1`")]
    BaseUrl {
        /// The problem.
        problem: String,
    },
    /// The key is not a valid header value.
    #[error("the API key has characters that are not valid in a header; copy it again, without line breaks")]
    ApiKey,
    /// An extra field is a standard field.
    #[error("the extra field `{field}` is written by superstep itself; remove it from `extra`")]
    ExtraField {
        /// The name of the field.
        field: String,
    },
    /// [`OpenAiConfig::from_env`] found neither a key nor a server.
    #[error("neither `OPENAI_API_KEY` nor `OPENAI_BASE_URL` is set; a local server needs only its address")]
    NotSet,
    /// The HTTP client cannot be created.
    #[error("the HTTP client cannot be made")]
    Client(#[source] crate::http::ClientError),
}

crate::debug_by_chain!(OpenAiConfigError);
