//! Addresses of servers, and the variables that have their keys.

use std::env;

use superstep::llm::{ApiKey, http, variables};

use crate::error::SessionError;

/// Returns the key in an environment variable.
pub(crate) fn key_in(name: &str) -> Result<ApiKey, SessionError> {
    variables::withhold(name);
    let key = env::var(name).ok().map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
    let unset = || {
        SessionError::usage(format!(
            "the configuration takes a key from the variable `{name}`, which is not set"
        ))
    };
    key.map(ApiKey::new).ok_or_else(unset)
}

/// Returns whether two addresses are the same, but for slashes at the end.
pub(crate) fn is_same_server(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Returns whether an address is on this machine.
pub(crate) fn is_loopback(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| http::is_loopback(&url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_detected_by_name_and_number() {
        assert!(is_loopback("http://localhost:1/v1") && is_loopback("http://[::1]:1/v1"));
        assert!(!is_loopback("http://localhost.example/v1") && !is_loopback("nonsense"));
    }
}
