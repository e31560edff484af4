//! Embeddings on a server with the API of OpenAI.
//!
//! Start at [`OpenAiEmbeddings`].

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::future::BoxFuture;
use reqwest::{Client, RequestBuilder, Response, header};
use serde_json::json;
use superstep_graph::{
    clock::{Clock as _, SystemClock},
    store::{Embed, EmbedError},
};
use superstep_llm::{
    ApiKey, ModelConfigError, ModelError, ModelErrorKind, ModelRetry, OpenAiConfig,
    http::{base_url, client, root_cause},
    retries::{JitterSource, retried, seeded_jitter},
    timers::check_timers,
};
use tokio::time::timeout;

use super::answer::{Entries, malformed};

/// The maximum number of bytes of the texts in one request, unless one text has more.
// OpenAI accepts 300,000 tokens, and a token is a byte at least.
const MAX_SENT_BYTES: usize = 256 << 10;
/// The maximum number of bytes read of an answer.
const MAX_READ_BYTES: usize = 32 << 20;
/// The maximum number of bytes read of an error response.
const MAX_ERROR_BYTES: usize = 16 << 10;
const CONNECT: Duration = Duration::from_secs(10);

/// The server of an [`OpenAiEmbeddings`]. Create it with [`EmbeddingsConfig::new`] and change the fields that differ.
#[derive(Clone, Debug)]
pub struct EmbeddingsConfig {
    /// The address before `/embeddings`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// The key; without one, no `Authorization` header is sent.
    pub api_key: ApiKey,
    /// The model.
    pub model: String,
    /// The length of the vectors, for models that have several; `None` for the usual length of the model.
    pub dimensions: Option<usize>,
    /// The maximum number of texts in one request; 64 by default, 0 counts as 1.
    pub batch: usize,
    /// The time from a request to the end of its answer; a minute by default.
    pub timeout: Duration,
    /// The repetition of failed requests.
    pub retry: ModelRetry,
}

impl EmbeddingsConfig {
    /// Creates the settings of `model` at `base_url`; an empty `api_key` means no key.
    pub fn new(base_url: impl Into<String>, api_key: impl Into<ApiKey>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: api_key.into(),
            model: model.into(),
            dimensions: None,
            batch: 64,
            timeout: Duration::from_secs(60),
            retry: ModelRetry::default(),
        }
    }
}

/// Embeddings by `POST /embeddings` of OpenAI, which vLLM, llama.cpp, Ollama and others have as well.
///
/// Vectors are stored under the name of the model alone: the same name on another server has to be the same model.
/// Needs a tokio runtime.
///
/// ```
/// use superstep_graph::{MemoryStore, store::StoreOptions};
/// use superstep_memory::{EmbeddingsConfig, OpenAiEmbeddings};
///
/// let config = EmbeddingsConfig::new("http://localhost:11434/v1", "", "nomic-embed-text");
/// let store = MemoryStore::with(StoreOptions::new().embed(OpenAiEmbeddings::new(config)?));
/// # let _ = store;
/// # Ok::<(), superstep_llm::ModelConfigError>(())
/// ```
/// # Errors
/// A failed request is a [`ModelError`], with the status and without the key. An answer without one vector of finite
/// numbers for each text, or with vectors of another length than before, is one of the kind `Malformed`.
#[derive(Clone)]
pub struct OpenAiEmbeddings {
    config: Arc<EmbeddingsConfig>,
    http: Client,
    jitter: JitterSource,
    /// The length of the first vector.
    length: Arc<OnceLock<usize>>,
}

impl OpenAiEmbeddings {
    /// Creates the client for `model` with the key `OPENAI_API_KEY` on the server `OPENAI_BASE_URL`, by default OpenAI's.
    ///
    /// # Errors
    /// [`ModelConfigError`] if neither is set, or one of them is invalid.
    pub fn from_env(model: impl Into<String>) -> Result<Self, ModelConfigError> {
        let OpenAiConfig { base_url, api_key, wire, .. } = OpenAiConfig::from_env(model)?;
        Self::new(EmbeddingsConfig::new(base_url, api_key, wire.model))
    }

    /// Validates `config` and creates the client, without connecting.
    ///
    /// # Errors
    /// [`ModelConfigError`] for an invalid base URL or key.
    pub fn new(mut config: EmbeddingsConfig) -> Result<Self, ModelConfigError> {
        let url = base_url(&config.base_url).map_err(|problem| ModelConfigError::BaseUrl { problem })?;
        config.base_url = url.as_str().trim_end_matches('/').to_owned();
        if header::HeaderValue::from_str(config.api_key.reveal()).is_err() {
            return Err(ModelConfigError::ApiKey);
        }
        let http = client(&url, CONNECT).map_err(ModelConfigError::Client)?;
        Ok(Self { config: Arc::new(config), http, jitter: seeded_jitter(0), length: Arc::default() })
    }

    /// Returns one vector for each text, in order.
    async fn vectors(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut vectors = Vec::with_capacity(texts.len());
        for texts in batches(texts, self.config.batch.max(1)) {
            let entries = retried(&self.config.retry, &self.jitter, || self.send(texts)).await?;
            vectors.extend(entries.vectors(texts.len())?);
        }
        for vector in &vectors {
            let expected =
                self.config.dimensions.unwrap_or_else(|| *self.length.get_or_init(|| vector.len()));
            if vector.len() != expected {
                let problem = format!(
                    "expected vectors of {expected} numbers, got one of {}; correct `dimensions`, or begin with a new store \
                     if the server has another model under this name now",
                    vector.len()
                );
                return Err(malformed(problem));
            }
        }
        Ok(vectors)
    }

    /// Sends one request once.
    async fn send(&self, texts: &[String]) -> Result<Entries, ModelError> {
        check_timers()?;
        let within = self.config.timeout;
        timeout(within, self.exchange(texts)).await.unwrap_or_else(|_| {
            let message = format!("no whole answer within {} s", within.as_secs_f64());
            Err(ModelError::new(ModelErrorKind::Timeout, message))
        })
    }

    async fn exchange(&self, texts: &[String]) -> Result<Entries, ModelError> {
        let mut response = self.request(texts).send().await.map_err(|error| {
            ModelError::new(ModelErrorKind::Connect, format!("no connection: {}", root_cause(&error)))
        })?;
        let mut body = Vec::new();
        if response.status().is_success() {
            return match read(&mut response, MAX_READ_BYTES, &mut body).await? {
                true => Entries::read(&body),
                false => {
                    let message = format!(
                        "the answer is longer than {MAX_READ_BYTES} bytes; send fewer texts at once (`batch`)"
                    );
                    Err(ModelError::new(ModelErrorKind::AnswerLimit, message))
                }
            };
        }
        // A body that breaks off or never ends is an error response already.
        let _ = read(&mut response, MAX_ERROR_BYTES, &mut body).await;
        Err(self.refusal(&response, &body))
    }

    fn request(&self, texts: &[String]) -> RequestBuilder {
        let EmbeddingsConfig { base_url, api_key, model, dimensions, .. } = &*self.config;
        let mut body = json!({ "model": model, "input": texts, "encoding_format": "float" });
        if let Some(dimensions) = dimensions {
            body["dimensions"] = json!(dimensions);
        }
        let request = self.http.post(format!("{base_url}/embeddings"));
        let request = request.header(header::CONTENT_TYPE, "application/json").body(body.to_string());
        if api_key.is_empty() { request } else { request.bearer_auth(api_key.reveal()) }
    }

    fn refusal(&self, response: &Response, body: &[u8]) -> ModelError {
        let text = |value: &header::HeaderValue| value.to_str().ok().map(str::to_owned);
        let headers = response.headers().iter();
        let headers: BTreeMap<_, _> =
            headers.filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?))).collect();
        // Before it is shortened, which could leave a part of the key.
        let body = self.config.api_key.hide_in(String::from_utf8_lossy(body).into_owned());
        let now_ms = u64::try_from(SystemClock.now_ms()).unwrap_or(0);
        let status = response.status();
        let mut error = ModelError::from_http(status.as_u16(), &headers, &body, now_ms);
        error.message.push_str(match status.as_u16() {
            300..400 => {
                "; it redirects elsewhere, which a request with a key does not follow: correct the base URL"
            }
            404 => "; does the server have this model, and embeddings?",
            _ => "",
        });
        error
    }
}

impl Embed for OpenAiEmbeddings {
    fn model(&self) -> &str {
        &self.config.model
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
        Box::pin(async move {
            let EmbeddingsConfig { base_url, api_key, .. } = &*self.config;
            self.vectors(texts).await.map_err(|error| {
                let message = api_key.hide_in(format!("`{base_url}`: {}", error.message));
                EmbedError::from(ModelError { message, ..error })
            })
        })
    }
}

impl fmt::Debug for OpenAiEmbeddings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiEmbeddings").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Splits texts into the lists of requests: of at most `most` texts, and bounded in bytes.
fn batches(mut texts: &[String], most: usize) -> impl Iterator<Item = &[String]> {
    std::iter::from_fn(move || {
        let mut bytes = 0_usize;
        let fitting = texts.iter().take(most).take_while(|text| {
            bytes = bytes.saturating_add(text.len());
            bytes <= MAX_SENT_BYTES
        });
        let (batch, rest) = texts.split_at(fitting.count().max(1).min(texts.len()));
        texts = rest;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Reads a body of at most `most` bytes; `false` if it has more.
async fn read(response: &mut Response, most: usize, body: &mut Vec<u8>) -> Result<bool, ModelError> {
    let broken = |cause: reqwest::Error| {
        let message = format!("the connection broke in the answer: {}", root_cause(&cause));
        ModelError::new(ModelErrorKind::TruncatedStream, message)
    };
    while let Some(bytes) = response.chunk().await.map_err(broken)? {
        let space = most - body.len();
        body.extend_from_slice(&bytes[..bytes.len().min(space)]);
        if bytes.len() > space {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
