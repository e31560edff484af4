//! The client for servers of the chat-completions kind, based on async-openai. The only file that uses its
//! types.
//!
//! async-openai writes the request and reads the events. Status, headers and error bodies are read here,
//! before it sees them. Requests are never repeated here: [`Retrying`](crate::retries::Retrying) does that. Its reader
//! has no bounds and reads ahead of its consumer. It therefore receives one whole event after another, and
//! only a few in advance.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use async_openai::{
    Client, config::OpenAIConfig, error::OpenAIError, middleware::HttpRequestFactory,
    types::stream::StreamResponse,
};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use reqwest::{Body, Response, header};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    ApiKey, ChatModel, Delta, ModelError, ModelErrorKind, OpenAiConfig, OpenAiConfigError, Request,
    ResponseStream, Timeouts,
    http::{base_url, client, error::excerpt, root_cause},
    messages::media::Accepts,
    model::{
        limits::{AnswerLimits, bounded},
        timers::check_timers,
        trace::trace_headers,
    },
    openai::{
        chunk::{Chunk, ChunkReader},
        events::Events,
        repairs::Repairs,
    },
    text_calls::thinking::split_thinking,
};

/// The maximum number of bytes stored from an answer that may not be a stream.
const HEAD: usize = 16 * 1024;

/// The maximum number of events that are read ahead.
const AHEAD: usize = 16;

/// A model on a server of the chat-completions kind.
///
/// Sends each request once. A `Retry-After` date is compared with the system's clock; see
/// [`OpenAiModel::with_clock`]. Needs a tokio runtime.
///
/// ```
/// use superstep_llm::{ApiKey, ChatModel, OpenAiConfig, OpenAiModel};
///
/// let key = ApiKey::new(std::env::var("OPENAI_API_KEY").unwrap_or_default());
/// let model = OpenAiModel::new(OpenAiConfig::new("https://api.openai.com/v1", key, "gpt-4.1-mini"))?;
/// assert_eq!(model.name(), "gpt-4.1-mini");
/// # Ok::<(), superstep_llm::OpenAiConfigError>(())
/// ```
#[derive(Clone)]
pub struct OpenAiModel {
    config: Arc<OpenAiConfig>,
    client: Client<OpenAIConfig>,
    http: reqwest::Client,
    repairs: Arc<Repairs>,
    /// Returns the UTC time in milliseconds.
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl OpenAiModel {
    /// Creates the client for `model` with the key `OPENAI_API_KEY` on the server `OPENAI_BASE_URL`, by default OpenAI's.
    ///
    /// # Errors
    /// [`OpenAiConfigError`] if neither is set, or one of them is invalid.
    pub fn from_env(model: impl Into<String>) -> Result<Self, OpenAiConfigError> {
        Self::new(OpenAiConfig::from_env(model)?)
    }

    /// Validates `config` and creates the client, without connecting.
    ///
    /// Proxies of the environment are used except for loopback addresses.
    ///
    /// # Errors
    /// [`OpenAiConfigError`] for an invalid base URL, key or extra field.
    pub fn new(mut config: OpenAiConfig) -> Result<Self, OpenAiConfigError> {
        let url = base_url(&config.base_url).map_err(|problem| OpenAiConfigError::BaseUrl { problem })?;
        config.base_url = url.as_str().trim_end_matches('/').to_owned();
        if let Some(field) = config.wire.conflict() {
            return Err(OpenAiConfigError::ExtraField { field: field.to_owned() });
        }
        let key = config.api_key.reveal();
        if header::HeaderValue::from_str(key).is_err() {
            return Err(OpenAiConfigError::ApiKey);
        }
        let http = client(&url, config.timeouts.connect).map_err(OpenAiConfigError::Client)?;
        // All settings are explicit, because the defaults read the environment.
        let settings = OpenAIConfig::new()
            .with_api_base(&config.base_url)
            .with_api_key(key)
            .with_org_id("")
            .with_project_id("");
        let client = Client::build(http.clone(), settings);
        let repairs = Arc::new(Repairs::new(url.origin().ascii_serialization(), &config.wire.model));
        Ok(Self { config: Arc::new(config), client, http, repairs, clock: Arc::new(system_clock) })
    }

    /// Sets the clock, a function that returns the UTC time in milliseconds.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sends the request; the response's header has arrived when this returns. A request that is refused for a form that the
    /// server does not accept is sent once more in another one.
    async fn open(
        &self,
        request: Request,
    ) -> Result<impl Stream<Item = Result<Delta, ModelError>> + use<>, ModelError> {
        let mut tried = Vec::new();
        loop {
            let sent = self.repairs.form(request.clone(), &tried);
            match self.begin(&sent).await {
                Ok(deltas) => {
                    self.repairs.remember(&tried);
                    return Ok(deltas);
                }
                Err(error) => match self.repairs.of(&error, &sent, &tried) {
                    Some(repair) => tried.push(repair),
                    None => return Err(error),
                },
            }
        }
    }

    async fn begin(
        &self,
        request: &Request,
    ) -> Result<impl Stream<Item = Result<Delta, ModelError>> + use<>, ModelError> {
        let watch = AnswerObserver::default();
        let once = SendOnce { model: self.clone(), watch: watch.clone() };
        let client = self.client.clone().with_http_service(once);
        let chunks = client
            .chat()
            .create_stream_byot::<_, Chunk>(self.config.wire.body_with_origins(request))
            .await
            .map_err(refused)?;
        let answer = Answer {
            chunks,
            reader: ChunkReader::default(),
            origin: Some(self.repairs.origin()),
            watch,
            is_stream: false,
            done_finishes: self.config.wire.done_finishes,
            grace: self.config.timeouts.end,
            until: None,
        };
        let deltas = stream::unfold(Some(answer), |answer| async {
            let mut answer = answer?;
            match answer.next().await? {
                Ok(deltas) => Some((Ok(deltas), Some(answer))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(deltas.map_ok(|deltas| stream::iter(deltas.into_iter().map(Ok))).try_flatten())
    }
}

impl fmt::Debug for OpenAiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiModel").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ChatModel for OpenAiModel {
    fn name(&self) -> &str {
        &self.config.wire.model
    }

    fn settings(&self) -> BTreeMap<String, serde_json::Value> {
        self.config.wire.settings()
    }

    fn accepts(&self) -> Accepts {
        self.config.wire.accepts
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let deltas = stream::once(self.open(request)).try_flatten();
        let deltas = bounded(deltas.boxed(), self.config.limits);
        let deltas = deltas.map_err(|error| hide_key(&self.config.api_key, error)).boxed();
        if self.config.wire.think_tags { split_thinking(deltas) } else { deltas }
    }
}

fn hide_key(key: &ApiKey, error: ModelError) -> ModelError {
    ModelError { message: key.hide_in(error.message), ..error }
}

#[allow(clippy::disallowed_methods, reason = "the default of a clock that can be replaced")]
fn system_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Converts the error of a request without a stream.
fn refused(error: OpenAIError) -> ModelError {
    match error {
        OpenAIError::Boxed(error) => match error.downcast::<ModelError>() {
            Ok(error) => *error,
            Err(error) => ModelError::new(ModelErrorKind::Malformed, error.to_string()),
        },
        OpenAIError::Reqwest(error) => not_sent(error),
        error => ModelError::new(ModelErrorKind::BadRequest, format!("the request cannot be sent: {error}")),
    }
}

fn not_sent(error: reqwest::Error) -> ModelError {
    let kind = if error.is_builder() { ModelErrorKind::BadRequest } else { ModelErrorKind::Connect };
    ModelError::new(kind, format!("no connection: {}", root_cause(&error)))
}

/// One streamed answer, read chunk by chunk.
struct Answer {
    chunks: StreamResponse<Chunk>,
    reader: ChunkReader,
    /// The place of the fields that the server adds, until there are some.
    origin: Option<Delta>,
    watch: AnswerObserver,
    /// `true` if the answer contained an event.
    is_stream: bool,
    /// `true` if `[DONE]` counts as a finish reason.
    done_finishes: bool,
    /// The maximum time from the finish reason to the end, and the end of that time.
    grace: Duration,
    until: Option<Instant>,
}

impl Answer {
    async fn next(&mut self) -> Option<Result<Vec<Delta>, ModelError>> {
        let event = match self.until {
            Some(until) => timeout_at(until, self.chunks.next()).await.ok()?,
            None => self.chunks.next().await,
        };
        if event.is_some() {
            self.watch.ahead.add_permits(1);
        }
        let fault = match event {
            Some(Ok(chunk)) => {
                self.is_stream = true;
                let deltas = self.reader.take(chunk);
                return Some(self.arrived(deltas));
            }
            Some(Err(OpenAIError::JSONDeserialize(_, data))) => {
                self.is_stream = true;
                let deltas = self.reader.read(&data);
                return Some(self.arrived(deltas));
            }
            Some(Err(error)) => {
                let unread = || ModelError::new(ModelErrorKind::Malformed, root_cause(&error));
                Some(self.watch.seen().fault.take().unwrap_or_else(unread))
            }
            None if self.is_stream && self.done_finishes && self.watch.seen().done => {
                let end = self.reader.done();
                if !end.is_empty() {
                    return Some(Ok(end));
                }
                None
            }
            None if self.is_stream => None,
            None => {
                let seen = self.watch.seen();
                seen.encoding.as_deref().map(encoded).or_else(|| not_a_stream(&seen.head))
            }
        };
        self.reader.end(fault).err().map(Err)
    }

    fn arrived(&mut self, deltas: Result<Vec<Delta>, ModelError>) -> Result<Vec<Delta>, ModelError> {
        if self.reader.is_finished() {
            // Some servers send heartbeats behind an answer until the client leaves.
            self.until.get_or_insert_with(|| Instant::now() + self.grace);
        }
        let mut deltas = deltas?;
        if deltas.iter().any(|delta| matches!(delta, Delta::Extra { .. })) {
            deltas.splice(0..0, self.origin.take());
        }
        Ok(deltas)
    }
}

/// Returns the content encoding of a response that may not be readable text.
fn encoding_of(response: &Response) -> Option<String> {
    let encoding = response.headers().get(header::CONTENT_ENCODING)?.to_str().ok()?.trim();
    (!encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity")).then(|| excerpt(encoding))
}

/// Creates the error of a response that cannot be read, because it is compressed.
fn encoded(encoding: &str) -> ModelError {
    let message = format!(
        "the server compressed its answer (`content-encoding: {encoding}`), which the request does not accept; turn that off at the \
         server, or at the proxy before it"
    );
    ModelError::new(ModelErrorKind::Malformed, message)
}

/// Returns the error for a response with status 200 without any event.
fn not_a_stream(head: &[u8]) -> Option<ModelError> {
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

/// The observations of an answer below async-openai, which converts connection errors into text.
#[derive(Clone)]
struct AnswerObserver {
    seen: Arc<Mutex<StreamFacts>>,
    /// One permit for each event that may be read ahead.
    ahead: Arc<Semaphore>,
}

#[derive(Default)]
struct StreamFacts {
    fault: Option<ModelError>,
    head: Vec<u8>,
    /// The content encoding, unless it is plain.
    encoding: Option<String>,
    /// `true` if `[DONE]` was seen.
    done: bool,
}

impl Default for AnswerObserver {
    fn default() -> Self {
        Self { seen: Arc::default(), ahead: Arc::new(Semaphore::new(AHEAD)) }
    }
}

impl AnswerObserver {
    fn seen(&self) -> MutexGuard<'_, StreamFacts> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a request once and converts every error response into a [`ModelError`].
#[derive(Clone)]
struct SendOnce {
    model: OpenAiModel,
    watch: AnswerObserver,
}

impl tower_service::Service<HttpRequestFactory> for SendOnce {
    type Response = Response;
    type Error = OpenAIError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, OpenAIError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequestFactory) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let mut request = request.build().await?;
            if this.model.config.api_key.is_empty() {
                request.headers_mut().remove(header::AUTHORIZATION);
            }
            for (name, value) in trace_headers() {
                // A propagator of the program's own may have a header that HTTP does not allow.
                if let (Ok(name), Ok(value)) = (header::HeaderName::try_from(name), value.try_into()) {
                    request.headers_mut().insert(name, value);
                }
            }
            this.send(request).await.map_err(|error| OpenAIError::Boxed(Box::new(error)))
        })
    }
}

impl SendOnce {
    async fn send(self, request: reqwest::Request) -> Result<Response, ModelError> {
        let Timeouts { response: patience, idle, .. } = self.model.config.timeouts;
        let limits = self.model.config.limits;
        let base_url = &self.model.config.base_url;
        check_timers()?;
        let response = match timeout(patience, self.model.http.execute(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let error = not_sent(error);
                return Err(ModelError { message: format!("`{base_url}`: {}", error.message), ..error });
            }
            Err(_) => {
                let message = format!("`{base_url}` sent no answer within {} s", patience.as_secs_f64());
                return Err(ModelError::new(ModelErrorKind::Timeout, message));
            }
        };
        if response.status().is_success() {
            self.watch.seen().encoding = encoding_of(&response);
            return Ok(watched(response, idle, limits, self.watch));
        }
        Err(self.refusal(response, idle).await)
    }
}

impl SendOnce {
    async fn refusal(&self, mut response: Response, patience: Duration) -> ModelError {
        let (status, encoding) = (response.status(), encoding_of(&response));
        let text = |value: &header::HeaderValue| value.to_str().ok().map(str::to_owned);
        let headers: BTreeMap<String, String> = response
            .headers()
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?)))
            .collect();
        let OpenAiConfig { limits, api_key, .. } = &*self.model.config;
        let mut body = Vec::new();
        let read = async {
            while body.len() < limits.error_bytes
                && let Ok(Some(bytes)) = response.chunk().await
            {
                let rest = limits.error_bytes - body.len();
                body.extend_from_slice(&bytes[..bytes.len().min(rest)]);
            }
        };
        // A body that breaks off, stalls or never ends is used as far as it was read: the status gives the
        // kind.
        let _ = timeout(patience, read).await;
        // Before any truncation, which could leave a part of the key.
        let body = match encoding.filter(|_| std::str::from_utf8(&body).is_err()) {
            Some(encoding) => format!(
                "the reason is compressed (`content-encoding: {encoding}`), which the request does not accept"
            ),
            None => api_key.hide_in(String::from_utf8_lossy(&body).into_owned()),
        };
        let mut error = ModelError::from_http(status.as_u16(), &headers, &body, (self.model.clock)());
        if status.is_redirection() {
            error.message.push_str(
                "; it redirects elsewhere, which a request with a key does not follow: correct the base URL",
            );
        }
        error
    }
}

/// One response on its way to async-openai.
struct ObservedResponse {
    response: Response,
    idle: Duration,
    events: Events,
    watch: AnswerObserver,
}

/// Returns the response as whole events, with limits of idle time and size, and records its errors.
fn watched(response: Response, idle: Duration, limits: AnswerLimits, watch: AnswerObserver) -> Response {
    let watched = ObservedResponse { response, idle, events: Events::new(limits), watch };
    let bytes = stream::unfold(Some((watched, Ok(()))), |open| async {
        let (mut watched, mut read) = open?;
        loop {
            if let Some(event) = watched.events.next() {
                let permit = watched.watch.ahead.acquire().await;
                permit.expect("the semaphore is never closed").forget();
                return Some((Ok(event), Some((watched, read))));
            }
            match read {
                Ok(()) => read = watched.read().await,
                Err(None) => return None,
                Err(Some(fault)) => {
                    watched.watch.seen().fault = Some(ModelError::clone(&fault));
                    return Some((Err(fault), None));
                }
            }
        }
    });
    Response::from(::http::Response::new(Body::wrap_stream(bytes)))
}

impl ObservedResponse {
    /// Reads once more. Events read before an end, with or without an error, must still be delivered.
    async fn read(&mut self) -> Result<(), Option<ModelError>> {
        let fault = match timeout(self.idle, self.response.chunk()).await {
            Ok(Ok(Some(bytes))) => {
                {
                    let head = &mut self.watch.seen().head;
                    let space = HEAD.saturating_sub(head.len());
                    head.extend_from_slice(&bytes[..bytes.len().min(space)]);
                }
                let read = self.events.push(&bytes);
                self.watch.seen().done |= self.events.done;
                return read.map_err(Some);
            }
            Ok(Ok(None)) => {
                self.events.end();
                self.watch.seen().done |= self.events.done;
                return Err(None);
            }
            Ok(Err(cause)) => {
                let message =
                    format!("the connection broke in the middle of the answer: {}", root_cause(&cause));
                ModelError::new(ModelErrorKind::TruncatedStream, message)
            }
            Err(_) => {
                let seconds = self.idle.as_secs_f64();
                let message = format!("the server was silent for {seconds} s in the middle of the answer");
                ModelError::new(ModelErrorKind::Timeout, message)
            }
        };
        Err(Some(fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_shown() {
        let config = OpenAiConfig::new("https://h/v1/", ApiKey::new("sk-secret"), "m");
        let model = OpenAiModel::new(config.clone()).unwrap();
        assert!(!format!("{config:?} {model:?}").contains("sk-secret"));
        let broken = OpenAiConfig { api_key: ApiKey::new("sk-\nsecret"), ..config };
        let error = OpenAiModel::new(broken).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"));
    }

    #[test]
    fn a_base_url_that_cannot_work_is_refused_at_construction() {
        let error = OpenAiModel::new(OpenAiConfig::new("localhost", ApiKey::default(), "m")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the base URL `localhost` cannot be read (relative URL without a base); write it like `https://api.openai.com/v1`"
        );
    }

    #[tokio::test]
    async fn a_compressed_response_is_named_as_such() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let gzip = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00";
        for (status, encoding, begin) in [
            ("200 OK", "gzip", "the server compressed its answer (`content-encoding: gzip`), which"),
            (
                "400 Bad",
                "gzip",
                "the server answered 400: the reason is compressed (`content-encoding: gzip`)",
            ),
            ("200 OK", "Identity", "the server answered without a stream"),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/v1", listener.local_addr().unwrap());
            let model = OpenAiModel::new(OpenAiConfig::new(url, ApiKey::default(), "m")).unwrap();
            let answer = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    stream.read_buf(&mut request).await.unwrap();
                }
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-encoding: {encoding}\r\ncontent-length: {}\r\n\r\n",
                    gzip.len()
                );
                stream.write_all(&[head.as_bytes(), gzip].concat()).await.unwrap();
                stream.flush().await.unwrap();
                stream
            };
            let request = Request { messages: vec![crate::Message::user("hi")], ..Request::default() };
            let (error, _stream) = tokio::join!(crate::complete(&model, request), answer);
            let error = error.unwrap_err().message;
            assert!(error.starts_with(begin), "{error}");
        }
    }

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
