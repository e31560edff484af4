//! A server of models, and the exchange of one request with it. Used by all protocols.
//!
//! Start at [`Server`].

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use reqwest::{Client, Request, Response, Url, header};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    ApiKey, ModelConfigError, ModelError, ModelErrorKind, Timeouts,
    exchange::events::Events,
    http::{base_url, client, error::excerpt, root_cause},
    model::{limits::AnswerLimits, timers::check_timers, trace::trace_headers},
};

/// A server of models.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) http: Client,
    /// The address, without a slash at its end.
    pub(crate) url: Url,
    pub(crate) api_key: ApiKey,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: AnswerLimits,
    /// Returns the UTC time in milliseconds.
    pub(crate) clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// The refusal of a request: a response whose status is not 2xx.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: ModelError,
    /// The beginning of the body.
    pub(crate) body: String,
}

impl From<ModelError> for Refusal {
    fn from(error: ModelError) -> Self {
        Self { error, body: String::new() }
    }
}

impl Server {
    /// Validates the settings and creates the client, without connecting.
    ///
    /// # Errors
    /// For an invalid base URL or key.
    pub(crate) fn new(
        url: &str,
        api_key: ApiKey,
        timeouts: Timeouts,
        limits: AnswerLimits,
    ) -> Result<Self, ModelConfigError> {
        let url = base_url(url).map_err(|problem| ModelConfigError::BaseUrl { problem })?;
        if header::HeaderValue::from_str(api_key.reveal()).is_err() {
            return Err(ModelConfigError::ApiKey);
        }
        let http = client(&url, timeouts.connect).map_err(ModelConfigError::Client)?;
        Ok(Self { http, url, api_key, timeouts, limits, clock: Arc::new(system_clock) })
    }

    /// Returns the address, without a slash at its end.
    pub(crate) fn address(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// Returns the server, as `scheme://host:port`.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Posts a JSON body to a path below the address.
    pub(crate) async fn post(
        &self,
        path: &str,
        headers: impl IntoIterator<Item = (&'static str, String)>,
        body: &impl serde::Serialize,
    ) -> Result<Answer, Refusal> {
        let bytes = serde_json::to_vec(body).expect("what is sent has a JSON form");
        let mut request = self.http.post(format!("{}{path}", self.address()));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.header(header::CONTENT_TYPE, "application/json").body(bytes).build();
        let response = self.send(request.map_err(not_sent)?).await?;
        Ok(Answer::of(response, self))
    }

    /// Sends a request once, with the headers of the trace.
    pub(crate) async fn send(&self, mut request: Request) -> Result<Response, Refusal> {
        for (name, value) in trace_headers() {
            // A propagator of the program's own may have a header that HTTP does not allow.
            if let (Ok(name), Ok(value)) = (header::HeaderName::try_from(name), value.try_into()) {
                request.headers_mut().insert(name, value);
            }
        }
        let (base_url, patience) = (self.address(), self.timeouts.response);
        check_timers().map_err(ModelError::from)?;
        let response = match timeout(patience, self.http.execute(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let error = not_sent(error);
                return Err(
                    ModelError { message: format!("`{base_url}`: {}", error.message), ..error }.into()
                );
            }
            Err(_) => {
                let message = format!("`{base_url}` sent no answer within {} s", patience.as_secs_f64());
                return Err(ModelError::new(ModelErrorKind::Timeout, message).into());
            }
        };
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
    }

    async fn refusal(&self, mut response: Response) -> Refusal {
        let (status, encoding) = (response.status(), encoding_of(&response));
        let text = |value: &header::HeaderValue| value.to_str().ok().map(str::to_owned);
        let headers: BTreeMap<String, String> = response
            .headers()
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?)))
            .collect();
        let mut body = Vec::new();
        let read = async {
            while body.len() < self.limits.error_bytes
                && let Ok(Some(bytes)) = response.chunk().await
            {
                let rest = self.limits.error_bytes - body.len();
                body.extend_from_slice(&bytes[..bytes.len().min(rest)]);
            }
        };
        // A body that breaks off, stalls or never ends is used as far as it was read: the status gives the
        // kind.
        let _ = timeout(self.timeouts.idle, read).await;
        // Before any truncation, which could leave a part of the key.
        let body = match encoding.filter(|_| std::str::from_utf8(&body).is_err()) {
            Some(encoding) => format!(
                "the reason is compressed (`content-encoding: {encoding}`), which the request does not accept"
            ),
            None => self.api_key.hide_in(String::from_utf8_lossy(&body).into_owned()),
        };
        let mut error = ModelError::from_http(status.as_u16(), &headers, &body, (self.clock)());
        if status.is_redirection() {
            error.message.push_str(
                "; it redirects elsewhere, which a request with a key does not follow: correct the base URL",
            );
        }
        Refusal { error, body }
    }

    /// Replaces the key in an error.
    pub(crate) fn hide_key(&self, error: ModelError) -> ModelError {
        ModelError { message: self.api_key.hide_in(error.message), ..error }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

/// A response as events.
pub(crate) struct Answer {
    response: Response,
    events: Events,
    idle: Duration,
    /// The content encoding, unless it is plain.
    encoding: Option<String>,
    /// The beginning of a response without events.
    head: Vec<u8>,
    /// `true` if an event was read.
    is_stream: bool,
    /// The end of the response, after which only events that were read follow.
    end: Option<Result<(), ModelError>>,
    /// The maximum time from the end of the answer to that of the response, and the end of that time.
    grace: Duration,
    until: Option<Instant>,
}

/// The maximum of that time, far beyond any use.
const MAX_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the end of the time for the end of a response, which begins now.
pub(crate) fn end_of(grace: Duration) -> Instant {
    Instant::now() + grace.min(MAX_GRACE)
}

/// The maximum number of bytes stored from an answer that may not be a stream.
pub(crate) const HEAD: usize = 16 * 1024;

impl Answer {
    fn of(response: Response, server: &Server) -> Self {
        Self {
            events: Events::of_any_kind(server.limits),
            idle: server.timeouts.idle,
            grace: server.timeouts.end,
            until: None,
            encoding: encoding_of(&response),
            response,
            head: Vec::new(),
            is_stream: false,
            end: None,
        }
    }

    /// Notes that the answer is complete. The rest of the response, whose end lets the connection be used again, is awaited for a short
    /// time, and its failures are ignored.
    pub(crate) fn finish(&mut self) {
        self.until.get_or_insert_with(|| end_of(self.grace));
    }

    /// Returns the data of the next event; `None` at the end.
    ///
    /// # Errors
    /// A broken or silent connection, a response that is too long, or one that is not a stream of events.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, ModelError> {
        match self.until {
            Some(until) => Ok(timeout_at(until, self.read()).await.ok().and_then(Result::ok).flatten()),
            None => self.read().await,
        }
    }

    async fn read(&mut self) -> Result<Option<String>, ModelError> {
        loop {
            if let Some(data) = self.events.next_data() {
                self.is_stream = true;
                return Ok(Some(data));
            }
            match &self.end {
                Some(Err(error)) => return Err(error.clone()),
                Some(Ok(())) if self.is_stream => return Ok(None),
                Some(Ok(())) => {
                    let error = self.encoding.as_deref().map(encoded).or_else(|| not_a_stream(&self.head));
                    return error.map_or(Ok(None), Err);
                }
                None => {
                    self.end = read(&mut self.response, self.idle, &mut self.events, &mut self.head).await
                }
            }
        }
    }
}

/// Reads once from a response. Returns its end.
pub(crate) async fn read(
    response: &mut Response,
    idle: Duration,
    events: &mut Events,
    head: &mut Vec<u8>,
) -> Option<Result<(), ModelError>> {
    let fault = match timeout(idle, response.chunk()).await {
        Ok(Ok(Some(bytes))) => {
            let space = HEAD.saturating_sub(head.len());
            head.extend_from_slice(&bytes[..bytes.len().min(space)]);
            return events.push(&bytes).err().map(Err);
        }
        Ok(Ok(None)) => {
            events.end();
            return Some(Ok(()));
        }
        Ok(Err(cause)) => {
            let message = format!("the connection broke in the middle of the answer: {}", root_cause(&cause));
            ModelError::new(ModelErrorKind::TruncatedStream, message)
        }
        Err(_) => {
            let seconds = idle.as_secs_f64();
            let message = format!("the server was silent for {seconds} s in the middle of the answer");
            ModelError::new(ModelErrorKind::Timeout, message)
        }
    };
    Some(Err(fault))
}

#[allow(clippy::disallowed_methods, reason = "the default of a clock that can be replaced")]
fn system_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Converts the error of a request that got no response.
pub(crate) fn not_sent(error: reqwest::Error) -> ModelError {
    let kind = if error.is_builder() { ModelErrorKind::BadRequest } else { ModelErrorKind::Connect };
    ModelError::new(kind, format!("no connection: {}", root_cause(&error)))
}

/// Returns the content encoding of a response that may not be readable text.
pub(crate) fn encoding_of(response: &Response) -> Option<String> {
    let encoding = response.headers().get(header::CONTENT_ENCODING)?.to_str().ok()?.trim();
    (!encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity")).then(|| excerpt(encoding))
}

/// Creates the error of a response that cannot be read, because it is compressed.
pub(crate) fn encoded(encoding: &str) -> ModelError {
    let message = format!(
        "the server compressed its answer (`content-encoding: {encoding}`), which the request does not accept; turn that off at the \
         server, or at the proxy before it"
    );
    ModelError::new(ModelErrorKind::Malformed, message)
}

/// Returns the error for a response with status 200 without any event.
pub(crate) fn not_a_stream(head: &[u8]) -> Option<ModelError> {
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}');
    let body: Option<serde_json::Value> = serde_json::from_str(behind_comments(text)).ok();
    match body.as_ref().and_then(|body| body.get("error")) {
        Some(error) => Some(ModelError::from_stream(error)),
        // Comments and `[DONE]` are a stream of an empty answer.
        None if text.lines().all(is_event_line) => None,
        None => {
            let message =
                format!("the server answered without a stream, is the base URL right? {}", excerpt(text));
            Some(ModelError::new(ModelErrorKind::Malformed, message))
        }
    }
}

/// Returns the text behind comments and blank lines.
fn behind_comments(text: &str) -> &str {
    let mut text = text.trim_start();
    while text.starts_with(':') {
        text = text.split_once(['\n', '\r']).map_or("", |(_, behind)| behind).trim_start();
    }
    text
}

fn is_event_line(line: &str) -> bool {
    line.is_empty() || [":", "data:", "event:", "id:", "retry:"].iter().any(|field| line.starts_with(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_without_events_is_described() {
        let kind = |head: &str| not_a_stream(head.as_bytes()).map(|error| error.kind);
        assert_eq!(kind("data: [DONE]\n\n"), None);
        assert_eq!(kind(": ping\n\n"), None);
        assert_eq!(kind(r#"{"error":{"code":429}}"#), Some(ModelErrorKind::RateLimited));
        assert_eq!(kind("<!doctype html>\n<html>"), Some(ModelErrorKind::Malformed));
        assert_eq!(kind(r#"{"object":"chat.completion"}"#), Some(ModelErrorKind::Malformed));
    }
}
