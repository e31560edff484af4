//! Which server is asked, and how.

use std::{fmt, time::Duration};

use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::{
    WireConfig,
    refusal::excerpt,
    retry::{from_ms, to_ms},
};

/// A key that no error and no debug output shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ApiKey(pub(crate) String);

impl ApiKey {
    /// Wraps `key`; an empty one sends no `Authorization` header.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "ApiKey(none)" } else { "ApiKey(hidden)" })
    }
}

/// Which server is asked, and how. Build it with [`OpenAiConfig::new`] and change what differs.
#[derive(Clone, Debug)]
pub struct OpenAiConfig {
    /// The address in front of `/chat/completions`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// The key.
    pub api_key: ApiKey,
    /// The model, and what the provider wants to see differently.
    pub wire: WireConfig,
    /// How long to wait.
    pub timeouts: Timeouts,
}

impl OpenAiConfig {
    /// Asks `model` at `base_url`.
    pub fn new(base_url: impl Into<String>, api_key: ApiKey, model: impl Into<String>) -> Self {
        let wire = WireConfig { model: model.into(), ..WireConfig::default() };
        Self { base_url: base_url.into(), api_key, wire, timeouts: Timeouts::default() }
    }
}

/// How long a server may be silent.
///
/// Its serialized form has its times in whole milliseconds, under names that end in `_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// Until the connection stands.
    #[serde(rename = "connect_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub connect: Duration,
    /// From the request to the head of the answer; a local model may read a long prompt first.
    #[serde(rename = "response_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub response: Duration,
    /// Between two reads of the answer.
    #[serde(rename = "idle_ms", serialize_with = "to_ms", deserialize_with = "from_ms")]
    pub idle: Duration,
}

impl Default for Timeouts {
    /// 10 s, 5 min and 2 min.
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self { connect: secs(10), response: secs(300), idle: secs(120) }
    }
}

/// Why an [`OpenAiConfig`] cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenAiConfigError {
    /// The base URL is none.
    #[error("the base URL {problem}; write it like `https://api.openai.com/v1`")]
    BaseUrl {
        /// What is wrong with it.
        problem: String,
    },
    /// The key cannot stand in a header.
    #[error("the API key has characters that cannot stand in a header; copy it again, without line breaks")]
    ApiKey,
    /// An extra field is written anyway.
    #[error("the extra field `{field}` is written by superstep itself; remove it from `extra`")]
    ExtraField {
        /// Which one.
        field: String,
    },
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be made")]
    Client(#[source] reqwest::Error),
}

/// Reads a base URL.
pub(crate) fn base_url(text: &str) -> Result<Url, OpenAiConfigError> {
    let wrong = |problem: String| Err(OpenAiConfigError::BaseUrl { problem });
    let url = match Url::parse(text.trim()) {
        Ok(url) => url,
        Err(cause) => return wrong(format!("`{}` cannot be read ({cause})", excerpt(text))),
    };
    if !["http", "https"].contains(&url.scheme()) {
        return wrong(format!("has the scheme `{}`, only http and https work", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong("carries a user name or password, which would show in errors".into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return wrong("has a query or fragment, and a path is added to its end".into());
    }
    Ok(url)
}

/// Whether `url` stays on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(base_url: &str) -> String {
        super::base_url(base_url).unwrap_err().to_string()
    }

    #[test]
    fn a_base_url_that_cannot_work_is_refused_at_construction() {
        let hint = "; write it like `https://api.openai.com/v1`";
        assert_eq!(
            problem("localhost"),
            format!("the base URL `localhost` cannot be read (relative URL without a base){hint}")
        );
        assert_eq!(
            problem("ftp://h/v1"),
            format!("the base URL has the scheme `ftp`, only http and https work{hint}")
        );
        assert!(problem("https://me:secret@h/v1").contains("carries a user name or password"));
        assert!(problem("https://h/v1?x=1").contains("has a query or fragment"));
        assert!(!problem("https://me:secret@h/v1").contains("secret"));
    }

    #[test]
    fn loopback_is_told_by_name_and_number() {
        let is = |url| is_loopback(&Url::parse(url).unwrap());
        assert!(is("http://localhost:1/v1") && is("http://127.0.0.9/v1") && is("http://[::1]:2/v1"));
        assert!(!is("http://example.com/v1") && !is("http://10.0.0.1/v1"));
    }
}
