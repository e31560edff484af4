//! The choice of the model: from flags, the thread, the environment, or this machine's servers.
//!
//! Start at [`ModelInputs::choose`].

use std::{collections::BTreeMap, env, path::Path, sync::Arc};

use futures::{StreamExt, stream};
use serde_json::Value;
use superstep::llm::{
    self, ApiKey, ChatModel, ModelError, ModelErrorKind, Request, ResponseStream, media::Accepts,
};

use crate::{
    args::shared::AgentArgs,
    config::{
        discover::{self, Local},
        profile::{Profile, Profiles},
        remembered::Remembered,
        server::{OPENAI, is_loopback, is_same_server},
    },
    offline::planner::{OFFLINE, Offline},
    output::{
        exit::{Exit, Failure},
        text::quoted,
    },
};

/// The settings from the environment.
#[derive(Default)]
pub(crate) struct Environment {
    pub(crate) base_url: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) key: Option<ApiKey>,
    pub(crate) servers: Option<String>,
}

impl Environment {
    /// Reads it; an empty variable counts as unset, except for the list of servers, which may be empty.
    pub(crate) fn read() -> Self {
        let text =
            |name| env::var(name).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        Self {
            base_url: text("OPENAI_BASE_URL"),
            model: text("OPENAI_MODEL"),
            key: text("OPENAI_API_KEY").map(ApiKey::new),
            servers: env::var("SUPERSTEP_LOCAL_SERVERS").ok(),
        }
    }
}

/// The inputs of the choice of a model. A flag overrides the thread, the thread overrides the environment.
pub(crate) struct ModelInputs<'a> {
    pub(crate) flags: &'a AgentArgs,
    pub(crate) thread: Remembered,
    pub(crate) environment: Environment,
    /// The models of the configuration, from a flag or the thread.
    pub(crate) profiles: Profiles,
    /// The configuration's setting for parsing tool calls in text, if it applies to all models.
    pub(crate) text_calls: Option<bool>,
}

/// The chosen model.
pub(crate) struct Choice {
    pub(crate) model: Arc<dyn ChatModel>,
    pub(crate) name: String,
    pub(crate) base_url: Option<String>,
    /// A note for the user.
    pub(crate) note: Option<String>,
    /// The command line words that a database cannot supply and that must be repeated.
    pub(crate) repeated_flags: Vec<String>,
    /// The fallback models.
    pub(crate) fallbacks: Vec<Arc<dyn ChatModel>>,
    /// The model for summaries, if it differs.
    pub(crate) compaction: Option<Arc<dyn ChatModel>>,
    /// The key for the model's server.
    key: ApiKey,
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

    fn stream(&self, _: Request) -> ResponseStream<'_> {
        let error = ModelError::new(ModelErrorKind::BadRequest, "no model is called in a replay");
        stream::once(async { Err(error) }).boxed()
    }
}

/// The origin of a server's address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressSource {
    Flag,
    File,
    Thread,
    Environment,
}

impl ModelInputs<'_> {
    /// Chooses the model, and discovers a server on this machine if nothing else is set.
    pub(crate) async fn choose(mut self) -> Result<Choice, Failure> {
        let mut choice = self.main().await?;
        for profile in &self.profiles.fallback {
            let model = self.other("fallback", profile, &mut choice)?;
            choice.fallbacks.push(model);
        }
        if let Some(profile) = &self.profiles.compaction {
            choice.compaction = Some(self.other("compaction", profile, &mut choice)?);
        }
        Ok(choice)
    }

    /// Returns the models by name only, for runs that call none of them: no server or key is needed.
    pub(crate) fn names_only(self) -> Choice {
        let named = |profile: Option<Profile>| profile.and_then(|profile| profile.model);
        let unused = |name: &str, profile: &Profile| -> Arc<dyn ChatModel> {
            let name = profile.name.as_deref().unwrap_or(name).to_owned();
            let (accepts, settings) = (profile.accepts(), profile.settings());
            Arc::new(UnusedModel { name, accepts, settings })
        };
        let Self { flags, thread, environment, profiles, .. } = &self;
        let (file, remembered) = match &flags.config {
            Some(_) => (named(profiles.main.clone()), None),
            None => (None, named(profiles.main.clone())),
        };
        let name = flags.model.clone().or(file).or(thread.model.clone()).or(remembered);
        let name = name.or(environment.model.clone()).unwrap_or_else(|| OFFLINE.to_owned());
        let base_url = flags.base_url.as_deref().or(thread.base_url.as_deref());
        let of_server = |profile: &&Profile| base_url.is_none_or(|base_url| profile.is_of(base_url));
        let main = profiles.main.as_ref().filter(of_server).filter(|_| name != OFFLINE);
        let main = main.cloned().unwrap_or_default();
        let other = |profile: &Profile| Some(unused(profile.model.as_deref()?, profile));
        Choice {
            model: unused(&name, &main),
            fallbacks: profiles.fallback.iter().filter_map(other).collect(),
            compaction: profiles.compaction.as_ref().and_then(other),
            name,
            ..self.offline(None)
        }
    }

    async fn main(&mut self) -> Result<Choice, Failure> {
        let (flag_url, flag_model) = (self.flags.base_url.clone(), self.flags.model.clone());
        if flag_model.as_deref() == Some(OFFLINE) && flag_url.is_some() {
            return Err(Failure::usage("`--model offline` asks no server; leave out `--base-url`"));
        }
        // An explicitly named file overrides the thread's last model.
        let (file, remembered) = match (&self.flags.config, self.profiles.main.clone()) {
            (Some(_), main) => (main.unwrap_or_default(), Profile::default()),
            (None, main) => (Profile::default(), main.unwrap_or_default()),
        };
        let is_named = [&flag_url, &flag_model, &file.base_url, &file.model].into_iter().any(Option::is_some);
        if self.thread.model.as_deref() == Some(OFFLINE) && is_named {
            self.thread.model = None;
        }
        let model = flag_model
            .or(file.model)
            .or_else(|| self.thread.model.take())
            .or(remembered.model)
            .or_else(|| self.environment.model.clone());
        if model.as_deref() == Some(OFFLINE) {
            return Ok(self.offline(None));
        }
        let urls = [
            (AddressSource::Flag, flag_url),
            (AddressSource::File, file.base_url),
            (AddressSource::Thread, self.thread.base_url.take()),
            (AddressSource::Thread, remembered.base_url),
            (AddressSource::Environment, self.environment.base_url.clone()),
            (AddressSource::Environment, self.key().is_some().then(|| OPENAI.to_owned())),
        ];
        if let Some((from, base_url)) = urls.into_iter().find_map(|(from, url)| Some((from, url?))) {
            return self.server(from, base_url, model);
        }
        let found = discover::find(self.environment.servers.as_deref()).await.map_err(|entry| {
            Failure::usage(format!(
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
            (None, Some(model)) => Err(Failure::new(
                Exit::Model,
                format!(
                    "no server for model `{model}`: none runs on this machine, and neither `--base-url` nor \
                     OPENAI_BASE_URL nor OPENAI_API_KEY names one; name one, or use `--model offline`"
                ),
            )),
            (None, None) => {
                let note = "no key and no local model server: answering with `--model offline`, which is \
                    not a language model; it plans tool calls and quotes their results";
                Ok(self.offline(Some(note.to_owned())))
            }
        }
    }

    fn key(&self) -> Option<&ApiKey> {
        self.flags.api_key.as_ref().or(self.environment.key.as_ref())
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

    fn local(&self, local: &Local, model: &str) -> Result<Choice, Failure> {
        let Local { name, base_url, .. } = local;
        let note = format!("found {name} at {base_url}: using its model {model}");
        Ok(Choice {
            note: Some(note),
            ..self.server(AddressSource::Flag, base_url.clone(), Some(model.to_owned()))?
        })
    }

    fn server(
        &self,
        from: AddressSource,
        base_url: String,
        model: Option<String>,
    ) -> Result<Choice, Failure> {
        let Some(model) = model else {
            return Err(Failure::usage(format!(
                "the server `{base_url}` needs the name of a model; give it with `--model` or OPENAI_MODEL"
            )));
        };
        if from == AddressSource::Thread && self.thread.is_foreign && !self.is_of_environment(&base_url) {
            return Err(Failure::usage(format!(
                "the thread remembers the server `{base_url}`, which is not used unless you name it: repeat \
                 `--base-url {}`",
                quoted(&base_url)
            )));
        }
        // The profile of a server describes its provider's requirements.
        let profile = self
            .profiles
            .main
            .as_ref()
            .filter(|profile| profile.is_of(&base_url))
            .cloned()
            .unwrap_or_default();
        let own_key = if self.flags.api_key.is_some() { None } else { profile.key()? };
        let mut repeated_flags = Vec::new();
        if own_key.is_some() {
            self.check_named_file("main", &profile, &base_url, &mut repeated_flags)?;
        } else if !self.knows(&base_url) {
            if from == AddressSource::Thread {
                // A database may come from someone else, and the address with it.
                return Err(Failure::usage(format!(
                    "the thread remembers the server `{base_url}`, to which the key of OPENAI_API_KEY is not sent unless \
                     you name it: repeat `--base-url {}`",
                    quoted(&base_url)
                )));
            }
            repeated_flags = match &self.flags.config {
                Some(file) if from == AddressSource::File => {
                    vec!["--config".to_owned(), file.display().to_string()]
                }
                _ => vec!["--base-url".to_owned(), base_url.clone()],
            };
        }
        let key = own_key.or_else(|| self.key().cloned()).unwrap_or_default();
        let asked = profile.build(&model, &base_url, key.clone(), self.text_calls)?;
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
    fn other(&self, what: &str, profile: &Profile, main: &mut Choice) -> Result<Arc<dyn ChatModel>, Failure> {
        let Some(model) = &profile.model else {
            return Err(Failure::usage(format!("the configuration names no `model` for `models.{what}`")));
        };
        let of_main = main.base_url.as_deref().unwrap_or(OPENAI);
        let base_url = profile.base_url.as_deref().unwrap_or(of_main).to_owned();
        self.check_named_file(what, profile, &base_url, &mut main.repeated_flags)?;
        let key = match profile.key()? {
            Some(key) => key,
            None if is_same_server(&base_url, of_main) => main.key.clone(),
            None => ApiKey::default(),
        };
        profile.build(model, &base_url, key, self.text_calls)
    }

    /// Checks that an explicitly named file, and not only a database, permits sending a variable to a server.
    fn check_named_file(
        &self,
        what: &str,
        profile: &Profile,
        base_url: &str,
        repeated_flags: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let Some(variable) = &profile.key_env else { return Ok(()) };
        if profile.knows(base_url, self.environment.base_url.as_deref()) {
            return Ok(());
        }
        let Some(file) = &self.flags.config else {
            return Err(Failure::usage(format!(
                "the thread remembers the server `{base_url}` for `models.{what}`, to which the key of {variable} is not \
                 sent unless you name it: repeat `--config FILE`"
            )));
        };
        repeat_config(repeated_flags, file);
        Ok(())
    }

    /// Returns whether the environment names this server, or a key for it.
    fn is_of_environment(&self, base_url: &str) -> bool {
        let of_key = self.environment.key.is_some().then_some(OPENAI);
        self.environment.base_url.as_deref().or(of_key).is_some_and(|own| is_same_server(own, base_url))
    }

    /// Returns whether the environment's key, if any, may be sent to this server without a flag.
    fn knows(&self, base_url: &str) -> bool {
        let key_is_of_environment = self.flags.api_key.is_none() && self.environment.key.is_some();
        !key_is_of_environment
            || is_loopback(base_url)
            || is_same_server(base_url, self.environment.base_url.as_deref().unwrap_or(OPENAI))
    }
}

/// Maximum number of a server's models that an error lists.
const MAX_LISTED: usize = 20;

/// Returns the error for a model that no server on this machine has.
fn unlisted(model: &str, found: &[Local]) -> Failure {
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
    Failure::new(Exit::Model, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: AgentArgs = AgentArgs {
        mode: None,
        model: None,
        base_url: None,
        api_key: None,
        preset: None,
        config: None,
        max_steps: None,
        tools: None,
        yes: false,
    };

    fn inputs<'a>(flags: &'a AgentArgs, model: Option<&str>, base_url: Option<&str>) -> ModelInputs<'a> {
        let (model, base_url) = (model.map(str::to_owned), base_url.map(str::to_owned));
        let thread = Remembered { model, base_url, ..Remembered::default() };
        let environment = Environment { servers: Some(String::new()), ..Environment::default() };
        ModelInputs { flags, thread, environment, profiles: Profiles::default(), text_calls: None }
    }

    async fn chosen(wish: ModelInputs<'_>) -> (String, Option<String>) {
        let choice = wish.choose().await.unwrap();
        (choice.name, choice.base_url)
    }

    async fn refused(wish: ModelInputs<'_>) -> Failure {
        wish.choose().await.err().unwrap()
    }

    #[tokio::test]
    async fn a_flag_beats_the_thread_and_the_thread_the_environment() {
        let env = |wish: ModelInputs<'static>| ModelInputs {
            environment: Environment {
                base_url: Some("http://localhost:3/v1".into()),
                model: Some("e".into()),
                ..wish.environment
            },
            ..wish
        };
        let (url, none) = (|n: u16| Some(format!("http://localhost:{n}/v1")), &NONE);
        assert_eq!(chosen(env(inputs(none, None, None))).await, ("e".into(), url(3)));
        assert_eq!(
            chosen(env(inputs(none, Some("t"), Some("http://localhost:2/v1")))).await,
            ("t".into(), url(2))
        );
        let flags = AgentArgs { model: Some("f".into()), base_url: url(1), ..NONE };
        assert_eq!(
            chosen(inputs(&flags, Some("t"), Some("http://localhost:2/v1"))).await,
            ("f".into(), url(1))
        );
    }

    #[tokio::test]
    async fn an_offline_thread_stays_offline_until_a_flag_overrides_it() {
        let with_key = |wish: ModelInputs<'static>| ModelInputs {
            environment: Environment { key: Some(ApiKey::new("sk-x")), ..wish.environment },
            ..wish
        };
        assert_eq!(chosen(with_key(inputs(&NONE, Some(OFFLINE), None))).await.0, OFFLINE);
        let flags = AgentArgs { model: Some("f".into()), ..NONE };
        let mut asked = inputs(&flags, Some(OFFLINE), None);
        asked.environment.key = Some(ApiKey::new("sk-x"));
        assert_eq!(chosen(asked).await, ("f".into(), Some(OPENAI.into())));
    }

    #[tokio::test]
    async fn without_anything_the_offline_planner_answers_but_not_for_another_model() {
        let choice = inputs(&NONE, None, None).choose().await.unwrap();
        assert_eq!(choice.name, OFFLINE);
        assert!(choice.note.unwrap().contains("not a language model"));
        let flags = AgentArgs { model: Some("llama".into()), ..NONE };
        let error = refused(inputs(&flags, None, None)).await;
        assert_eq!(error.exit, Exit::Model);
        assert!(error.message.contains("no server for model `llama`"), "{}", error.message);
    }

    #[tokio::test]
    async fn the_key_of_the_environment_does_not_follow_an_address_out_of_a_database() {
        let mut asked = inputs(&NONE, Some("t"), Some("https://elsewhere.example/v1"));
        asked.environment.key = Some(ApiKey::new("sk-secret"));
        let error = refused(asked).await;
        assert_eq!(error.exit, Exit::Usage);
        assert!(
            error.message.contains("repeat `--base-url https://elsewhere.example/v1`"),
            "{}",
            error.message
        );
        assert!(!error.message.contains("sk-secret"));

        let mut known = inputs(&NONE, Some("t"), Some("https://elsewhere.example/v1"));
        known.environment.key = Some(ApiKey::new("sk-secret"));
        known.environment.base_url = Some("https://elsewhere.example/v1/".into());
        assert_eq!(chosen(known).await.0, "t");

        let flags = AgentArgs { base_url: Some("https://elsewhere.example/v1".into()), ..NONE };
        let mut named = inputs(&flags, Some("t"), None);
        named.environment.key = Some(ApiKey::new("sk-secret"));
        assert_eq!(
            named.choose().await.unwrap().repeated_flags,
            ["--base-url", "https://elsewhere.example/v1"].map(str::to_owned)
        );
    }
}
