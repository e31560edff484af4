//! The choice of the model: from flags, the thread, the environment, or this machine's servers.
//!
//! Start at [`ModelInputs::choose`].

use std::{collections::BTreeMap, env, path::Path, sync::Arc};

use futures::{StreamExt, stream};
use serde_json::Value;
use superstep::llm::{
    self, ApiKey, ChatModel, GeminiConfig, ModelError, ModelErrorKind, Request, ResponseStream,
    auth::AccessToken,
    media::Accepts,
    models::{ModelInfo, ModelTable},
};

use crate::{
    config::{
        configuration::Configuration,
        defaults::Defaults,
        discover::{self, Local},
        model_table,
        profile::Profile,
        server::{is_loopback, is_same_server},
        settings::{Given, Settings, StoredSettings},
        wire::Wire,
    },
    error::{ErrorKind, SessionError},
    offline::planner::{OFFLINE, Offline},
    text::quoted,
};

#[derive(Default)]
pub struct Environment {
    pub base_url: Option<String>,
    pub model: Option<String>,
    pub key: Option<ApiKey>,
    pub anthropic_base_url: Option<String>,
    pub anthropic_key: Option<ApiKey>,
    pub gemini_base_url: Option<String>,
    pub gemini_key: Option<ApiKey>,
    /// The address of the project's models on Vertex AI, before the publisher.
    pub vertex_base_url: Option<String>,
    pub servers: Option<String>,
    /// The facts about models.
    pub models: Arc<ModelTable>,
}

impl Environment {
    /// Reads it; an empty variable counts as unset, except for the list of servers, which may be empty.
    ///
    /// # Errors
    /// The user's table of models cannot be used.
    pub fn read() -> Result<Self, SessionError> {
        let text =
            |name| env::var(name).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        Ok(Self {
            base_url: text("OPENAI_BASE_URL"),
            model: text("OPENAI_MODEL"),
            key: text("OPENAI_API_KEY").map(ApiKey::new),
            anthropic_base_url: text("ANTHROPIC_BASE_URL"),
            anthropic_key: text("ANTHROPIC_API_KEY").map(ApiKey::new),
            gemini_base_url: text("GEMINI_BASE_URL"),
            gemini_key: text("GEMINI_API_KEY").or_else(|| text("GOOGLE_API_KEY")).map(ApiKey::new),
            vertex_base_url: text("GOOGLE_CLOUD_PROJECT").map(|project| {
                let location = text("GOOGLE_CLOUD_LOCATION");
                vertex_url(&project, location.as_deref().unwrap_or("global"))
            }),
            servers: env::var("SUPERSTEP_LOCAL_SERVERS").ok(),
            models: model_table::table()?,
        })
    }

    /// Returns the server that it names for a protocol.
    fn base_url_of(&self, wire: Wire) -> Option<&str> {
        let url = match wire {
            Wire::Chat | Wire::Responses => &self.base_url,
            Wire::Anthropic => &self.anthropic_base_url,
            Wire::Gemini => &self.gemini_base_url,
            Wire::Vertex => &self.vertex_base_url,
        };
        url.as_deref()
    }

    /// Returns the key that it has for a protocol.
    fn key_of(&self, wire: Wire) -> Option<&ApiKey> {
        let key = match wire {
            Wire::Chat | Wire::Responses => &self.key,
            Wire::Anthropic => &self.anthropic_key,
            Wire::Gemini => &self.gemini_key,
            // Its tokens expire: the model takes them itself.
            Wire::Vertex => &None,
        };
        key.as_ref()
    }
}

/// The inputs of the choice of a model. A flag overrides the thread, the thread overrides the environment.
#[derive(Clone, Copy)]
pub struct ModelInputs<'a> {
    pub given: &'a Given,
    pub thread: &'a StoredSettings,
    pub environment: &'a Environment,
    /// The configuration of the run, from the given file, the thread or the defaults.
    pub config: &'a Configuration,
    pub defaults: &'a Defaults,
}

pub struct Choice {
    pub model: Arc<dyn ChatModel>,
    pub name: String,
    pub base_url: Option<String>,
    pub note: Option<String>,
    /// The command line words that a database cannot supply and that must be repeated.
    pub repeated_flags: Vec<String>,
    pub fallbacks: Vec<Arc<dyn ChatModel>>,
    /// The model for summaries, if it differs.
    pub compaction: Option<Arc<dyn ChatModel>>,
    /// The key for the model's server.
    pub key: ApiKey,
}

/// Returns the address of a project's models on Vertex AI, before the publisher.
fn vertex_url(project: &str, location: &str) -> String {
    let of_google = GeminiConfig::vertex(project, location, AccessToken::fixed(""), "").base_url;
    of_google.trim_end_matches("/google").to_owned()
}

/// Adds the configuration to the words that must be repeated.
pub(crate) fn repeat_config(repeated_flags: &mut Vec<String>, config: &Path) {
    if !repeated_flags.iter().any(|word| word == "--config") {
        repeated_flags.extend(["--config".to_owned(), config.display().to_string()]);
    }
}

/// A model with a name that is never called.
struct UnusedModel {
    name: String,
    accepts: Accepts,
    settings: BTreeMap<String, Value>,
    info: Option<Arc<ModelInfo>>,
}

impl ChatModel for UnusedModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn accepts(&self) -> Accepts {
        self.accepts
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        self.settings.clone()
    }

    fn info(&self, name: &str) -> Option<&Arc<ModelInfo>> {
        self.info.as_ref().filter(|_| name == self.name)
    }

    fn stream(&self, _: Request) -> ResponseStream<'_> {
        let error = ModelError::new(ModelErrorKind::BadRequest, "no model is called in a replay");
        stream::once(async { Err(error) }).boxed()
    }
}

/// The origin of a model or of a server's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Flag,
    File,
    Thread,
    Environment,
    Defaults,
}

/// Returns the models that the settings of a turn name, that of the turn first. No server is called.
pub(crate) fn known_models(
    given: &Given,
    thread: &StoredSettings,
    defaults: &Defaults,
) -> Result<Vec<String>, SessionError> {
    let config = given.configuration(thread, defaults, "the thread has")?;
    let environment = &Environment::read()?;
    let inputs = ModelInputs { given, thread, environment, config: &config, defaults };
    let models = &config.models;
    let named = models.main.iter().chain(&models.fallback).filter_map(|profile| profile.model.clone());
    let mut known: Vec<String> = inputs.model_name().into_iter().map(|(_, name)| name).collect();
    for name in named {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    Ok(known)
}

impl ModelInputs<'_> {
    /// Chooses the model, and discovers a server on this machine if nothing else is set.
    pub async fn choose(self) -> Result<Choice, SessionError> {
        let mut choice = self.main().await?;
        for profile in &self.config.models.fallback {
            let model = self.other("fallback", profile, &mut choice)?;
            choice.fallbacks.push(model);
        }
        if let Some(profile) = &self.config.models.compaction {
            choice.compaction = Some(self.other("compaction", profile, &mut choice)?);
        }
        Ok(choice)
    }

    /// Returns the models by name only, for runs that call none of them: no server or key is needed.
    pub(crate) fn names_only(self) -> Choice {
        let unused = |name: &str, profile: &Profile| -> Arc<dyn ChatModel> {
            let info = profile.info(name, &self.environment.models);
            // Only its properties are used.
            let url = Wire::of(name).default_url();
            let key = ApiKey::new("unused");
            let built = profile.build(name, url, key, Some(false), &self.environment.models).ok();
            let accepts = built.as_ref().map(|built| built.accepts()).unwrap_or_default();
            let settings = built.map(|built| built.settings()).unwrap_or_default();
            let name = profile.name.as_deref().unwrap_or(name).to_owned();
            Arc::new(UnusedModel { name, accepts, settings, info })
        };
        let models = &self.config.models;
        let name = self.model_name().map_or_else(|| OFFLINE.to_owned(), |(_, name)| name);
        let base_url = self.flags().base_url.as_deref().or(self.thread.base_url.as_deref());
        let of_server = |profile: &&Profile| base_url.is_none_or(|base_url| profile.is_of(base_url));
        let main = models.main.as_ref().filter(of_server).filter(|_| name != OFFLINE);
        let main = main.cloned().unwrap_or_default();
        let other = |profile: &Profile| Some(unused(profile.model.as_deref()?, profile));
        Choice {
            model: unused(&name, &main),
            fallbacks: models.fallback.iter().filter_map(other).collect(),
            compaction: models.compaction.as_ref().and_then(other),
            name,
            ..self.offline(None)
        }
    }

    fn flags(&self) -> &Settings {
        &self.given.settings
    }

    /// Returns the main profile, if it is of this origin.
    fn main_profile(&self, origin: Origin) -> Option<&Profile> {
        let own = match self.given.file {
            Some(_) => Origin::File,
            None if self.thread.is_new() => Origin::Defaults,
            None => Origin::Thread,
        };
        self.config.models.main.as_ref().filter(|_| own == origin)
    }

    /// Returns the name of the model and its origin. A named file overrides the thread's last model.
    pub fn model_name(&self) -> Option<(Origin, String)> {
        let of = |origin| self.main_profile(origin).and_then(|profile| profile.model.clone());
        let names = [
            (Origin::Flag, self.flags().model.clone()),
            (Origin::File, of(Origin::File)),
            (Origin::Thread, self.thread.model.clone()),
            (Origin::Thread, of(Origin::Thread)),
            (Origin::Environment, self.environment.model.clone()),
            (Origin::Defaults, of(Origin::Defaults)),
        ];
        names.into_iter().find_map(|(origin, name)| Some((origin, name?)))
    }

    /// Returns the address of the server for a protocol and its origin; `None` if nothing names one.
    pub fn server_address(&self, wire: Wire) -> Option<(Origin, String)> {
        // A server is for the protocol of the model that is named with it.
        let is_of_wire = |named: Option<&str>| named.is_none_or(|named| Wire::of(named) == wire);
        let of = |origin| {
            let profile = self.main_profile(origin);
            profile.filter(|profile| is_of_wire(profile.model.as_deref()))?.base_url.clone()
        };
        let of_thread = self.thread.base_url.clone().filter(|_| is_of_wire(self.thread.model.as_deref()));
        let urls = [
            (Origin::Flag, self.flags().base_url.clone()),
            (Origin::File, of(Origin::File)),
            (Origin::Thread, of_thread),
            (Origin::Thread, of(Origin::Thread)),
            (Origin::Environment, self.environment.base_url_of(wire).map(str::to_owned)),
            (Origin::Defaults, of(Origin::Defaults)),
            (Origin::Environment, self.key(wire).map(|_| wire.default_url().to_owned())),
        ];
        urls.into_iter().find_map(|(origin, url)| Some((origin, url?)))
    }

    async fn main(&self) -> Result<Choice, SessionError> {
        let flags = self.flags();
        if flags.model.as_deref() == Some(OFFLINE) && flags.base_url.is_some() {
            return Err(SessionError::usage("`--model offline` asks no server; leave out `--base-url`"));
        }
        let file = self.main_profile(Origin::File);
        let is_named = flags.base_url.is_some()
            || flags.model.is_some()
            || file.is_some_and(|file| file.base_url.is_some() || file.model.is_some());
        let model = if self.thread.model.as_deref() == Some(OFFLINE) && is_named {
            let thread = &StoredSettings { model: None, ..self.thread.clone() };
            ModelInputs { thread, ..*self }.model_name()
        } else {
            self.model_name()
        };
        let model = model.map(|(_, name)| name);
        if model.as_deref() == Some(OFFLINE) {
            return Ok(self.offline(None));
        }
        let wire = model.as_deref().map(Wire::of).unwrap_or_default();
        if let Some((from, base_url)) = self.server_address(wire) {
            return self.server(from, base_url, model);
        }
        if wire == Wire::Vertex {
            let model = model.unwrap_or_default();
            return Err(SessionError::new(
                ErrorKind::Model,
                format!(
                    "no project for model `{model}`: set GOOGLE_CLOUD_PROJECT, and GOOGLE_CLOUD_LOCATION unless it is `global`"
                ),
            ));
        }
        if wire != Wire::Chat {
            let (key, server) = wire.variables();
            let model = model.unwrap_or_default();
            return Err(SessionError::new(
                ErrorKind::Model,
                format!(
                    "no server for model `{model}`: set {key}, or name a server with {server} or `--base-url`"
                ),
            ));
        }
        let found = discover::find(self.environment.servers.as_deref()).await.map_err(|entry| {
            SessionError::usage(format!(
                "invalid server `{entry}` in SUPERSTEP_LOCAL_SERVERS; write it like \
                 `Ollama=http://127.0.0.1:11434/v1`"
            ))
        })?;
        match (found.first(), model) {
            (Some(_), Some(model)) => match found.iter().find(|local| local.has(&model)) {
                Some(local) => self.local(local, &model),
                None => Err(unlisted(&model, &found)),
            },
            (Some(local), None) => self.local(local, &local.model),
            (None, Some(model)) => Err(SessionError::new(
                ErrorKind::Model,
                format!(
                    "no server for model `{model}`: none runs on this machine, and neither `--base-url` nor \
                     OPENAI_BASE_URL nor OPENAI_API_KEY names one; name one, or use `--model offline`"
                ),
            )),
            (None, None) => {
                let note = "no key and no local model server (neither OPENAI_BASE_URL nor OPENAI_API_KEY is set): \
                    answering with `--model offline`, which is not a language model; it plans tool calls and quotes \
                    their results";
                Ok(self.offline(Some(note.to_owned())))
            }
        }
    }

    fn key(&self, wire: Wire) -> Option<&ApiKey> {
        self.given.key.as_ref().or(self.environment.key_of(wire))
    }

    fn offline(&self, note: Option<String>) -> Choice {
        Choice {
            model: Arc::new(Offline),
            name: OFFLINE.to_owned(),
            base_url: None,
            note,
            repeated_flags: Vec::new(),
            fallbacks: Vec::new(),
            compaction: None,
            key: ApiKey::default(),
        }
    }

    fn local(&self, local: &Local, model: &str) -> Result<Choice, SessionError> {
        let Local { name, base_url, .. } = local;
        let note = format!("found {name} at {base_url}: using its model {model}");
        Ok(Choice {
            note: Some(note),
            ..self.server(Origin::Flag, base_url.clone(), Some(model.to_owned()))?
        })
    }

    fn server(&self, from: Origin, base_url: String, model: Option<String>) -> Result<Choice, SessionError> {
        let Some(model) = model else {
            return Err(SessionError::usage(format!(
                "the server `{base_url}` needs the name of a model; give it with `--model` or OPENAI_MODEL"
            )));
        };
        let wire = Wire::of(&model);
        if from == Origin::Thread && self.thread.is_foreign && !self.is_of_environment(wire, &base_url) {
            return Err(SessionError::usage(format!(
                "the thread remembers the server `{base_url}`, which is not used unless you name it: repeat \
                 `--base-url {}`",
                quoted(&base_url)
            )));
        }
        // The profile of a server describes its provider's requirements.
        let main = self.config.models.main.as_ref().filter(|profile| profile.is_of(&base_url));
        let profile = main.cloned().unwrap_or_default();
        let own_key = if self.given.key.is_some() { None } else { profile.key()? };
        let mut repeated_flags = Vec::new();
        if own_key.is_some() {
            self.check_named_file("main", &profile, (wire, &base_url), &mut repeated_flags)?;
        } else if !self.knows(wire, &base_url) {
            if from == Origin::Thread {
                // A database may come from someone else, and the address with it.
                return Err(SessionError::usage(format!(
                    "the thread remembers the server `{base_url}`, to which the key of {} is not sent unless \
                     you name it: repeat `--base-url {}`",
                    wire.variables().0,
                    quoted(&base_url)
                )));
            }
            repeated_flags = match &self.given.file {
                Some(file) if from == Origin::File => {
                    vec!["--config".to_owned(), file.display().to_string()]
                }
                _ => vec!["--base-url".to_owned(), base_url.clone()],
            };
        }
        let key = own_key.or_else(|| self.key(wire).cloned()).unwrap_or_default();
        let table = &self.environment.models;
        let asked = profile.build(&model, &base_url, key.clone(), self.config.text_calls(), table)?;
        Ok(Choice {
            model: asked,
            name: model,
            base_url: Some(base_url),
            repeated_flags,
            key,
            ..self.offline(None)
        })
    }

    /// Builds a secondary model: on the same server with the same key, unless its profile differs.
    fn other(
        &self,
        what: &str,
        profile: &Profile,
        main: &mut Choice,
    ) -> Result<Arc<dyn ChatModel>, SessionError> {
        let Some(model) = &profile.model else {
            return Err(SessionError::usage(format!(
                "the configuration names no `model` for `models.{what}`"
            )));
        };
        let wire = Wire::of(model);
        let of_wire = self.environment.base_url_of(wire).unwrap_or(wire.default_url());
        let is_of_main = Wire::of(&main.name) == wire;
        let of_main = main.base_url.clone().filter(|_| is_of_main);
        let of_main = of_main.as_deref().unwrap_or(of_wire);
        let base_url = profile.base_url.as_deref().unwrap_or(of_main).to_owned();
        self.check_named_file(what, profile, (wire, &base_url), &mut main.repeated_flags)?;
        let key = match profile.key()? {
            Some(key) => key,
            None if is_of_main && is_same_server(&base_url, of_main) => main.key.clone(),
            None if !is_of_main && is_same_server(&base_url, of_wire) => {
                self.environment.key_of(wire).cloned().unwrap_or_default()
            }
            None => ApiKey::default(),
        };
        profile.build(model, &base_url, key, self.config.text_calls(), &self.environment.models)
    }

    /// Checks that an explicitly named file, and not only a database, permits sending a variable to a server.
    fn check_named_file(
        &self,
        what: &str,
        profile: &Profile,
        (wire, base_url): (Wire, &str),
        repeated_flags: &mut Vec<String>,
    ) -> Result<(), SessionError> {
        let Some(variable) = profile.secret(wire) else { return Ok(()) };
        if profile.knows(wire, base_url, self.environment.base_url_of(wire)) {
            return Ok(());
        }
        let Some(file) = &self.given.file else {
            if self.defaults.have_profile(profile) {
                return Ok(());
            }
            return Err(SessionError::usage(format!(
                "the thread remembers the server `{base_url}` for `models.{what}`, to which the key of {variable} is not \
                 sent unless you name it: repeat `--config FILE`"
            )));
        };
        repeat_config(repeated_flags, file);
        Ok(())
    }

    /// Returns whether the environment names this server, or a key for it.
    fn is_of_environment(&self, wire: Wire, base_url: &str) -> bool {
        let of_key = self.environment.key_of(wire).map(|_| wire.default_url());
        self.environment.base_url_of(wire).or(of_key).is_some_and(|own| is_same_server(own, base_url))
    }

    /// Returns whether the environment's key, if any, may be sent to this server without a flag.
    fn knows(&self, wire: Wire, base_url: &str) -> bool {
        let has_secret = wire == Wire::Vertex || self.environment.key_of(wire).is_some();
        let key_is_of_environment = self.given.key.is_none() && has_secret;
        !key_is_of_environment
            || is_loopback(base_url)
            || self.defaults.have_server_of_model(base_url)
            || is_same_server(base_url, self.environment.base_url_of(wire).unwrap_or(wire.default_url()))
    }
}

/// Maximum number of a server's models that an error lists.
const MAX_LISTED: usize = 20;

/// Returns the error for a model that no server on this machine has.
fn unlisted(model: &str, found: &[Local]) -> SessionError {
    let has = |local: &Local| {
        let mut names: Vec<String> = local
            .models
            .iter()
            .take(MAX_LISTED)
            .map(|name| format!("`{}`", llm::wire::excerpt(name)))
            .collect();
        if local.models.len() > MAX_LISTED {
            names.push(format!("{} more", local.models.len() - MAX_LISTED));
        }
        format!("{} at {} has {}", local.name, local.base_url, names.join(", "))
    };
    let found: Vec<_> = found.iter().map(has).collect();
    let message = format!(
        "no server on this machine lists model `{model}`: {}; name one of these, or the server of `{model}` with `--base-url`",
        found.join("; ")
    );
    SessionError::new(ErrorKind::Model, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://elsewhere.example/v1";

    fn flags(model: Option<&str>, base_url: Option<&str>) -> Given {
        let (model, base_url) = (model.map(str::to_owned), base_url.map(str::to_owned));
        Given { settings: Settings { model, base_url, ..Settings::default() }, ..Given::default() }
    }

    /// The thread's model and server.
    fn thread(model: Option<&str>, base_url: Option<&str>) -> StoredSettings {
        let (model, base_url) = (model.map(str::to_owned), base_url.map(str::to_owned));
        StoredSettings { model, base_url, ..StoredSettings::default() }
    }

    fn nothing() -> Environment {
        Environment { servers: Some(String::new()), ..Environment::default() }
    }

    fn with_key() -> Environment {
        Environment { key: Some(ApiKey::new("sk-secret")), ..nothing() }
    }

    async fn choose(
        given: &Given,
        thread: &StoredSettings,
        environment: &Environment,
    ) -> Result<Choice, SessionError> {
        let (config, defaults) = (&Configuration::default(), &Defaults::default());
        ModelInputs { given, thread, environment, config, defaults }.choose().await
    }

    #[tokio::test]
    async fn a_flag_beats_the_thread_and_the_thread_the_environment() {
        let url = |n: u16| format!("http://localhost:{n}/v1");
        let environment = Environment { base_url: Some(url(3)), model: Some("e".into()), ..nothing() };
        let of_thread = thread(Some("t"), Some(&url(2)));
        let none = thread(None, None);
        for (given, thread, wanted) in [
            (flags(None, None), &none, ("e", url(3))),
            (flags(None, None), &of_thread, ("t", url(2))),
            (flags(Some("f"), Some(&url(1))), &of_thread, ("f", url(1))),
        ] {
            let choice = choose(&given, thread, &environment).await.unwrap();
            assert_eq!((&*choice.name, choice.base_url), (wanted.0, Some(wanted.1)));
        }
    }

    #[tokio::test]
    async fn an_offline_thread_stays_offline_until_a_flag_overrides_it() {
        let offline = thread(Some(OFFLINE), None);
        let stays = choose(&flags(None, None), &offline, &with_key()).await.unwrap();
        assert_eq!(stays.name, OFFLINE);
        let overridden = choose(&flags(Some("f"), None), &offline, &with_key()).await.unwrap();
        assert_eq!(
            (&*overridden.name, overridden.base_url.as_deref()),
            ("f", Some(Wire::Chat.default_url()))
        );
    }

    #[tokio::test]
    async fn without_anything_the_offline_planner_answers_but_not_for_another_model() {
        let choice = choose(&flags(None, None), &thread(None, None), &nothing()).await.unwrap();
        assert_eq!(choice.name, OFFLINE);
        assert!(choice.note.unwrap().contains("not a language model"));
        let refused = choose(&flags(Some("llama"), None), &thread(None, None), &nothing()).await;
        let error = refused.err().unwrap();
        assert_eq!(error.kind, ErrorKind::Model);
        assert!(error.message.contains("no server for model `llama`"), "{}", error.message);
    }

    #[tokio::test]
    async fn the_key_of_the_environment_does_not_follow_an_address_out_of_a_database() {
        let refused = choose(&flags(None, None), &thread(Some("t"), Some(URL)), &with_key()).await;
        let error = refused.err().unwrap();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains(&format!("repeat `--base-url {URL}`")), "{}", error.message);
        assert!(!error.message.contains("sk-secret"));

        let environment = Environment { base_url: Some(format!("{URL}/")), ..with_key() };
        let known = choose(&flags(None, None), &thread(Some("t"), Some(URL)), &environment).await;
        assert_eq!(known.unwrap().name, "t");

        let named = choose(&flags(None, Some(URL)), &thread(Some("t"), None), &with_key()).await;
        assert_eq!(named.unwrap().repeated_flags, ["--base-url", URL].map(str::to_owned));
    }
}
