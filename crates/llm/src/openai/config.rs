//! The server and its settings.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    ApiKey,
    model::{
        limits::AnswerLimits,
        retry::{from_ms, to_ms},
    },
    models::ModelTable,
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
    /// The facts about models, by name; by default those of this version of superstep.
    pub models: Arc<ModelTable>,
}

impl OpenAiConfig {
    /// Creates the settings of `model` at `base_url`; an empty `api_key` means no key.
    pub fn new(base_url: impl Into<String>, api_key: impl Into<ApiKey>, model: impl Into<String>) -> Self {
        let wire = WireConfig { model: model.into(), ..WireConfig::default() };
        let (timeouts, limits) = (Timeouts::default(), AnswerLimits::default());
        let (base_url, api_key) = (base_url.into(), api_key.into());
        Self { base_url, api_key, wire, timeouts, limits, models: ModelTable::embedded() }
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
    /// [`OpenAiModel::from_env`](crate::OpenAiModel::from_env) found neither a key nor a server.
    #[error("neither `OPENAI_API_KEY` nor `OPENAI_BASE_URL` is set; a local server needs only its address")]
    NotSet,
    /// The HTTP client cannot be created.
    #[error("the HTTP client cannot be made")]
    Client(#[source] crate::http::ClientError),
}

crate::debug_by_chain!(OpenAiConfigError);
