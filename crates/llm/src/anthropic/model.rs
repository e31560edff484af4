//! The client for the Messages API.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::{Stream, StreamExt, TryStreamExt, stream};
use serde_json::Value;

use super::{
    config::AnthropicConfig,
    reader::{End, MAX_PAUSES, Reader},
    refusals::{Refusals, Repair, error_of, repair_of},
    request::{Built, Form, Offered},
};
use crate::{
    ChatModel, Delta, ModelConfigError, ModelError, ModelErrorKind, Request, ResponseStream,
    exchange::{
        server::{Answer, Server},
        vertex,
    },
    messages::{media::Accepts, wire_ids::with_wire_ids},
    model::limits::bounded,
    models::ModelInfo,
};

/// The version of the API.
const VERSION: &str = "2023-06-01";

/// The maximum length of a call's id.
const MAX_ID_LENGTH: usize = 128;

/// A model on a server with the Messages API of Anthropic.
///
/// The reasoning of its answers goes back to the same server and model as it was signed, as long as the messages before it are the
/// same; anywhere else it stays out. Sends each request once, except for one whose reasoning, or a beta of which, the server
/// refuses: that is sent once more without it. Needs a tokio runtime.
///
/// ```
/// use superstep_llm::{AnthropicConfig, AnthropicModel, ApiKey, ChatModel};
///
/// let key = ApiKey::new(std::env::var("ANTHROPIC_API_KEY").unwrap_or_default());
/// let model = AnthropicModel::new(AnthropicConfig::new("https://api.anthropic.com", key, "claude-sonnet-5-5"))?;
/// assert_eq!(model.name(), "claude-sonnet-5-5");
/// # Ok::<(), superstep_llm::ModelConfigError>(())
/// ```
///
/// # Source
/// Anthropic, Messages API, version 2023-06-01.
#[derive(Clone)]
pub struct AnthropicModel {
    config: Arc<AnthropicConfig>,
    server: Server,
    refusals: Arc<Refusals>,
}

impl AnthropicModel {
    /// Creates the client for `model` with the key `ANTHROPIC_API_KEY` on the server `ANTHROPIC_BASE_URL`, by default Anthropic's.
    ///
    /// # Errors
    /// [`ModelConfigError`] if neither is set, or one of them is invalid.
    pub fn from_env(model: impl Into<String>) -> Result<Self, ModelConfigError> {
        Self::new(AnthropicConfig::from_env(model)?)
    }

    /// Validates `config` and creates the client, without connecting.
    ///
    /// Proxies of the environment are used except for loopback addresses.
    ///
    /// # Errors
    /// [`ModelConfigError`] for an invalid base URL, key or extra field.
    pub fn new(mut config: AnthropicConfig) -> Result<Self, ModelConfigError> {
        if let Some(field) = config.conflict() {
            return Err(ModelConfigError::ExtraField { field: field.to_owned() });
        }
        // The path begins with the version, which some write into the address.
        let url = config.base_url.trim().trim_end_matches('/');
        let url = if config.token.is_some() { url } else { url.strip_suffix("/v1").unwrap_or(url) };
        let server = Server::new(url, config.api_key.clone(), config.timeouts, config.limits)?;
        config.base_url = server.address().to_owned();
        Ok(Self { config: Arc::new(config), server, refusals: Arc::default() })
    }

    /// Sets the clock, a function that returns the UTC time in milliseconds. A `Retry-After` date is compared with it.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.server.clock = Arc::new(clock);
        self
    }

    /// Sends the request; the response's header has arrived when this returns.
    async fn open(
        &self,
        mut request: Request,
    ) -> Result<impl Stream<Item = Result<Delta, ModelError>> + use<>, ModelError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        with_wire_ids(&mut request.messages, fits, MAX_ID_LENGTH);
        let mut call =
            Call { model: self.clone(), form: self.refusals.form(), pauses: 0, notices: Vec::new(), request };
        let open = call.begin().await?;
        let deltas = stream::unfold(Some((call, open)), |begun| async {
            let (mut call, mut open) = begun?;
            match call.next(&mut open).await {
                Ok(Some(deltas)) => Some((Ok(deltas), Some((call, open)))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(deltas.map_ok(|deltas| stream::iter(deltas.into_iter().map(Ok))).try_flatten())
    }
}

/// A request on its way to an answer.
struct Call {
    model: AnthropicModel,
    request: Request,
    form: Form,
    /// The number of times that the server paused.
    pauses: usize,
    /// Deltas before those of the answer.
    notices: Vec<Delta>,
}

/// An answer that is read.
struct Reading {
    answer: Answer,
    reader: Reader,
}

impl Call {
    /// Sends the request, and once more in another form if the server refuses one.
    async fn begin(&mut self) -> Result<Reading, ModelError> {
        loop {
            let (sent, betas, prefix, has_thinking) = self.send().await;
            let refusal = match sent {
                Ok(answer) => {
                    let AnthropicModel { server, config, .. } = &self.model;
                    let reader = Reader::new(server.origin(), config.model.clone(), prefix);
                    return Ok(Reading { answer, reader });
                }
                Err(refusal) => refusal,
            };
            let error = error_of(refusal);
            match repair_of(&error, &betas, has_thinking) {
                Some(Repair::NoThinking) => {
                    self.form.no_thinking = true;
                    let (path, reason) = (String::new(), error.message);
                    self.notices.push(Delta::ReasoningDropped { path, reason, all: true });
                }
                Some(Repair::Beta(beta)) => {
                    self.model.refusals.lose(&beta);
                    self.form.lost_betas.push(beta);
                }
                None => return Err(error),
            }
        }
    }

    async fn send(&self) -> (Result<Answer, crate::exchange::server::Refusal>, Vec<String>, String, bool) {
        let AnthropicModel { config, server, .. } = &self.model;
        let offered = Offered::of(&self.request);
        let origin = server.origin();
        let Built { body, betas, prefix, has_thinking } =
            Built::new(config, &origin, &self.request, &offered, &self.form);
        let beta = (!betas.is_empty()).then(|| ("anthropic-beta", betas.join(",")));
        if let Some(token) = &config.token {
            let path = vertex::path(&config.model, "streamRawPredict");
            let headers: Vec<_> = beta.into_iter().collect();
            return (token.post(server, &path, &headers, &body).await, betas, prefix, has_thinking);
        }
        let key = (!config.api_key.is_empty()).then(|| ("x-api-key", config.api_key.reveal().to_owned()));
        let headers = [("anthropic-version", VERSION.to_owned())].into_iter().chain(key).chain(beta);
        (server.post("/v1/messages", headers, &body).await, betas, prefix, has_thinking)
    }

    /// Returns the next deltas; `None` at the end.
    async fn next(&mut self, open: &mut Reading) -> Result<Option<Vec<Delta>>, ModelError> {
        loop {
            if !self.notices.is_empty() {
                return Ok(Some(std::mem::take(&mut self.notices)));
            }
            let Some(data) = open.answer.next().await? else {
                return open.reader.truncated().map(|()| None);
            };
            let deltas = open.reader.read(&data)?;
            match open.reader.end() {
                Some(End::Paused) => {
                    self.pauses += 1;
                    if self.pauses > MAX_PAUSES {
                        let message = format!("the server paused its answer more than {MAX_PAUSES} times");
                        return Err(ModelError::new(ModelErrorKind::Server, message));
                    }
                    self.form.paused = open.reader.resume();
                    open.answer = self.begin().await?.answer;
                }
                Some(End::Finished) => open.answer.finish(),
                None => {}
            }
            if !deltas.is_empty() {
                return Ok(Some(deltas));
            }
        }
    }
}

impl fmt::Debug for AnthropicModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnthropicModel").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ChatModel for AnthropicModel {
    fn name(&self) -> &str {
        &self.config.model
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        self.config.settings()
    }

    fn accepts(&self) -> Accepts {
        self.config.accepts
    }

    fn info(&self, name: &str) -> Option<&Arc<ModelInfo>> {
        self.config.models.find(&self.config.model).filter(|_| self.config.model == name)
    }

    fn signs_prefix(&self) -> bool {
        true
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let deltas = stream::once(self.open(request)).try_flatten();
        let deltas = bounded(deltas.boxed(), self.config.limits);
        deltas.map_err(|error| self.server.hide_key(error)).boxed()
    }
}
