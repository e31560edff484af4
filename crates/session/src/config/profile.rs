//! The models of a configuration, and their providers' requirements.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{
        MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};
use serde_json::Value;
use superstep::llm::{
    AnthropicConfig, AnthropicModel, ApiKey, CacheTime, ChatModel, GeminiConfig, GeminiModel, Named,
    OpenAiConfig, OpenAiModel, ResponsesConfig, ResponsesModel, Thinking, Timeouts,
    auth::AccessToken,
    limits::AnswerLimits,
    media::Accepts,
    models::{ModelInfo, ModelTable, Prices},
    wire::{OutputLimit, ReadsTextCalls, ReasoningPolicy, WireConfig, WirePolicy},
};

use crate::{
    config::{
        server::{is_loopback, is_same_server, key_in},
        switch::Sparse,
        wire::Wire,
    },
    error::{ErrorKind, SessionError},
    offline::planner::{OFFLINE, Offline},
};

/// The models of a configuration. A promise: threads store them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profiles {
    #[serde(serialize_with = "one", skip_serializing_if = "Option::is_none")]
    pub main: Option<Profile>,
    /// The fallback models in order.
    #[serde(
        deserialize_with = "one_or_many",
        serialize_with = "many",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub fallback: Vec<Profile>,
    /// The model for summaries.
    #[serde(serialize_with = "one", skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Profile>,
}

/// One model. It never has a key, only the name of the variable that does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    pub name: Option<String>,
    pub model: Option<String>,
    pub base_url: Option<String>,
    pub key_env: Option<String>,
    pub context_window: Option<u64>,
    price: Option<Prices>,
    text_calls: Option<bool>,
    think_tags: bool,
    reasoning: ReasoningPolicy,
    arguments: WirePolicy,
    done_finishes: bool,
    alternates: bool,
    lists_called_tools: bool,
    no_stream_options: bool,
    accepts: Vec<MediaKind>,
    output_limit: OutputLimit,
    timeouts: Timeouts,
    limits: AnswerLimits,
    temperature: Option<f64>,
    max_tokens: Option<u32>,
    effort: Option<String>,
    thinking: Option<Thinking>,
    cache: Option<CacheTime>,
    extra: BTreeMap<String, Value>,
}

/// The address of a model, and its key or the source of its tokens.
struct Place {
    base_url: String,
    key: ApiKey,
    token: Option<AccessToken>,
}

impl Place {
    /// Returns the place of a model on Vertex AI. A key is a token; without one, the environment has it.
    fn on_vertex(wire: Wire, base_url: &str, key: ApiKey) -> Result<Self, SessionError> {
        let publisher = if wire == Wire::Anthropic { "anthropic" } else { "google" };
        let token = if key.is_empty() {
            AccessToken::from_env().map_err(|error| SessionError::caused(ErrorKind::Model, &error))?
        } else {
            AccessToken::fixed(key)
        };
        let base_url = format!("{}/{publisher}", base_url.trim_end_matches('/'));
        Ok(Self { base_url, key: ApiKey::default(), token: Some(token) })
    }
}

/// A kind of media that a model accepts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MediaKind {
    Images,
    Audio,
    Pdf,
}

fn one<S: Serializer>(profile: &Option<Profile>, serializer: S) -> Result<S::Ok, S::Error> {
    profile.as_ref().map(Sparse).serialize(serializer)
}

fn many<S: Serializer>(profiles: &[Profile], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(profiles.iter().map(Sparse))
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Profile>, D::Error> {
    struct Tables;
    impl<'de> Visitor<'de> for Tables {
        type Value = Vec<Profile>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table, or a list of tables")
        }

        fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Self::Value, A::Error> {
            Profile::deserialize(MapAccessDeserializer::new(table)).map(|profile| vec![profile])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, tables: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(tables))
        }
    }
    deserializer.deserialize_any(Tables)
}

impl Profiles {
    /// Returns whether no model is named.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the smallest known context window, because any of the models may be called.
    pub(crate) fn context_window(&self) -> Option<u64> {
        self.main.iter().chain(&self.fallback).filter_map(|profile| profile.context_window).min()
    }
}

impl Profile {
    /// Returns the facts about a model: those of the profile if it names that model, over those of the table.
    pub fn info(&self, model: &str, table: &ModelTable) -> Option<Arc<ModelInfo>> {
        let is_named = self.model.as_deref().is_none_or(|named| named == model);
        let (_, model) = Wire::split(model);
        let mut own = ModelInfo { id: model.to_owned(), ..ModelInfo::default() };
        if is_named {
            (own.window, own.price) = (self.context_window, self.price.clone());
        }
        match table.find(model) {
            Some(known) => Some(Arc::new(own.over(known))),
            None => (own.window.is_some() || own.price.is_some()).then(|| Arc::new(own)),
        }
    }

    /// Builds the model. `text_calls` is the setting for all models, `table` the facts about models.
    pub fn build(
        &self,
        model: &str,
        base_url: &str,
        key: ApiKey,
        text_calls: Option<bool>,
        table: &ModelTable,
    ) -> Result<Arc<dyn ChatModel>, SessionError> {
        if model == OFFLINE {
            return Ok(Arc::new(Offline));
        }
        let models = Arc::new(self.info(model, table).into_iter().collect());
        let (named, at_provider) = Wire::split(model);
        let wire = named.spoken(at_provider);
        self.check_fields(wire)?;
        let place = match named {
            Wire::Vertex => Place::on_vertex(wire, base_url, key)?,
            _ => Place { base_url: base_url.to_owned(), key, token: None },
        };
        let asked: Arc<dyn ChatModel> = match wire {
            Wire::Chat => self.chat(at_provider, place, text_calls, models)?,
            Wire::Responses => Arc::new(self.responses(at_provider, place, models)?),
            Wire::Anthropic => Arc::new(self.anthropic(at_provider, place, models)?),
            Wire::Gemini | Wire::Vertex => Arc::new(self.gemini(at_provider, place, models)?),
        };
        let name = self.name.as_deref().unwrap_or(model);
        Ok(if name == asked.name() { asked } else { Arc::new(Named::new(name, asked)) })
    }

    /// Refuses settings that a protocol does not have.
    fn check_fields(&self, wire: Wire) -> Result<(), SessionError> {
        let is_native = wire != Wire::Chat;
        for (field, is_set, has_it) in [
            ("effort", self.effort.is_some(), is_native),
            ("thinking", self.thinking.is_some(), matches!(wire, Wire::Anthropic | Wire::Gemini)),
            ("cache", self.cache.is_some(), wire == Wire::Anthropic),
        ] {
            if is_set && !has_it {
                return Err(SessionError::usage(format!(
                    "the configuration sets `{field}` for a model of the protocol `{}`, which has no such setting; use `extra` for a \
                     field of its own",
                    wire.name()
                )));
            }
        }
        Ok(())
    }

    fn temperature(&self) -> Option<f32> {
        self.temperature.map(|temperature| temperature as f32)
    }

    fn anthropic(
        &self,
        model: &str,
        place: Place,
        models: Arc<ModelTable>,
    ) -> Result<AnthropicModel, SessionError> {
        let config = AnthropicConfig::new(place.base_url, place.key, model);
        let config = AnthropicConfig {
            token: place.token,
            thinking: self.thinking.unwrap_or(config.thinking),
            effort: self.effort.clone(),
            cache: self.cache.unwrap_or(config.cache),
            temperature: self.temperature(),
            max_tokens: self.max_tokens,
            accepts: if self.accepts.is_empty() { config.accepts } else { self.accepts() },
            extra: self.extra.clone(),
            timeouts: self.timeouts,
            limits: self.limits,
            models,
            ..config
        };
        AnthropicModel::new(config).map_err(|error| SessionError::caused(ErrorKind::Invalid, &error))
    }

    fn gemini(
        &self,
        model: &str,
        place: Place,
        models: Arc<ModelTable>,
    ) -> Result<GeminiModel, SessionError> {
        let config = GeminiConfig::new(place.base_url, place.key, model);
        let thinking_budget = match self.thinking {
            None | Some(Thinking::Auto) => None,
            Some(Thinking::Off) => Some(0),
            Some(Thinking::Adaptive) => Some(-1),
            Some(Thinking::Budget(tokens)) => Some(i32::try_from(tokens).unwrap_or(i32::MAX)),
        };
        let config = GeminiConfig {
            token: place.token,
            effort: self.effort.clone(),
            thinking_budget,
            temperature: self.temperature(),
            max_tokens: self.max_tokens,
            accepts: if self.accepts.is_empty() { config.accepts } else { self.accepts() },
            extra: self.extra.clone(),
            timeouts: self.timeouts,
            limits: self.limits,
            models,
            ..config
        };
        GeminiModel::new(config).map_err(|error| SessionError::caused(ErrorKind::Invalid, &error))
    }

    fn responses(
        &self,
        model: &str,
        place: Place,
        models: Arc<ModelTable>,
    ) -> Result<ResponsesModel, SessionError> {
        let can = |ability| models.find(model).is_some_and(|known| known.can(ability));
        let accepts = Accepts { images: can("images"), audio: false, pdf: can("pdf") };
        let config = ResponsesConfig {
            effort: self.effort.clone(),
            temperature: self.temperature(),
            max_tokens: self.max_tokens,
            accepts: if self.accepts.is_empty() { accepts } else { self.accepts() },
            extra: self.extra.clone(),
            timeouts: self.timeouts,
            limits: self.limits,
            models,
            ..ResponsesConfig::new(place.base_url, place.key, model)
        };
        ResponsesModel::new(config).map_err(|error| SessionError::caused(ErrorKind::Invalid, &error))
    }

    fn chat(
        &self,
        model: &str,
        place: Place,
        text_calls: Option<bool>,
        models: Arc<ModelTable>,
    ) -> Result<Arc<dyn ChatModel>, SessionError> {
        let wire = WireConfig {
            model: model.to_owned(),
            arguments: self.arguments,
            reasoning: self.reasoning,
            think_tags: self.think_tags,
            done_finishes: self.done_finishes,
            alternates: self.alternates,
            lists_called_tools: self.lists_called_tools,
            no_stream_options: self.no_stream_options,
            accepts: self.accepts(),
            output_limit: self.output_limit,
            temperature: self.temperature(),
            max_tokens: self.max_tokens,
            extra: self.extra.clone(),
        };
        let (timeouts, limits) = (self.timeouts, self.limits);
        let is_local = is_loopback(&place.base_url);
        let config = OpenAiConfig::new(place.base_url, place.key, model);
        let config = OpenAiConfig { wire, timeouts, limits, models, ..config };
        let asked =
            OpenAiModel::new(config).map_err(|error| SessionError::caused(ErrorKind::Invalid, &error))?;
        // Self-hosted servers often do not parse their model's format of calls.
        let reads = self.text_calls.or(text_calls).unwrap_or(is_local);
        Ok(if reads { Arc::new(ReadsTextCalls(asked)) } else { Arc::new(asked) })
    }

    /// Returns the media that the model accepts.
    fn accepts(&self) -> Accepts {
        Accepts {
            images: self.accepts.contains(&MediaKind::Images),
            audio: self.accepts.contains(&MediaKind::Audio),
            pdf: self.accepts.contains(&MediaKind::Pdf),
        }
    }

    /// Returns whether it applies to the model of a server.
    pub fn is_of(&self, base_url: &str) -> bool {
        self.base_url.as_deref().is_none_or(|own| is_same_server(own, base_url))
    }

    /// Returns the key that it names, if any.
    pub fn key(&self) -> Result<Option<ApiKey>, SessionError> {
        self.key_env.as_deref().map(key_in).transpose()
    }

    /// Returns the variable whose value its server receives, if that is not the protocol's key.
    pub fn secret(&self, wire: Wire) -> Option<&str> {
        let token = (wire == Wire::Vertex).then_some(wire.variables().0);
        self.key_env.as_deref().or(token)
    }

    /// Returns whether its key may be sent to `base_url` although only a database names both.
    pub fn knows(&self, wire: Wire, base_url: &str, own_url: Option<&str>) -> bool {
        let (of_wire, _) = wire.variables();
        match self.secret(wire) {
            None => true,
            Some(key)
                if key == of_wire && is_same_server(base_url, own_url.unwrap_or(wire.default_url())) =>
            {
                true
            }
            Some(_) => is_loopback(base_url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::parse;

    fn profiles(toml: &str) -> Result<Profiles, String> {
        parse(toml).map(|read| read.models)
    }

    #[test]
    fn one_fallback_is_a_list_of_one() {
        let one = profiles("[models.fallback]\nmodel = \"a\"").unwrap();
        assert_eq!(one, profiles("[[models.fallback]]\nmodel = \"a\"").unwrap());
        assert_eq!(one.fallback[0].model.as_deref(), Some("a"));
        assert_eq!(profiles("preset = \"graph\"").unwrap(), Profiles::default());
    }

    #[test]
    fn unknown_fields_are_rejected_above_all_a_key() {
        for (given, wanted) in [
            (
                "[models.main]\napi_key = \"sk-secret\"",
                "line 2, column 1: `models.main`: unknown field `api_key`",
            ),
            (
                "[[models.fallback]]\napi_key = \"sk-secret\"",
                "line 2, column 1: `models.fallback`: unknown field `api_key`",
            ),
            ("[models.other]\nmodel = \"x\"", "line 1, column 9: `models`: unknown field `other`"),
            (
                "[models.main]\nreasoning = \"sometimes\"",
                "line 2, column 13: `models.main.reasoning`: unknown variant `sometimes`",
            ),
            (
                "[models.main]\ntimeouts = { idle = 3 }",
                "line 2, column 14: `models.main.timeouts`: unknown field `idle`",
            ),
            (
                "[models.main]\naccepts = [\"video\"]",
                "line 2, column 12: `models.main.accepts`: unknown variant `video`",
            ),
            (
                "[models.main.limits]\nanswers = 3",
                "line 2, column 1: `models.main.limits`: unknown field `answers`",
            ),
        ] {
            let error = profiles(given).unwrap_err();
            assert!(error.starts_with(&format!("does not fit: {wanted}")), "{error}");
            assert!(!error.contains("sk-secret"), "{error}");
        }
    }

    #[test]
    fn the_smallest_window_counts() {
        let windows = "[models.main]\ncontext_window = 9\n[[models.fallback]]\ncontext_window = 5\n\
                       [[models.fallback]]\n[models.compaction]\ncontext_window = 1";
        assert_eq!(profiles(windows).unwrap().context_window(), Some(5));
    }

    #[test]
    fn a_variable_goes_nowhere_that_only_a_database_names() {
        let with = |key_env: &str| Profile { key_env: Some(key_env.into()), ..Profile::default() };
        assert!(!with("OTHER_SECRET").knows(Wire::Chat, "https://api.openai.com/v1", None));
        assert!(with("OPENAI_API_KEY").knows(Wire::Chat, "https://api.openai.com/v1/", None));
        assert!(!with("OPENAI_API_KEY").knows(Wire::Chat, "https://elsewhere.example/v1", None));
        assert!(with("OPENAI_API_KEY").knows(
            Wire::Chat,
            "https://mine.example/v1",
            Some("https://mine.example/v1")
        ));
        assert!(with("OTHER_SECRET").knows(Wire::Chat, "http://127.0.0.1:1/v1", None));
        assert!(Profile::default().knows(Wire::Chat, "https://elsewhere.example/v1", None));
    }
}
