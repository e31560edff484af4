//! Parsing of HTTP error responses: the kind of failure and the requested delay.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use crate::{ModelError, ModelErrorKind, texts::printable::is_printable};

/// The maximum number of characters of a server's text in an error.
const MAX_EXCERPT: usize = 500;

impl ModelError {
    /// Parses an error response: an HTTP response whose status is not 2xx.
    ///
    /// `headers` have lower-case names; `now_ms` is the UTC time in milliseconds, for a `Retry-After` date.
    /// Recognizes the error bodies of OpenAI and llama.cpp, with `code` as text or number, those of
    /// Anthropic, Google and FastAPI, and the title of an HTML page; any other body is quoted.
    pub fn from_http(status: u16, headers: &BTreeMap<String, String>, body: &str, now_ms: u64) -> Self {
        let said = ErrorBody::read(body);
        let message = match said.message.as_str() {
            "" => format!("the server answered {status}"),
            text => format!("the server answered {status}: {}", excerpt(text)),
        };
        Self {
            kind: said.kind(status),
            status: Some(status),
            message,
            retry_after: retry_after(headers, now_ms),
            should_retry: headers.get("x-should-retry").and_then(|word| word.trim().parse().ok()),
        }
    }

    /// Parses the error object that a server sends in a stream after a status of 200.
    pub fn from_stream(error: &Value) -> Self {
        let said = ErrorBody::of(error);
        // The only status is in the error's code.
        let status = said.code.parse().ok().filter(|code| (400..600).contains(code));
        let kind = said.kind(status.unwrap_or_else(|| said.usual_status()));
        let text = if said.message.is_empty() { error.to_string() } else { said.message };
        let message = format!("the server aborted the response: {}", excerpt(&text));
        Self { kind, status, message, retry_after: None, should_retry: None }
    }
}

/// The relevant parts of an error body.
#[derive(Default)]
struct ErrorBody {
    message: String,
    kind: String,
    code: String,
}

impl ErrorBody {
    fn read(body: &str) -> Self {
        match serde_json::from_str::<Value>(body) {
            Ok(Value::String(message)) => Self { message, ..Self::default() },
            Ok(body) => Self::of(&body),
            Err(_) => {
                let message = title(body).unwrap_or(body).trim().to_owned();
                Self { message, ..Self::default() }
            }
        }
    }

    /// Reads an error object, or the object around it. One without a message is quoted as a whole.
    fn of(error: &Value) -> Self {
        // Google sends it in a list.
        let error = error.as_array().and_then(|list| list.first()).unwrap_or(error);
        let inner = error.get("error").filter(|inner| inner.is_object() || inner.is_string());
        let inner = inner.unwrap_or(error);
        let text = |key: &str| [inner, error].into_iter().find_map(|part| scalar(part.get(key)?));
        let mut message = [inner, error].into_iter().find_map(message_of);
        if message.is_none() && error.as_object().is_none_or(|fields| !fields.is_empty()) {
            message = Some(error.to_string());
        }
        Self {
            message: message.unwrap_or_default(),
            kind: text("type").unwrap_or_default(),
            code: ["code", "error_code", "status_code"].into_iter().find_map(text).unwrap_or_default(),
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
            // llama.cpp and Xinference send 500.
            400 | 413 | 422 | 500 if speaks_of_context(&self.message) => ModelErrorKind::ContextOverflow,
            401 | 403 => ModelErrorKind::Auth,
            402 => ModelErrorKind::QuotaExceeded,
            404 => ModelErrorKind::NotFound,
            408 => ModelErrorKind::Timeout,
            409 | 425 | 500.. => ModelErrorKind::Server,
            429 => ModelErrorKind::RateLimited,
            // A redirect of a POST is never followed: the address is wrong.
            300..400 => ModelErrorKind::NotFound,
            _ => ModelErrorKind::BadRequest,
        }
    }

    /// Returns the usual HTTP status of such an error before a stream.
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

/// Returns a text or a number as text, if it is not empty.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the human-readable message of an error.
fn message_of(error: &Value) -> Option<String> {
    if error.is_string() {
        return scalar(error);
    }
    const KEYS: [&str; 11] = [
        "message",
        "detail",
        "msg",
        "error_msg",
        "error_message",
        "status_msg",
        "error_description",
        "errors",
        "title",
        "reason",
        "error",
    ];
    KEYS.into_iter().find_map(|key| {
        match error.get(key)? {
            // FastAPI's list of invalid fields.
            Value::Array(list) => {
                let each: Vec<String> = list.iter().filter_map(problem).collect();
                (!each.is_empty()).then(|| each.join("; "))
            }
            inner @ Value::Object(_) => message_of(inner).or_else(|| Some(inner.to_string())),
            value => scalar(value),
        }
    })
}

fn problem(entry: &Value) -> Option<String> {
    let message = message_of(entry)?;
    let Some(place) = entry.get("loc").and_then(Value::as_array) else { return Some(message) };
    let place: Vec<String> = place.iter().filter_map(scalar).collect();
    Some(format!("`{}`: {message}", place.join(".")))
}

/// Returns the title of an HTML page.
fn title(page: &str) -> Option<&str> {
    let is_page = page.trim_start().starts_with('<');
    let at = page.find("<title").filter(|_| is_page)?;
    let (_, title) = page[at..].split_once('>')?;
    let (title, _) = title.split_once("</title")?;
    Some(title).filter(|title| !title.trim().is_empty())
}

/// Returns whether an error message says that the conversation is too long.
fn speaks_of_context(message: &str) -> bool {
    let message = message.to_lowercase();
    // Phrases of OpenAI, llama.cpp, Anthropic, Gemini, Kimi, Qwen, Grok, vLLM, Copilot, and TGI with Together.
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
        "maximum model length",
        "prompt token count",
        "`inputs` tokens + `max_new_tokens`",
        "`inputs` must have less than",
    ];
    subject.iter().any(|word| message.contains(word)) || message.contains("too many tokens")
}

/// Returns the delay that the server requests: `retry-after-ms`, else `retry-after` in seconds or as an HTTP
/// date.
///
/// `headers` have lower-case names; `now_ms` is the UTC time in milliseconds. A past date and any invalid
/// value are ignored.
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

/// Returns the start of a server's text, in one line, with characters that are not [printable](is_printable)
/// as `\u{…}`.
pub fn excerpt(text: &str) -> String {
    let mut line = String::new();
    let words = text.split_whitespace().enumerate();
    let chars = words.flat_map(|(at, word)| (at > 0).then_some(' ').into_iter().chain(word.chars()));
    for (at, char) in chars.enumerate() {
        if at == MAX_EXCERPT {
            line.push('…');
            break;
        }
        if is_printable(char) { line.push(char) } else { line.extend(char.escape_unicode()) }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: u16, body: &str) -> ModelErrorKind {
        ModelError::from_http(status, &BTreeMap::new(), body, 0).kind
    }

    fn wait(headers: &[(&str, &str)], now_ms: u64) -> Option<Duration> {
        retry_after(
            &headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            now_ms,
        )
    }

    #[test]
    fn the_message_of_a_provider_is_always_shown() {
        for (body, shown) in [
            (r#"{"error":{"message":"no such model","code":404}}"#, "no such model"),
            (r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, "Overloaded"),
            (r#"[{"error":{"code":400,"message":"bad key","status":"INVALID"}}]"#, "bad key"),
            (r#"{"error":"model 'x' not found"}"#, "model 'x' not found"),
            (r#"{"error":true,"message":"why"}"#, "why"),
            (r#"{"message":"said so"}"#, "said so"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (
                r#"{"detail":[{"loc":["body","model"],"msg":"field required","type":"missing"},{"loc":["body",0],"msg":"no"}]}"#,
                "`body.model`: field required; `body.0`: no",
            ),
            (r#"{"errors":[{"message":"first"},"second"]}"#, "first; second"),
            (r#"{"error":{"message":{"text":"deep"}}}"#, r#"{"text":"deep"}"#),
            (r#"{"error":{"code":"x"}}"#, r#"{"code":"x"}"#),
            (r#"{"problem":"odd"}"#, r#"{"problem":"odd"}"#),
            (r#""just a text""#, "just a text"),
            ("upstream down\n", "upstream down"),
            ("<!doctype html><html><head><title>502 Bad\nGateway</title>", "502 Bad Gateway"),
            ("<html>no title", "<html>no title"),
            ("a\u{1b}[31m\u{202e}b", "a\\u{1b}[31m\\u{202e}b"),
            // As elsewhere: fillers are invisible, and a selector belongs to its emoji.
            ("a\u{3164}b\u{115f}c\u{2764}\u{fe0f}", "a\\u{3164}b\\u{115f}c\u{2764}\u{fe0f}"),
        ] {
            let error = ModelError::from_http(500, &BTreeMap::new(), body, 0);
            assert_eq!(error.message, format!("the server answered 500: {shown}"), "{body}");
        }
        assert_eq!(ModelError::from_http(500, &BTreeMap::new(), "{}", 0).message, "the server answered 500");
        let long = ModelError::from_http(500, &BTreeMap::new(), &"x".repeat(9999), 0).message;
        assert_eq!(long.chars().count(), "the server answered 500: ".len() + MAX_EXCERPT + 1);
    }

    #[test]
    fn a_status_alone_determines_the_kind() {
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
        let llama =
            r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#;
        assert_eq!(kind(500, llama), ModelErrorKind::ContextOverflow);
        for (status, words) in [
            (
                500,
                r#"{"detail":"The decoder prompt (length 66501) is longer than the maximum model length of 65536."}"#,
            ),
            (400, r#"{"error":{"message":"prompt token count of 135000 exceeds the limit of 128000"}}"#),
            (
                422,
                r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 6204 `inputs` tokens and 2047 `max_new_tokens`"}"#,
            ),
            (
                422,
                r#"{"error":"Input validation error: `inputs` must have less than 4096 tokens. Given: 4545"}"#,
            ),
        ] {
            assert_eq!(kind(status, words), ModelErrorKind::ContextOverflow, "{words}");
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
    fn a_body_that_is_not_json_is_quoted_in_one_short_line() {
        let error = ModelError::from_http(502, &BTreeMap::new(), &format!("<html>\n{}", "é".repeat(600)), 0);
        assert!(error.message.starts_with("the server answered 502: <html> éé"), "{}", error.message);
        assert_eq!(error.message.chars().count(), 25 + MAX_EXCERPT + 1);
    }

    #[test]
    fn an_error_inside_a_stream_takes_its_status_from_the_code() {
        let error = ModelError::from_stream(&serde_json::json!({"code": 429, "message": "slow down"}));
        assert_eq!((error.kind, error.status), (ModelErrorKind::RateLimited, Some(429)));
        let error = ModelError::from_stream(&serde_json::json!({"type": "server_error", "message": "oops"}));
        assert_eq!((error.kind, error.status), (ModelErrorKind::Server, None));
        let too_long = serde_json::json!({"code": 500, "message": "Context size has been exceeded."});
        assert_eq!(ModelError::from_stream(&too_long).kind, ModelErrorKind::ContextOverflow);
        let error = ModelError::from_stream(&serde_json::json!("overloaded"));
        assert_eq!(error.message, "the server aborted the response: overloaded");
    }

    #[test]
    fn retry_after_is_read_from_all_its_forms() {
        let secs = Duration::from_secs;
        assert_eq!(wait(&[("retry-after", "7")], 0), Some(secs(7)));
        assert_eq!(
            wait(&[("retry-after-ms", "1500"), ("retry-after", "7")], 0),
            Some(Duration::from_millis(1500))
        );
        assert_eq!(wait(&[("retry-after-ms", "soon"), ("retry-after", "7")], 0), Some(secs(7)));
        assert_eq!(wait(&[("retry-after", "0.5")], 0), Some(Duration::from_millis(500)));
        let date = "Thu, 01 Jan 1970 00:00:20 GMT";
        assert_eq!(wait(&[("retry-after", date)], 0), Some(secs(20)));
        assert_eq!(wait(&[("retry-after", date)], 20_000), None);
        assert_eq!(wait(&[("retry-after", date)], 90_000), None);
        for garbage in ["", "soon", "-1", "NaN", "inf", "1e300"] {
            assert_eq!(wait(&[("retry-after", garbage)], 0), None, "{garbage}");
        }
    }
}
