//! Refused requests: their kinds and waits, and what makes another attempt succeed.

use std::time::Duration;

use serde_json::Value;

use crate::{ModelError, ModelErrorKind, exchange::server::Refusal};

/// Returns the error of a refused request, of the kind that the API documents for it.
pub(super) fn error_of(refusal: Refusal) -> ModelError {
    let Refusal { error, body } = refusal;
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    // Some answers have a list around it.
    let body = if body.is_array() { &body[0] } else { &body };
    described(error, &body["error"])
}

/// Returns the error that a server sends within a stream.
pub(super) fn error_in_stream(error: &Value) -> ModelError {
    described(ModelError::from_stream(error), error)
}

/// Adds what a status of Google says about an error.
///
/// # Source
/// Google, AIP-193: `google.rpc.Status`, with `ErrorInfo`, `QuotaFailure` and `RetryInfo` as details.
fn described(mut error: ModelError, status: &Value) -> ModelError {
    let details = || status["details"].as_array().into_iter().flatten();
    let says = |words: &str| error.message.to_lowercase().contains(words);
    let has_reason = |reason: &str| details().any(|detail| detail["reason"] == reason);
    let is_daily =
        |violation: &Value| violation["quotaId"].as_str().is_some_and(|quota| quota.contains("PerDay"));
    let violations =
        |detail: &Value| detail["violations"].as_array().is_some_and(|list| list.iter().any(is_daily));
    use ModelErrorKind::*;
    error.kind = match status["status"].as_str().unwrap_or_default() {
        _ if error.kind == ContextOverflow => ContextOverflow,
        "INVALID_ARGUMENT" if says("payload size exceeds") => ContextOverflow,
        "INVALID_ARGUMENT" if has_reason("API_KEY_INVALID") || says("api key not valid") => Auth,
        "INVALID_ARGUMENT" | "OUT_OF_RANGE" => BadRequest,
        // A region or an account that may not use the API.
        "FAILED_PRECONDITION" | "PERMISSION_DENIED" | "UNAUTHENTICATED" => Auth,
        "NOT_FOUND" => NotFound,
        "RESOURCE_EXHAUSTED" if details().any(violations) => QuotaExceeded,
        "RESOURCE_EXHAUSTED" => RateLimited,
        "DEADLINE_EXCEEDED" => Timeout,
        "INTERNAL" | "UNAVAILABLE" | "UNKNOWN" | "ABORTED" | "CANCELLED" => Server,
        _ => error.kind,
    };
    let wait = details().find_map(|detail| {
        let seconds = detail["retryDelay"].as_str()?.strip_suffix('s')?.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    });
    error.retry_after = error.retry_after.or(wait);
    error
}

/// Returns whether a request may succeed without the signatures of earlier answers.
pub(super) fn is_about_signatures(error: &ModelError) -> bool {
    let message = error.message.to_lowercase();
    let names = ["thought signature", "thought_signature", "thoughtsignature"];
    error.status == Some(400) && names.into_iter().any(|name| message.contains(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn refused(code: u16, status: &str, message: &str, details: Value) -> ModelError {
        let body = json!({"error": {"code": code, "message": message, "status": status, "details": details}});
        let error = ModelError::from_http(code, &BTreeMap::new(), &body.to_string(), 0);
        let in_list = Refusal { error: error.clone(), body: json!([body]).to_string() };
        let error = error_of(Refusal { error, body: body.to_string() });
        assert_eq!(error_of(in_list).kind, error.kind);
        assert_eq!(error_in_stream(&body["error"]).kind, error.kind, "{error}");
        error
    }

    #[test]
    fn a_refusal_has_the_kind_that_is_documented() {
        use ModelErrorKind::*;
        for (code, status, message, kind) in [
            (400, "INVALID_ARGUMENT", "Invalid value", BadRequest),
            (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", Auth),
            (
                400,
                "INVALID_ARGUMENT",
                "The input token count (9) exceeds the maximum number of tokens allowed (8).",
                ContextOverflow,
            ),
            (
                400,
                "INVALID_ARGUMENT",
                "Request payload size exceeds the limit: 20971520 bytes.",
                ContextOverflow,
            ),
            (400, "FAILED_PRECONDITION", "User location is not supported for the API use.", Auth),
            (401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", Auth),
            (403, "PERMISSION_DENIED", "No", Auth),
            (404, "NOT_FOUND", "models/x is not found", NotFound),
            (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted", RateLimited),
            (499, "CANCELLED", "Cancelled", Server),
            (500, "INTERNAL", "An internal error has occurred.", Server),
            (503, "UNAVAILABLE", "The model is overloaded.", Server),
            (504, "DEADLINE_EXCEEDED", "Deadline expired", Timeout),
        ] {
            assert_eq!(refused(code, status, message, json!([])).kind, kind, "{message}");
        }
    }

    #[test]
    fn a_wait_and_a_daily_quota_are_details() {
        let wait = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"});
        let limited = refused(429, "RESOURCE_EXHAUSTED", "Slow down", json!([wait]));
        assert_eq!(limited.retry_after, Some(Duration::from_millis(34_500)));
        let quota = |id: &str| {
            let failure = json!({"violations": [{"quotaId": id}]});
            refused(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota", json!([failure, wait])).kind
        };
        assert_eq!(
            quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
            ModelErrorKind::RateLimited
        );
        assert_eq!(quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), ModelErrorKind::QuotaExceeded);
        for odd in ["x", "-1s", "s", "1e99s"] {
            assert_eq!(
                refused(429, "RESOURCE_EXHAUSTED", "", json!([{"retryDelay": odd}])).retry_after,
                None
            );
        }
    }

    #[test]
    fn errors_about_signatures_are_recognised() {
        let says = |message: &str| is_about_signatures(&refused(400, "INVALID_ARGUMENT", message, json!([])));
        assert!(says("Function call is missing a thought_signature in functionCall parts."));
        assert!(says("Corrupted thought signature."));
        assert!(!says("Invalid value"));
    }
}
