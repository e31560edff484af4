//! The server and its settings.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    ApiKey, ModelConfigError, Timeouts, exchange::config::OPENAI, media::Accepts,
    model::limits::AnswerLimits, models::ModelTable,
};

/// The server and its settings. Create it with [`ResponsesConfig::new`] and change the fields that differ.
#[derive(Clone, Debug)]
pub struct ResponsesConfig {
    /// The address before `/responses`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// The key; without one, no `Authorization` header is sent.
    pub api_key: ApiKey,
    /// The model's name.
    pub model: String,
    /// The effort of the model's reasoning, such as `low`, `medium` or `high`. With one, a summary of the reasoning is requested
    /// too. `None` leaves it to the provider.
    pub effort: Option<String>,
    /// `false` if the model may call only one tool at a time.
    pub parallel_calls: bool,
    /// The temperature of requests without one. Many reasoning models refuse it.
    pub temperature: Option<f32>,
    /// The maximum of output tokens of requests without one. Less than 16 are sent as 16, the minimum of the protocol.
    pub max_tokens: Option<u32>,
    /// The media types of tool results that are sent. The protocol has none for audio.
    pub accepts: Accepts,
    /// Further fields of the body, such as `service_tier`. They must differ from the standard fields. Threads store them with the
    /// other settings, so keys do not belong here.
    pub extra: BTreeMap<String, Value>,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The bounds of an answer's size and time; by default, a line may have 4 MiB.
    pub limits: AnswerLimits,
    /// The facts about models, by name; by default those of this version of superstep.
    pub models: Arc<ModelTable>,
}

const OWN_FIELDS: [&str; 15] = [
    "model",
    "instructions",
    "input",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "temperature",
    "max_output_tokens",
    "include",
    "store",
    "prompt_cache_key",
    "stream",
    "stream_options",
];

impl ResponsesConfig {
    /// Creates the settings of `model` at `base_url`; an empty `api_key` means no key.
    pub fn new(base_url: impl Into<String>, api_key: impl Into<ApiKey>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: api_key.into(),
            model: model.into(),
            effort: None,
            parallel_calls: true,
            temperature: None,
            max_tokens: None,
            accepts: Accepts::NOTHING,
            extra: BTreeMap::new(),
            timeouts: Timeouts::default(),
            // The last event has the whole answer again, with the instructions and the tools of the request.
            limits: AnswerLimits { line_bytes: 4 * 1024 * 1024, ..AnswerLimits::default() },
            models: ModelTable::embedded(),
        }
    }

    /// Creates the settings of `model` with the key `OPENAI_API_KEY` on the server `OPENAI_BASE_URL`, by default OpenAI's.
    ///
    /// # Errors
    /// [`ModelConfigError::NotSet`] if neither is set.
    pub fn from_env(model: impl Into<String>) -> Result<Self, ModelConfigError> {
        let (url, key) = OPENAI.read()?;
        Ok(Self::new(url, key, model))
    }

    /// Returns the first extra field that would write a field twice.
    pub fn conflict(&self) -> Option<&str> {
        self.extra.keys().map(String::as_str).find(|field| OWN_FIELDS.contains(field))
    }

    /// Returns the parameters of requests that have none of their own: see [`ChatModel::settings`](crate::ChatModel::settings).
    pub(super) fn settings(&self) -> BTreeMap<String, Value> {
        // The shortest decimal form, not that of the `f64` nearest to the `f32`.
        let temperature = self.temperature.and_then(|number| number.to_string().parse::<f64>().ok());
        let own = [
            ("temperature", temperature.map(Value::from)),
            ("max_tokens", self.max_tokens.map(Value::from)),
            ("effort", self.effort.clone().map(Value::from)),
            ("parallel_calls", (!self.parallel_calls).then_some(Value::Bool(false))),
        ];
        let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        own.chain(self.extra.clone()).collect()
    }
}
