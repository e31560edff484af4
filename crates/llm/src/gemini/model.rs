//! The client for the API of Gemini.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::{Stream, StreamExt, TryStreamExt, stream};
use serde_json::Value;

use super::{
    config::GeminiConfig,
    reader::Reader,
    refusals::{error_of, is_about_signatures},
    request::Built,
};
use crate::{
    ChatModel, Delta, ModelConfigError, ModelError, Request, ResponseStream,
    exchange::{
        server::{Answer, Refusal, Server},
        vertex,
    },
    messages::{media::Accepts, wire_ids::with_wire_ids},
    model::limits::bounded,
    models::ModelInfo,
};

/// The version of the API.
const VERSION: &str = "v1beta";

/// The maximum length of a call's id.
const MAX_ID_LENGTH: usize = 256;

/// A model on a server with the API of Gemini: Google's own, or Vertex AI.
///
/// The signatures of its answers go back to the same server and model, each on the part that it came with. The calls of other models
/// have the signature that the provider defines for them. Sends each request once, except for one whose signatures the server refuses:
/// that is sent once more without them. Needs a tokio runtime.
///
/// ```
/// use superstep_llm::{ApiKey, ChatModel, GeminiConfig, GeminiModel};
///
/// let key = ApiKey::new(std::env::var("GEMINI_API_KEY").unwrap_or_default());
/// let model = GeminiModel::new(GeminiConfig::new("https://generativelanguage.googleapis.com", key, "gemini-3.5-flash"))?;
/// assert_eq!(model.name(), "gemini-3.5-flash");
/// # Ok::<(), superstep_llm::ModelConfigError>(())
/// ```
///
/// # Source
/// Google, Gemini API `v1beta`, `models.streamGenerateContent`.
#[derive(Clone)]
pub struct GeminiModel {
    config: Arc<GeminiConfig>,
    server: Server,
    /// The path behind the address.
    path: String,
}

impl GeminiModel {
    /// Creates the client for `model` with the key `GEMINI_API_KEY`, else `GOOGLE_API_KEY`, on the server `GEMINI_BASE_URL`, by
    /// default Google's.
    ///
    /// # Errors
    /// [`ModelConfigError`] if none of them is set, or one of them is invalid.
    pub fn from_env(model: impl Into<String>) -> Result<Self, ModelConfigError> {
        Self::new(GeminiConfig::from_env(model)?)
    }

    /// Validates `config` and creates the client, without connecting.
    ///
    /// Proxies of the environment are used except for loopback addresses.
    ///
    /// # Errors
    /// [`ModelConfigError`] for an invalid base URL, key or extra field.
    pub fn new(mut config: GeminiConfig) -> Result<Self, ModelConfigError> {
        if let Some(field) = config.conflict() {
            return Err(ModelConfigError::ExtraField { field: field.to_owned() });
        }
        let url = address(&config.base_url);
        let server = Server::new(&url, config.api_key.clone(), config.timeouts, config.limits)?;
        config.base_url = server.address().to_owned();
        let name = config.model.strip_prefix("models/").unwrap_or(&config.model);
        let path = format!("{}?alt=sse", vertex::path(name, "streamGenerateContent"));
        Ok(Self { config: Arc::new(config), server, path })
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
        with_wire_ids(&mut request.messages, |byte| byte.is_ascii_graphic(), MAX_ID_LENGTH);
        let origin = self.server.origin();
        let (mut signatures, mut notices) = (true, Vec::new());
        loop {
            let Built { body, has_signatures } = Built::new(&self.config, &origin, &request, signatures);
            let refusal = match self.send(&body).await {
                Ok(answer) => {
                    let reader = Reader::new(origin, self.config.model.clone());
                    return Ok(stream::iter(notices.into_iter().map(Ok)).chain(deltas(answer, reader)));
                }
                Err(refusal) => refusal,
            };
            let error = error_of(refusal);
            if !(has_signatures && is_about_signatures(&error)) {
                return Err(error);
            }
            signatures = false;
            notices.push(Delta::ReasoningDropped { path: String::new(), reason: error.message, all: true });
        }
    }

    async fn send(&self, body: &impl serde::Serialize) -> Result<Answer, Refusal> {
        if let Some(token) = &self.config.token {
            return token.post(&self.server, &self.path, &[], body).await;
        }
        let key = self.config.api_key.reveal();
        let key = (!key.is_empty()).then(|| ("x-goog-api-key", key.to_owned()));
        self.server.post(&self.path, key, body).await
    }
}

/// Returns the address before `/models`.
fn address(url: &str) -> String {
    let url = url.trim().trim_end_matches('/');
    // That of the chat completions, which earlier versions of superstep used.
    let url = url.strip_suffix("/openai").unwrap_or(url);
    let path = url.split_once("://").map_or(url, |(_, rest)| rest);
    let is_version =
        |part: &str| part.starts_with('v') && part[1..].starts_with(|char: char| char.is_ascii_digit());
    if path.split('/').skip(1).any(is_version) { url.to_owned() } else { format!("{url}/{VERSION}") }
}

/// Returns the deltas of an answer.
fn deltas(answer: Answer, reader: Reader) -> impl Stream<Item = Result<Delta, ModelError>> + use<> {
    let read = stream::unfold(Some((answer, reader)), |reading| async {
        let (mut answer, mut reader) = reading?;
        let (deltas, is_end) = match answer.next().await {
            Ok(Some(data)) => (reader.read(&data), false),
            Ok(None) => (reader.end(None), true),
            Err(fault) => (reader.end(Some(fault)), true),
        };
        if reader.is_finished() {
            answer.finish();
        }
        let rest = (deltas.is_ok() && !is_end).then_some((answer, reader));
        Some((deltas, rest))
    });
    read.map_ok(|deltas| stream::iter(deltas.into_iter().map(Ok))).try_flatten()
}

impl fmt::Debug for GeminiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeminiModel").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ChatModel for GeminiModel {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_version() {
        for (given, address_of) in [
            (
                "https://generativelanguage.googleapis.com/",
                "https://generativelanguage.googleapis.com/v1beta",
            ),
            (
                "https://generativelanguage.googleapis.com/v1beta/openai/",
                "https://generativelanguage.googleapis.com/v1beta",
            ),
            ("https://h/v1", "https://h/v1"),
            ("https://h/gemini/v1alpha", "https://h/gemini/v1alpha"),
            ("https://v1.h/vertex", "https://v1.h/vertex/v1beta"),
            (
                "https://h/v1/projects/p/locations/l/publishers/google",
                "https://h/v1/projects/p/locations/l/publishers/google",
            ),
        ] {
            assert_eq!(address(given), address_of);
        }
    }
}
