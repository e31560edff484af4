//! The server and its settings.

use std::sync::Arc;

use crate::{
    ApiKey, Timeouts,
    exchange::config::{ModelConfigError, OPENAI},
    model::limits::AnswerLimits,
    models::ModelTable,
    openai::request::WireConfig,
};

/// The server and its settings. Create it with [`OpenAiConfig::new`] and change the fields that differ.
#[derive(Clone, Debug)]
pub struct OpenAiConfig {
    /// The address before `/chat/completions`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// The key; without one, no `Authorization` header is sent.
    pub api_key: ApiKey,
    /// The model, and the provider's wire format.
    pub wire: WireConfig,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The bounds of an answer's size and time.
    pub limits: AnswerLimits,
    /// The facts about models, by name; by default those of this version of superstep.
    pub models: Arc<ModelTable>,
}

impl OpenAiConfig {
    /// Creates the settings of `model` at `base_url`; an empty `api_key` means no key.
    pub fn new(base_url: impl Into<String>, api_key: impl Into<ApiKey>, model: impl Into<String>) -> Self {
        let wire = WireConfig { model: model.into(), ..WireConfig::default() };
        let (timeouts, limits) = (Timeouts::default(), AnswerLimits::default());
        let (base_url, api_key) = (base_url.into(), api_key.into());
        Self { base_url, api_key, wire, timeouts, limits, models: ModelTable::embedded() }
    }

    /// Creates the settings of `model` with the key `OPENAI_API_KEY` on the server `OPENAI_BASE_URL`, by default OpenAI's.
    ///
    /// # Errors
    /// [`ModelConfigError::NotSet`] if neither is set.
    pub fn from_env(model: impl Into<String>) -> Result<Self, ModelConfigError> {
        let (url, key) = OPENAI.read()?;
        Ok(Self::new(url, key, model))
    }
}
