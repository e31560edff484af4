//! Refused requests: their kinds, and what makes another attempt succeed.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::request::Form;
use crate::{ModelError, ModelErrorKind, exchange::server::Refusal};

/// Returns the error of a refused request, of the kind that the API documents for it.
pub(super) fn error_of(refusal: Refusal) -> ModelError {
    let Refusal { mut error, body, .. } = refusal;
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    let is_spent =
        body.to_string().contains("spend_limit_reached") || body["error"]["type"] == "billing_error";
    let names_limit = error.message.to_lowercase().contains("spend limit");
    error.kind = match error.status {
        Some(400) if names_limit => ModelErrorKind::QuotaExceeded,
        Some(429) if is_spent => ModelErrorKind::QuotaExceeded,
        Some(413) => ModelErrorKind::ContextOverflow,
        Some(504) => ModelErrorKind::Timeout,
        _ => error.kind,
    };
    error
}

/// Returns the error that a server sends within a stream.
pub(super) fn error_in_stream(event: &Value) -> ModelError {
    let mut error = ModelError::from_stream(event);
    let kind = event["error"]["type"].as_str().unwrap_or_default();
    error.kind = match kind {
        "overloaded_error" | "api_error" => ModelErrorKind::Server,
        "rate_limit_error" => ModelErrorKind::RateLimited,
        "timeout_error" => ModelErrorKind::Timeout,
        "authentication_error" | "permission_error" => ModelErrorKind::Auth,
        "billing_error" => ModelErrorKind::QuotaExceeded,
        "not_found_error" => ModelErrorKind::NotFound,
        "request_too_large" => ModelErrorKind::ContextOverflow,
        "invalid_request_error" if error.kind != ModelErrorKind::ContextOverflow => {
            ModelErrorKind::BadRequest
        }
        _ => error.kind,
    };
    error
}

/// The refusals of the server that apply to all requests of the process.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Betas that it refused by name.
    lost_betas: Mutex<Vec<String>>,
}

/// A change of a refused request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Repair {
    /// The reasoning of earlier answers stays out.
    NoThinking,
    /// A beta stays out.
    Beta(String),
}

impl Refusals {
    pub(super) fn form(&self) -> Form {
        let lost_betas = self.lost_betas.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Form { lost_betas, ..Form::default() }
    }

    /// Leaves a beta out of all later requests.
    pub(super) fn lose(&self, beta: &str) {
        self.lost_betas.lock().unwrap_or_else(PoisonError::into_inner).push(beta.to_owned());
    }
}

/// Returns the change that makes a refused request valid; `None` if there is none. A request has `betas`, and reasoning if
/// `has_thinking`.
pub(super) fn repair_of(error: &ModelError, betas: &[String], has_thinking: bool) -> Option<Repair> {
    if error.status != Some(400) {
        return None;
    }
    let says = |words: &str| error.message.contains(words);
    // Before the betas: an error about reasoning names one.
    let is_about_thinking = says("thinking")
        && [
            "Invalid `",
            "cannot be modified",
            "bound to a different",
            "must start with a thinking block",
            "Expected `thinking`",
        ]
        .into_iter()
        .any(says);
    if is_about_thinking && has_thinking {
        return Some(Repair::NoThinking);
    }
    betas.iter().find(|beta| says(beta)).map(|beta| Repair::Beta(beta.clone()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn kind(status: u16, body: &str) -> ModelErrorKind {
        let error = ModelError::from_http(status, &BTreeMap::new(), body, 0);
        error_of(Refusal { error, body: body.to_owned() }).kind
    }

    #[test]
    fn a_refusal_has_the_kind_that_is_documented() {
        let body = |kind: &str, message: &str| {
            format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#)
        };
        let invalid = |message: &str| body("invalid_request_error", message);
        assert_eq!(
            kind(400, &invalid("You have reached your specified spend limit")),
            ModelErrorKind::QuotaExceeded
        );
        let spent = r#"{"error":{"type":"rate_limit_error","message":"no","details":{"error_code":"enforced_spend_limit_reached"}}}"#;
        assert_eq!(kind(429, spent), ModelErrorKind::QuotaExceeded);
        assert_eq!(kind(429, &body("rate_limit_error", "slow")), ModelErrorKind::RateLimited);
        assert_eq!(kind(413, &body("request_too_large", "no")), ModelErrorKind::ContextOverflow);
        assert_eq!(
            kind(400, &invalid("prompt is too long: 9 tokens > 8 maximum")),
            ModelErrorKind::ContextOverflow
        );
        assert_eq!(kind(504, ""), ModelErrorKind::Timeout);
        assert_eq!(kind(529, &body("overloaded_error", "Overloaded")), ModelErrorKind::Server);
    }

    #[test]
    fn an_error_about_reasoning_is_repaired_before_one_about_a_beta() {
        let refused = |message: &str| ModelError {
            status: Some(400),
            ..ModelError::new(ModelErrorKind::BadRequest, message)
        };
        let betas = ["thinking-binding-controls-2026-08-01".to_owned()];
        let bound = refused(
            "Invalid `signature` in `thinking` block. The block is bound to a different conversation. That setting requires the \
             `thinking-binding-controls-2026-08-01` value",
        );
        assert_eq!(repair_of(&bound, &betas, true), Some(Repair::NoThinking));
        let unknown = refused(
            "Unexpected value `thinking-binding-controls-2026-08-01` for the `anthropic-beta` header",
        );
        assert_eq!(repair_of(&unknown, &betas, true), Some(Repair::Beta(betas[0].clone())));
        assert_eq!(repair_of(&unknown, &[], true), None);
        assert_eq!(
            repair_of(&refused("messages.0: text content blocks must be non-empty"), &betas, true),
            None
        );
    }
}
