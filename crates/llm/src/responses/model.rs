//! The client for servers with the Responses API.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::{Stream, StreamExt, TryStreamExt, stream};
use serde_json::Value;

use super::{WIRE, config::ResponsesConfig, reader::Reader, repairs::Learned, request::Body};
use crate::{
    ChatModel, Delta, ModelConfigError, ModelError, Request, ResponseStream,
    exchange::server::{Answer, Server},
    media::Accepts,
    model::limits::bounded,
    models::ModelInfo,
};

/// A model on a server with the Responses API, such as OpenAI's, or one of the kind Open Responses.
///
/// Sends the whole conversation with each request: nothing is stored at the server. Its encrypted reasoning is stored with the
/// answers and goes back to the same server and model. Sends each request once, except in another form if the server refuses the
/// usual one. A `Retry-After` date is compared with the system's clock; see [`ResponsesModel::with_clock`]. Needs a tokio runtime.
///
/// ```
/// use superstep_llm::{ApiKey, ChatModel, ResponsesConfig, ResponsesModel};
///
/// let key = ApiKey::new(std::env::var("OPENAI_API_KEY").unwrap_or_default());
/// let config = ResponsesConfig::new("https://api.openai.com/v1", key, "gpt-5.2");
/// let model = ResponsesModel::new(ResponsesConfig { effort: Some("low".into()), ..config })?;
/// assert_eq!(model.name(), "gpt-5.2");
/// # Ok::<(), superstep_llm::ModelConfigError>(())
/// ```
#[derive(Clone)]
pub struct ResponsesModel {
    config: Arc<ResponsesConfig>,
    server: Server,
    learned: Arc<Learned>,
}

impl ResponsesModel {
    /// Creates the client for `model` with the key `OPENAI_API_KEY` on the server `OPENAI_BASE_URL`, by default OpenAI's.
    ///
    /// # Errors
    /// [`ModelConfigError`] if neither is set, or one of them is invalid.
    pub fn from_env(model: impl Into<String>) -> Result<Self, ModelConfigError> {
        Self::new(ResponsesConfig::from_env(model)?)
    }

    /// Validates `config` and creates the client, without connecting.
    ///
    /// Proxies of the environment are used except for loopback addresses.
    ///
    /// # Errors
    /// [`ModelConfigError`] for an invalid base URL, key or extra field.
    pub fn new(mut config: ResponsesConfig) -> Result<Self, ModelConfigError> {
        if let Some(field) = config.conflict() {
            return Err(ModelConfigError::ExtraField { field: field.to_owned() });
        }
        let server = Server::new(&config.base_url, config.api_key.clone(), config.timeouts, config.limits)?;
        config.base_url = server.address().to_owned();
        Ok(Self { config: Arc::new(config), server, learned: Arc::default() })
    }

    /// Sets the clock, a function that returns the UTC time in milliseconds.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.server.clock = Arc::new(clock);
        self
    }

    /// Sends the request; the response's header has arrived when this returns. A request whose form is refused is sent once more in
    /// each other form.
    async fn open(
        &self,
        request: Request,
    ) -> Result<impl Stream<Item = Result<Delta, ModelError>> + use<>, ModelError> {
        let origin = self.server.origin();
        let key = self.server.api_key.reveal();
        let mut form = self.learned.form();
        let (mut notices, mut attempt) = (Vec::new(), 1);
        loop {
            let body = Body::of(&self.config, &origin, &request, &form);
            let bearer = (!key.is_empty()).then(|| ("authorization", format!("Bearer {key}")));
            let refusal = match self.server.post("/responses", bearer, &body).await {
                Ok(answer) => {
                    self.learned.remember(form);
                    let place = Delta::Origin {
                        wire: WIRE.into(),
                        server: origin,
                        model: self.config.model.clone(),
                        prefix: String::new(),
                    };
                    let notices = stream::iter(notices.into_iter().map(Ok));
                    return Ok(notices.chain(deltas(answer, Reader::new(place))));
                }
                Err(refusal) => refusal,
            };
            let repaired = form.repair(&refusal, body.has_items, attempt);
            if repaired.is_empty() {
                return Err(refusal.error);
            }
            notices.extend(repaired);
            attempt += 1;
        }
    }
}

impl fmt::Debug for ResponsesModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponsesModel").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ChatModel for ResponsesModel {
    fn name(&self) -> &str {
        &self.config.model
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        self.config.settings()
    }

    fn accepts(&self) -> Accepts {
        Accepts { audio: false, ..self.config.accepts }
    }

    fn info(&self, name: &str) -> Option<&Arc<ModelInfo>> {
        self.config.models.find(&self.config.model).filter(|_| self.config.model == name)
    }

    fn stream(&self, request: Request) -> ResponseStream<'_> {
        let deltas = stream::once(self.open(request)).try_flatten();
        let deltas = bounded(deltas.boxed(), self.config.limits);
        deltas.map_err(|error| self.server.hide_key(error)).boxed()
    }
}

/// Returns the deltas of an answer.
fn deltas(answer: Answer, reader: Reader) -> impl Stream<Item = Result<Delta, ModelError>> + use<> {
    let read = stream::unfold(Some((answer, reader)), |reading| async {
        let (mut answer, mut reader) = reading?;
        let deltas = match answer.next().await {
            Ok(Some(data)) => reader.read(&data),
            Ok(None) => Err(reader.end(None).err()?),
            Err(fault) => Err(reader.end(Some(fault)).err()?),
        };
        if reader.is_finished() {
            answer.finish();
        }
        let rest = deltas.is_ok().then_some((answer, reader));
        Some((deltas, rest))
    });
    read.map_ok(|deltas| stream::iter(deltas.into_iter().map(Ok))).try_flatten()
}
