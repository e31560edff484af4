//! Configuration of the Mem0 server.

use std::time::Duration;

use reqwest::header::HeaderValue;
use serde::{Deserialize, Serialize};
use superstep_llm::ApiKey;

/// The two kinds of Mem0 servers, which differ in their addresses and in their authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mem0Form {
    /// The hosted platform, version 3 of its API. It processes messages asynchronously.
    Hosted,
    /// The server of the open-source project, from version 2 on.
    SelfHosted,
}

/// The configuration of a Mem0 server. Build it with [`Mem0Config::hosted`] or [`Mem0Config::self_hosted`]
/// and change fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Mem0Config {
    /// The kind of server.
    pub form: Mem0Form,
    /// The address of the server.
    pub base_url: String,
    /// The key. Required by the hosted form; optional for a self-hosted server.
    pub api_key: ApiKey,
    /// Maximum number of entries of a search, regardless of its caller's limit.
    pub top_k: usize,
    /// Minimum score of a found entry, from 0 for all to 1.
    pub threshold: f64,
    /// Lets Mem0's model derive memories from the messages; otherwise they are stored unchanged.
    pub infer: bool,
    /// Time limit of one response, from the connection to its last byte.
    pub timeout: Duration,
    /// Time limit for the hosted form's asynchronous processing. A shorter [`ReactConfig::memory_timeout`]
    /// ends the wait earlier.
    ///
    /// [`ReactConfig::memory_timeout`]: superstep_agent::ReactConfig::memory_timeout
    pub settle: Duration,
    /// The polling interval until then.
    pub poll: Duration,
}

impl Mem0Config {
    /// Returns the configuration of the hosted platform at `https://api.mem0.ai`.
    pub fn hosted(api_key: ApiKey) -> Self {
        Self::new(Mem0Form::Hosted, "https://api.mem0.ai".into(), api_key)
    }

    /// Returns the configuration of a self-hosted server, such as `http://localhost:8888`.
    pub fn self_hosted(base_url: impl Into<String>, api_key: ApiKey) -> Self {
        Self::new(Mem0Form::SelfHosted, base_url.into(), api_key)
    }

    /// Uses Mem0's own defaults: 20 entries, a minimum score of 0.1, and memories derived by its model.
    fn new(form: Mem0Form, base_url: String, api_key: ApiKey) -> Self {
        Self {
            form,
            base_url,
            api_key,
            top_k: 20,
            threshold: 0.1,
            infer: true,
            timeout: Duration::from_secs(30),
            settle: Duration::from_secs(60),
            poll: Duration::from_millis(500),
        }
    }

    pub(super) fn check(&self) -> Result<(), Mem0ConfigError> {
        if HeaderValue::from_str(self.api_key.reveal()).is_err() {
            return Err(Mem0ConfigError::ApiKey);
        }
        if self.api_key.is_empty() && self.form == Mem0Form::Hosted {
            return Err(Mem0ConfigError::NoApiKey);
        }
        if !(0.0..=1.0).contains(&self.threshold) {
            return Err(Mem0ConfigError::Threshold { threshold: self.threshold });
        }
        Ok(())
    }
}

/// An error in a [`Mem0Config`].
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Mem0ConfigError {
    /// The base URL is not valid.
    #[error("the base URL of Mem0 {problem}; write it like `http://localhost:8888`")]
    BaseUrl {
        /// The problem.
        problem: String,
    },
    /// The key is not a valid header value.
    #[error("the Mem0 key has characters that are not valid in a header; copy it again, without line breaks")]
    ApiKey,
    /// There is no key.
    #[error("the hosted form of Mem0 needs a key; make one in its dashboard")]
    NoApiKey,
    /// The threshold is not a valid score.
    #[error("invalid threshold {threshold} of Mem0; choose one from 0 to 1")]
    Threshold {
        /// The given value.
        threshold: f64,
    },
    /// The HTTP client cannot be made.
    #[error("the HTTP client for Mem0 cannot be made")]
    Client(#[source] superstep_llm::http::ClientError),
}

superstep_graph::__private::debug_by_chain!(Mem0ConfigError);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mem0;

    fn problem(config: Mem0Config) -> String {
        Mem0::new(config).unwrap_err().to_string()
    }

    #[test]
    fn a_configuration_that_cannot_work_is_refused_at_construction() {
        let hosted = || Mem0Config::hosted(ApiKey::new("m0-1"));
        assert!(Mem0::new(hosted()).is_ok());
        assert!(Mem0::new(Mem0Config::self_hosted("http://localhost:8888", ApiKey::default())).is_ok());
        assert_eq!(
            problem(Mem0Config { base_url: "mem0".into(), ..hosted() }),
            "the base URL of Mem0 `mem0` cannot be read (relative URL without a base); write it like `http://localhost:8888`"
        );
        assert_eq!(
            problem(Mem0Config::hosted(ApiKey::new("m0-\n1"))),
            "the Mem0 key has characters that are not valid in a header; copy it again, without line breaks"
        );
        assert_eq!(
            problem(Mem0Config::hosted(ApiKey::default())),
            "the hosted form of Mem0 needs a key; make one in its dashboard"
        );
        assert_eq!(
            problem(Mem0Config { threshold: f64::NAN, ..hosted() }),
            "invalid threshold NaN of Mem0; choose one from 0 to 1"
        );
    }

    #[test]
    fn a_key_is_never_shown() {
        let config = Mem0Config::hosted(ApiKey::new("m0-secret"));
        let memory = Mem0::new(config.clone()).unwrap();
        assert!(!format!("{config:?} {memory:?}").contains("m0-secret"));
    }
}
