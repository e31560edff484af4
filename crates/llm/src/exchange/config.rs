//! The settings of any server: its variables, timeouts, and errors of its configuration.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    ApiKey,
    model::retry::{from_ms, to_ms},
};

/// The variables that name a server and a key.
pub(crate) struct Variables {
    pub(crate) key: &'static str,
    pub(crate) server: &'static str,
    /// The server if only the key is set.
    pub(crate) default: &'static str,
    /// A remark for an environment without either.
    pub(crate) hint: &'static str,
}

/// The variables of OpenAI, and of all servers with one of its protocols.
pub(crate) const OPENAI: Variables = Variables {
    key: "OPENAI_API_KEY",
    server: "OPENAI_BASE_URL",
    default: "https://api.openai.com/v1",
    hint: "a local server needs only its address",
};

impl Variables {
    /// Reads the server and the key.
    ///
    /// # Errors
    /// [`ModelConfigError::NotSet`] if neither is set.
    pub(crate) fn read(&self) -> Result<(String, ApiKey), ModelConfigError> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Self { key, server, hint, .. } = *self;
        let (url, set_key) = (set(server), set(key));
        if url.is_none() && set_key.is_none() {
            return Err(ModelConfigError::NotSet { key, server, hint });
        }
        Ok((url.unwrap_or_else(|| self.default.to_owned()), ApiKey::new(set_key.unwrap_or_default())))
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

/// The error of an invalid configuration of a model.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ModelConfigError {
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
    /// The environment, which [`OpenAiModel::from_env`](crate::OpenAiModel::from_env) and others read, has neither a key nor a
    /// server.
    #[error("neither `{key}` nor `{server}` is set; {hint}")]
    NotSet {
        /// The variable with the key.
        key: &'static str,
        /// The variable with the address of the server.
        server: &'static str,
        /// A remark.
        hint: &'static str,
    },
    /// The HTTP client cannot be created.
    #[error("the HTTP client cannot be made")]
    Client(#[source] crate::http::ClientError),
}

crate::debug_by_chain!(ModelConfigError);
