//! The server and its settings.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ApiKey, ModelConfigError, Timeouts,
    exchange::{config::Variables, token::AccessToken, vertex},
    media::Accepts,
    model::limits::AnswerLimits,
    models::ModelTable,
};

const ANTHROPIC: Variables = Variables {
    key: "ANTHROPIC_API_KEY",
    server: "ANTHROPIC_BASE_URL",
    default: "https://api.anthropic.com",
    hint: "a gateway may need only its address",
};

/// The server and its settings. Create it with [`AnthropicConfig::new`] and change the fields that differ.
#[derive(Clone, Debug)]
pub struct AnthropicConfig {
    /// The address before `/v1/messages`, such as `https://api.anthropic.com`; on Vertex AI that before `/models`.
    pub base_url: String,
    /// The key; without one, no `x-api-key` header is sent.
    pub api_key: ApiKey,
    /// The source of tokens, which Vertex AI requires in place of a key. With one, requests have the form of Vertex AI.
    pub token: Option<AccessToken>,
    /// The model's name.
    pub model: String,
    /// The model's reasoning before its answers. The same in all requests of a thread, because a change of it voids the cache.
    pub thinking: Thinking,
    /// The effort of the model, such as `low`, `medium` or `high`; `None` leaves it to the provider.
    pub effort: Option<String>,
    /// The time for which the provider caches the conversation.
    pub cache: CacheTime,
    /// The temperature of requests without one, from 0 to 1. It is not sent while the model thinks, which would be refused.
    pub temperature: Option<f32>,
    /// The maximum of output tokens of requests without one; `None` for that of the model, or 8,192 if it is unknown.
    pub max_tokens: Option<u32>,
    /// The media types of messages that are sent.
    pub accepts: Accepts,
    /// Values of the header `anthropic-beta`.
    pub betas: Vec<String>,
    /// Further fields of the body, such as `service_tier`. They must differ from the standard fields. Threads store them with the
    /// other settings, so keys do not belong here.
    pub extra: BTreeMap<String, Value>,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The bounds of an answer's size and time.
    pub limits: AnswerLimits,
    /// The facts about models, by name; by default those of this version of superstep.
    pub models: Arc<ModelTable>,
}

/// The reasoning of a model before its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// Adaptive if the model is known to support it, else off.
    #[default]
    Auto,
    /// None.
    Off,
    /// As much as the model finds useful.
    Adaptive,
    /// Up to this number of tokens, at least 1,024: for models before Claude 4.6.
    Budget(u32),
}

/// The time for which the provider caches the beginning of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheTime {
    /// Five minutes.
    #[default]
    #[serde(rename = "5m")]
    FiveMinutes,
    /// An hour for the tools and the system prompt, five minutes for the rest.
    #[serde(rename = "1h")]
    Hour,
    /// Without marks for the cache.
    #[serde(rename = "off")]
    Off,
}

impl AnthropicConfig {
    /// Creates the settings of `model` at `base_url`; an empty `api_key` means no key.
    pub fn new(base_url: impl Into<String>, api_key: impl Into<ApiKey>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: api_key.into(),
            token: None,
            model: model.into(),
            thinking: Thinking::default(),
            effort: None,
            cache: CacheTime::default(),
            temperature: None,
            max_tokens: None,
            accepts: Accepts { images: true, audio: false, pdf: true },
            betas: Vec::new(),
            extra: BTreeMap::new(),
            timeouts: Timeouts::default(),
            limits: AnswerLimits::default(),
            models: ModelTable::embedded(),
        }
    }

    /// Creates the settings of `model` on Vertex AI, in a location such as `europe-west1` or `global`.
    pub fn vertex(project: &str, location: &str, token: AccessToken, model: impl Into<String>) -> Self {
        let url = vertex::url(project, location, "anthropic");
        Self { token: Some(token), ..Self::new(url, "", model) }
    }

    /// Creates the settings of `model` on Vertex AI with the project `GOOGLE_CLOUD_PROJECT` in `GOOGLE_CLOUD_LOCATION`, by default
    /// `global`, and the token of [`AccessToken::from_env`].
    ///
    /// # Errors
    /// [`ModelConfigError::NotSet`] without a project or a token.
    pub fn vertex_from_env(model: impl Into<String>) -> Result<Self, ModelConfigError> {
        let (project, location) = vertex::place()?;
        Ok(Self::vertex(&project, &location, AccessToken::from_env()?, model))
    }

    /// Creates the settings of `model` with the key `ANTHROPIC_API_KEY` on the server `ANTHROPIC_BASE_URL`, by default Anthropic's.
    ///
    /// # Errors
    /// [`ModelConfigError::NotSet`] if neither is set.
    pub fn from_env(model: impl Into<String>) -> Result<Self, ModelConfigError> {
        let (url, key) = ANTHROPIC.read()?;
        Ok(Self::new(url, key, model))
    }

    /// Returns the first extra field that would write a field twice.
    pub fn conflict(&self) -> Option<&str> {
        const OWN_FIELDS: [&str; 11] = [
            "model",
            "anthropic_version",
            "max_tokens",
            "system",
            "messages",
            "tools",
            "tool_choice",
            "thinking",
            "output_config",
            "temperature",
            "stream",
        ];
        self.extra.keys().map(String::as_str).find(|field| OWN_FIELDS.contains(field))
    }

    /// Returns the parameters of requests that have none of their own: see [`ChatModel::settings`](crate::ChatModel::settings).
    pub(super) fn settings(&self) -> BTreeMap<String, Value> {
        let json =
            |value: &dyn Fn() -> serde_json::Result<Value>| value().expect("settings have a JSON form");
        // The shortest decimal form, not that of the `f64` nearest to the `f32`.
        let temperature = self.temperature.and_then(|number| number.to_string().parse::<f64>().ok());
        let thinking =
            (self.thinking != Thinking::Auto).then(|| json(&|| serde_json::to_value(self.thinking)));
        let own = [
            ("temperature", temperature.map(Value::from)),
            ("max_tokens", self.max_tokens.map(Value::from)),
            ("thinking", thinking),
            ("effort", self.effort.clone().map(Value::from)),
        ];
        let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        own.chain(self.extra.clone()).collect()
    }
}
