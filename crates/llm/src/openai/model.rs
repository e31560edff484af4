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
    time::{Instant, timeout_at},
};

use crate::{
    ChatModel, Delta, ModelConfigError, ModelError, ModelErrorKind, OpenAiConfig, Request, ResponseStream,
    exchange::{
        events::Events,
        server::{Server, encoded, encoding_of, end_of, not_a_stream, not_sent, read},
    },
    http::root_cause,
    messages::media::Accepts,
    model::limits::{AnswerLimits, bounded},
    models::ModelInfo,
    openai::{
        chunk::{Chunk, ChunkReader},
        repairs::{Repair, Repairs},
    },
    text_calls::thinking::split_thinking,
};

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
/// # Ok::<(), superstep_llm::ModelConfigError>(())
/// ```
#[derive(Clone)]
pub struct OpenAiModel {
    config: Arc<OpenAiConfig>,
    client: Client<OpenAIConfig>,
    server: Server,
    repairs: Arc<Repairs>,
    info: Option<Arc<ModelInfo>>,
}

impl OpenAiModel {
    /// Creates the client for `model` with the key `OPENAI_API_KEY` on the server `OPENAI_BASE_URL`, by default OpenAI's.
    ///
    /// # Errors
    /// [`ModelConfigError`] if neither is set, or one of them is invalid.
    pub fn from_env(model: impl Into<String>) -> Result<Self, ModelConfigError> {
        Self::new(OpenAiConfig::from_env(model)?)
    }

    /// Validates `config` and creates the client, without connecting.
    ///
    /// Proxies of the environment are used except for loopback addresses.
    ///
    /// # Errors
    /// [`ModelConfigError`] for an invalid base URL, key or extra field.
    pub fn new(mut config: OpenAiConfig) -> Result<Self, ModelConfigError> {
        if let Some(field) = config.wire.conflict() {
            return Err(ModelConfigError::ExtraField { field: field.to_owned() });
        }
        let server = Server::new(&config.base_url, config.api_key.clone(), config.timeouts, config.limits)?;
        config.base_url = server.address().to_owned();
        // All settings are explicit, because the defaults read the environment.
        let settings = OpenAIConfig::new()
            .with_api_base(&config.base_url)
            .with_api_key(config.api_key.reveal())
            .with_org_id("")
            .with_project_id("");
        let client = Client::build(server.http.clone(), settings);
        let repairs = Arc::new(Repairs::new(server.origin(), &config.wire.model));
        let info = config.models.find(&config.wire.model).cloned();
        Ok(Self { config: Arc::new(config), client, server, repairs, info })
    }

    /// Sets the clock, a function that returns the UTC time in milliseconds.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.server.clock = Arc::new(clock);
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
            match self.begin(&sent, self.repairs.has(Repair::NoStreamOptions, &tried)).await {
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
        no_stream_options: bool,
    ) -> Result<impl Stream<Item = Result<Delta, ModelError>> + use<>, ModelError> {
        let watch = AnswerObserver::default();
        let once = SendOnce { server: self.server.clone(), watch: watch.clone() };
        let client = self.client.clone().with_http_service(once);
        let chunks = client
            .chat()
            .create_stream_byot::<_, Chunk>(self.config.wire.body_with_origins(request, no_stream_options))
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

    fn info(&self, name: &str) -> Option<&Arc<ModelInfo>> {
        self.info.as_ref().filter(|_| self.config.wire.model == name)
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let deltas = stream::once(self.open(request)).try_flatten();
        let deltas = bounded(deltas.boxed(), self.config.limits);
        let deltas = deltas.map_err(|error| self.server.hide_key(error)).boxed();
        if self.config.wire.think_tags { split_thinking(deltas) } else { deltas }
    }
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
            self.until.get_or_insert_with(|| end_of(self.grace));
        }
        let mut deltas = deltas?;
        if deltas.iter().any(|delta| matches!(delta, Delta::Extra { .. })) {
            deltas.splice(0..0, self.origin.take());
        }
        Ok(deltas)
    }
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
    server: Server,
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
            if this.server.api_key.is_empty() {
                request.headers_mut().remove(header::AUTHORIZATION);
            }
            match this.server.send(request).await {
                Ok(response) => {
                    this.watch.seen().encoding = encoding_of(&response);
                    Ok(watched(response, this.server.timeouts.idle, this.server.limits, this.watch))
                }
                Err(refusal) => Err(OpenAIError::Boxed(Box::new(refusal.error))),
            }
        })
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
        let mut head = std::mem::take(&mut self.watch.seen().head);
        let end = read(&mut self.response, self.idle, &mut self.events, &mut head).await;
        let mut seen = self.watch.seen();
        (seen.head, seen.done) = (head, seen.done | self.events.done);
        end.map_or(Ok(()), |end| Err(end.err()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiKey;

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
}
