//! The server and its settings.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    ApiKey, ModelConfigError, Timeouts,
    exchange::{config::Variables, token::AccessToken, vertex},
    media::Accepts,
    model::limits::AnswerLimits,
    models::ModelTable,
};

const GEMINI: Variables = Variables {
    key: "GEMINI_API_KEY",
    server: "GEMINI_BASE_URL",
    default: "https://generativelanguage.googleapis.com",
    hint: "a gateway may need only its address",
};

/// The server and its settings. Create it with [`GeminiConfig::new`] and change the fields that differ.
#[derive(Clone, Debug)]
pub struct GeminiConfig {
    /// The address before `/models`, such as `https://generativelanguage.googleapis.com/v1beta`. One without a version gets
    /// `/v1beta`.
    pub base_url: String,
    /// The key; without one, no `x-goog-api-key` header is sent.
    pub api_key: ApiKey,
    /// The source of tokens, which Vertex AI requires in place of a key.
    pub token: Option<AccessToken>,
    /// The model's name.
    pub model: String,
    /// The effort of the model's reasoning: `minimal`, `low`, `medium`, `high`. For models since Gemini 3. With one, a summary of the
    /// reasoning is requested too. `None` leaves it to the provider.
    pub effort: Option<String>,
    /// The maximum number of tokens of the reasoning, for models before Gemini 3: 0 turns it off, and -1 leaves it to the model.
    /// Unless it is 0, a summary of the reasoning is requested too.
    pub thinking_budget: Option<i32>,
    /// The temperature of requests without one. For models since Gemini 3 the provider recommends its own.
    pub temperature: Option<f32>,
    /// The maximum of output tokens of requests without one, which includes the reasoning.
    pub max_tokens: Option<u32>,
    /// The media types of messages that are sent. Audio is not, nor are images of the type GIF, which the provider refuses.
    pub accepts: Accepts,
    /// Further fields of the body, such as `safetySettings`, and those of its `generationConfig`, such as `topP`. They must differ
    /// from the standard fields. Threads store them with the other settings, so keys do not belong here.
    pub extra: BTreeMap<String, Value>,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The bounds of an answer's size and time.
    pub limits: AnswerLimits,
    /// The facts about models, by name; by default those of this version of superstep.
    pub models: Arc<ModelTable>,
}

/// The field of the body with the settings of an answer.
pub(super) const GENERATION: &str = "generationConfig";

impl GeminiConfig {
    /// Creates the settings of `model` at `base_url`; an empty `api_key` means no key.
    pub fn new(base_url: impl Into<String>, api_key: impl Into<ApiKey>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: api_key.into(),
            token: None,
            model: model.into(),
            effort: None,
            thinking_budget: None,
            temperature: None,
            max_tokens: None,
            accepts: Accepts { images: true, audio: false, pdf: true },
            extra: BTreeMap::new(),
            timeouts: Timeouts::default(),
            limits: AnswerLimits::default(),
            models: ModelTable::embedded(),
        }
    }

    /// Creates the settings of `model` on Vertex AI, in a location such as `europe-west4` or `global`.
    pub fn vertex(project: &str, location: &str, token: AccessToken, model: impl Into<String>) -> Self {
        let url = vertex::url(project, location, "google");
        Self { token: Some(token), ..Self::new(url, "", model) }
    }

    /// Creates the settings of `model` with the key `GEMINI_API_KEY`, else `GOOGLE_API_KEY`, on the server `GEMINI_BASE_URL`, by
    /// default Google's.
    ///
    /// # Errors
    /// [`ModelConfigError::NotSet`] if none of them is set.
    pub fn from_env(model: impl Into<String>) -> Result<Self, ModelConfigError> {
        let (url, key) = match GEMINI.read() {
            Ok((url, key)) if !key.is_empty() => (url, key),
            read => {
                let other = Variables { key: "GOOGLE_API_KEY", ..GEMINI }.read();
                other.or(read)?
            }
        };
        Ok(Self::new(url, key, model))
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

    /// Returns the first extra field that would write a field twice, or whose settings are not an object.
    pub fn conflict(&self) -> Option<&str> {
        const OWN_FIELDS: [&str; 4] = ["contents", "systemInstruction", "tools", "toolConfig"];
        const OWN_SETTINGS: [&str; 5] =
            ["temperature", "maxOutputTokens", "responseMimeType", "responseJsonSchema", "thinkingConfig"];
        let fields = self.extra.keys().map(String::as_str).filter(|field| OWN_FIELDS.contains(field));
        let settings = self.extra.get(GENERATION).and_then(Value::as_object).into_iter().flatten();
        let settings = settings.map(|(name, _)| &**name).filter(|name| OWN_SETTINGS.contains(name));
        let invalid = self.extra.get(GENERATION).filter(|settings| !settings.is_object()).map(|_| GENERATION);
        fields.chain(settings).chain(invalid).next()
    }

    /// Returns the parameters of requests that have none of their own: see [`ChatModel::settings`](crate::ChatModel::settings).
    pub(super) fn settings(&self) -> BTreeMap<String, Value> {
        // The shortest decimal form, not that of the `f64` nearest to the `f32`.
        let temperature = self.temperature.and_then(|number| number.to_string().parse::<f64>().ok());
        let own = [
            ("temperature", temperature.map(Value::from)),
            ("max_tokens", self.max_tokens.map(Value::from)),
            ("effort", self.effort.clone().map(Value::from)),
            ("thinking_budget", self.thinking_budget.map(Value::from)),
        ];
        let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        own.chain(self.extra.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_extra_field_must_not_be_a_standard_one() {
        let config = |extra: Value| GeminiConfig {
            extra: serde_json::from_value(extra).unwrap(),
            ..GeminiConfig::new("http://h", "", "m")
        };
        assert_eq!(config(json!({"safetySettings": [], GENERATION: {"topP": 0.5}})).conflict(), None);
        assert_eq!(config(json!({"tools": []})).conflict(), Some("tools"));
        assert_eq!(config(json!({GENERATION: {"temperature": 1}})).conflict(), Some("temperature"));
        assert_eq!(config(json!({GENERATION: 1})).conflict(), Some(GENERATION));
    }
}
