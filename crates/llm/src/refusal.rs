//! Reads an HTTP answer that is no stream: what kind of failure it is and how long to wait.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use crate::{ModelError, ModelErrorKind};

/// Most characters of a server's own words that go into an error.
const EXCERPT: usize = 500;

impl ModelError {
    /// Reads a refusal: an HTTP answer whose status is not 2xx.
    ///
    /// `headers` have lower-case names; `now_ms` is the UTC time in milliseconds, for a `Retry-After` that is a date.
    /// Knows the error bodies of OpenAI and llama.cpp, with `code` as text or number; any other body is quoted.
    pub fn from_http(status: u16, headers: &BTreeMap<String, String>, body: &str, now_ms: u64) -> Self {
        let said = Said::read(body);
        let message = match said.message.as_str() {
            "" => format!("the server answered {status}"),
            text => format!("the server answered {status}: {}", excerpt(text)),
        };
        Self {
            kind: said.kind(status),
            status: Some(status),
            message,
            retry_after: retry_after(headers, now_ms),
        }
    }

    /// Reads the error object that a server puts into a stream it has already begun with a 200.
    pub fn from_stream(error: &Value) -> Self {
        let said = Said::of(error);
        // The only status there is hides in the code.
        let status = said.code.parse().ok().filter(|code| (400..600).contains(code));
        let kind = said.kind(status.unwrap_or_else(|| said.usual_status()));
        let text = if said.message.is_empty() { error.to_string() } else { said.message };
        let message = format!("the server broke off the answer: {}", excerpt(&text));
        Self { kind, status, message, retry_after: None }
    }
}

/// What an error body says, as far as anything here depends on it.
#[derive(Default)]
struct Said {
    message: String,
    kind: String,
    code: String,
}

impl Said {
    fn read(body: &str) -> Self {
        match serde_json::from_str::<Value>(body) {
            Ok(Value::Object(body)) => match body.get("error") {
                Some(error) => Self::of(error),
                None => Self::of(&Value::Object(body)),
            },
            _ => Self { message: body.trim().to_owned(), ..Self::default() },
        }
    }

    fn of(error: &Value) -> Self {
        let text = |key: &str| match error.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        match error {
            Value::String(message) => Self { message: message.clone(), ..Self::default() },
            _ => {
                let message = ["message", "detail"]
                    .into_iter()
                    .map(text)
                    .find(|text| !text.is_empty())
                    .unwrap_or_default();
                Self { message, kind: text("type"), code: text("code") }
            }
        }
    }

    fn kind(&self, status: u16) -> ModelErrorKind {
        let is = |word: &str| self.kind == word || self.code == word;
        if is("insufficient_quota") || is("billing_hard_limit_reached") {
            return ModelErrorKind::QuotaExceeded;
        }
        if is("context_length_exceeded") || is("exceed_context_size_error") {
            return ModelErrorKind::ContextOverflow;
        }
        match status {
            400 | 413 | 422 if speaks_of_context(&self.message) => ModelErrorKind::ContextOverflow,
            401 | 403 => ModelErrorKind::Auth,
            402 => ModelErrorKind::QuotaExceeded,
            404 => ModelErrorKind::NotFound,
            408 => ModelErrorKind::Timeout,
            409 | 425 | 500.. => ModelErrorKind::Server,
            429 => ModelErrorKind::RateLimited,
            // A redirect of a POST is never followed: the address is not the one to ask.
            300..400 => ModelErrorKind::NotFound,
            _ => ModelErrorKind::BadRequest,
        }
    }

    /// The status such an error has when it comes before the stream.
    fn usual_status(&self) -> u16 {
        let is = |word: &str| self.kind.contains(word) || self.code.contains(word);
        if is("rate_limit") || is("too_many_requests") {
            429
        } else if is("authentication") || is("permission") || is("invalid_api_key") {
            401
        } else if is("invalid_request") || speaks_of_context(&self.message) {
            400
        } else {
            500
        }
    }
}

/// Whether a refusal says in words that the conversation is too long.
fn speaks_of_context(message: &str) -> bool {
    let message = message.to_lowercase();
    // The words of OpenAI, llama.cpp, Anthropic, Gemini, Kimi, Qwen and Grok.
    let subject = [
        "context length",
        "context size",
        "context window",
        "context limit",
        "prompt is too long",
        "input is too long",
        "input token count",
        "model token limit",
        "input length",
        "prompt length",
    ];
    subject.iter().any(|word| message.contains(word)) || message.contains("too many tokens")
}

/// How long the server asks to wait: `retry-after-ms`, else `retry-after` in seconds or as an HTTP date.
///
/// `headers` have lower-case names; `now_ms` is the UTC time in milliseconds. A date that has passed, and anything
/// that is no time, is no wish.
pub fn retry_after(headers: &BTreeMap<String, String>, now_ms: u64) -> Option<Duration> {
    let header = |name: &str| headers.get(name).map(|value| value.trim());
    let number = |text: &str, unit: f64| {
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)?;
        Duration::try_from_secs_f64(value * unit).ok()
    };
    if let Some(wait) = header("retry-after-ms").and_then(|text| number(text, 0.001)) {
        return Some(wait);
    }
    let text = header("retry-after")?;
    number(text, 1.0).or_else(|| {
        let then = httpdate::parse_http_date(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        then.checked_sub(Duration::from_millis(now_ms)).filter(|wait| !wait.is_zero())
    })
}

/// The start of what a server said, in one line.
pub fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(EXCERPT) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: u16, body: &str) -> ModelErrorKind {
        ModelError::from_http(status, &BTreeMap::new(), body, 0).kind
    }

    fn wish(headers: &[(&str, &str)], now_ms: u64) -> Option<Duration> {
        retry_after(
            &headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            now_ms,
        )
    }

    #[test]
    fn a_status_alone_tells_the_kind() {
        use ModelErrorKind::*;
        for (status, expected) in [
            (400, BadRequest),
            (422, BadRequest),
            (401, Auth),
            (403, Auth),
            (404, NotFound),
            (307, NotFound),
            (408, Timeout),
            (429, RateLimited),
            (402, QuotaExceeded),
            (409, Server),
            (425, Server),
            (500, Server),
            (503, Server),
            (529, Server),
        ] {
            assert_eq!(kind(status, ""), expected, "{status}");
        }
    }

    #[test]
    fn a_body_refines_the_kind_of_its_status() {
        let llama = r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_ctx":4096}}"#;
        let openai = r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#;
        let words =
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","code":null}}"#;
        for body in [llama, openai, words] {
            assert_eq!(kind(400, body), ModelErrorKind::ContextOverflow, "{body}");
        }
        let quota = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota"}}"#;
        assert_eq!(kind(429, quota), ModelErrorKind::QuotaExceeded);
    }

    #[test]
    fn an_integer_code_does_not_hide_the_status() {
        let error =
            ModelError::from_http(401, &BTreeMap::new(), r#"{"error":{"code":401,"message":"no"}}"#, 0);
        assert_eq!((error.kind, error.status), (ModelErrorKind::Auth, Some(401)));
        assert_eq!(error.message, "the server answered 401: no");
    }

    #[test]
    fn a_body_that_is_no_json_is_quoted_in_one_short_line() {
        let error = ModelError::from_http(502, &BTreeMap::new(), &format!("<html>\n{}", "é".repeat(600)), 0);
        assert!(error.message.starts_with("the server answered 502: <html> éé"), "{}", error.message);
        assert_eq!(error.message.chars().count(), 25 + EXCERPT + 1);
    }

    #[test]
    fn an_error_inside_a_stream_takes_its_status_from_the_code() {
        let error = ModelError::from_stream(&serde_json::json!({"code": 429, "message": "slow down"}));
        assert_eq!((error.kind, error.status), (ModelErrorKind::RateLimited, Some(429)));
        let error = ModelError::from_stream(&serde_json::json!({"type": "server_error", "message": "oops"}));
        assert_eq!((error.kind, error.status), (ModelErrorKind::Server, None));
        let error = ModelError::from_stream(&serde_json::json!("overloaded"));
        assert_eq!(error.message, "the server broke off the answer: overloaded");
    }

    #[test]
    fn the_wish_to_wait_is_read_from_all_its_forms() {
        let secs = Duration::from_secs;
        assert_eq!(wish(&[("retry-after", "7")], 0), Some(secs(7)));
        assert_eq!(
            wish(&[("retry-after-ms", "1500"), ("retry-after", "7")], 0),
            Some(Duration::from_millis(1500))
        );
        assert_eq!(wish(&[("retry-after-ms", "soon"), ("retry-after", "7")], 0), Some(secs(7)));
        assert_eq!(wish(&[("retry-after", "0.5")], 0), Some(Duration::from_millis(500)));
        let date = "Thu, 01 Jan 1970 00:00:20 GMT";
        assert_eq!(wish(&[("retry-after", date)], 0), Some(secs(20)));
        assert_eq!(wish(&[("retry-after", date)], 20_000), None);
        assert_eq!(wish(&[("retry-after", date)], 90_000), None);
        for garbage in ["", "soon", "-1", "NaN", "inf", "1e300"] {
            assert_eq!(wish(&[("retry-after", garbage)], 0), None, "{garbage}");
        }
    }
}
