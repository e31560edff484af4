//! The settings of a run: those of a command, over those of a file or a thread.
//!
//! | setting | taken from the first that has it | where |
//! |---|---|---|
//! | configuration | flags; `--config`, or without it the thread, or of a new one `superstep.toml`; the preset | `Given::configuration` |
//! | model | flag, `--config`, thread, environment, `superstep.toml`, a server of this machine, `offline` | `ModelInputs::main` |
//! | server | the same, and with a key OpenAI before a server of this machine | `ModelInputs::main` |
//! | user | flag, thread, configuration | `Setup::new` |
//! | folder | flag; the thread, if the database is named; the current one | `Location::cwd_of` |
//!
//! Start at [`Settings`].

use std::{
    collections::BTreeMap,
    error::Error,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use superstep::{
    CheckpointId, Checkpointer, History, RunOptions, ThreadId,
    agent::AgentBuilder,
    checkpoint::{CheckpointError, CheckpointMeta, Source},
    error::chain,
    llm::ApiKey,
    mcp::McpConfig,
};

use crate::{
    config::{
        configuration::Configuration, defaults::Defaults, file, instructions::TrustedFiles, switch::Switch,
    },
    error::{ErrorKind, SessionError},
};

/// The entry of the metadata that all stored settings have.
const MODEL: &str = "model";

/// The settings of a run. A thread stores them in the metadata of its inputs and resumed runs. A promise; never contains the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    default,
    bound(serialize = "C: Serialize + Default + PartialEq", deserialize = "C: Deserialize<'de> + Default")
)]
pub struct Settings<C = Configuration> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The step limit of threads of versions that stored no other setting.
    #[serde(skip_serializing)]
    pub max_steps: Option<u32>,
    /// The configuration of the program and its agent.
    #[serde(skip_serializing_if = "is_default")]
    pub config: C,
    /// The folder of the tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Only the database has these settings: the user never ran the thread with them on this machine.
    #[serde(skip)]
    pub is_foreign: bool,
}

/// The settings of a checkpoint, whose configuration another version may have written.
pub type StoredSettings = Settings<Map<String, Value>>;

/// The settings that a command names, and what no thread stores.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub settings: Settings,
    /// A configuration file, which replaces the configuration of the thread.
    pub file: Option<PathBuf>,
    pub key: Option<ApiKey>,
    /// Runs calls that require approval, as if a rule allowed them.
    pub approves_all: bool,
    /// The instructions and skills of a folder that are read although the user has not confirmed them.
    pub trusted: TrustedFiles,
    /// Tools that the agent does not have, although its configuration names them. No thread stores them.
    pub hidden_tools: &'static [&'static str],
    /// MCP servers besides those of the configuration, which no thread stores. A turn runs without those that fail.
    pub servers: BTreeMap<String, McpConfig>,
    /// The agent of a program of one's own, in place of a configured one.
    pub agent: Option<OwnAgent>,
}

/// The agent of a program of one's own.
#[derive(Clone)]
pub struct OwnAgent(Arc<MakeAgent>);

type MakeAgent = dyn Fn(&Path) -> Result<AgentBuilder, OwnError> + Send + Sync;

type OwnError = Box<dyn Error + Send + Sync>;

impl OwnAgent {
    /// Creates an agent from the function that makes it for a folder, before each turn.
    pub fn new(make: impl Fn(&Path) -> Result<AgentBuilder, OwnError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn make(&self, folder: &Path) -> Result<AgentBuilder, SessionError> {
        (self.0)(folder).map_err(|error| {
            let message = format!("the agent of this program is not valid: {}", chain(&*error));
            SessionError::new(ErrorKind::Failed, message)
        })
    }
}

impl fmt::Debug for OwnAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnAgent").finish_non_exhaustive()
    }
}

impl Given {
    /// Uses no long-term memory.
    pub fn without_memory(mut self) -> Self {
        (self.settings.config.memory, self.settings.config.dream) = (Switch::Off, Switch::Off);
        self
    }

    /// Returns the configuration of a turn: flags over the named file; without one over that of a thread, or of a new thread over
    /// that of `defaults`.
    ///
    /// # Errors
    /// The file or the configuration does not fit; `whose` is the subject of the error about the latter.
    pub fn configuration(
        &self,
        stored: &StoredSettings,
        defaults: &Defaults,
        whose: &str,
    ) -> Result<Configuration, SessionError> {
        let flags = &self.settings.config;
        let own = match &self.file {
            Some(file) => file::read(file)?,
            None => {
                let settings =
                    if stored.is_new() { defaults.settings().clone() } else { stored.configuration() };
                Configuration::of_thread(settings, flags.preset.as_deref()).map_err(|wrong| {
                    SessionError::usage(format!("{whose} a configuration that does not fit: {wrong}"))
                })?
            }
        };
        Ok(own.with(flags))
    }

    /// Returns whether a setting of a thread is replaced.
    pub fn changes_settings(&self) -> bool {
        let Settings { model, config, .. } = &self.settings;
        self.file.is_some() || model.is_some() || *config != Configuration::default()
    }
}

impl<C: Serialize + Default + PartialEq> Settings<C> {
    /// Adds the settings to the options of runs, which store them with their threads.
    pub(crate) fn stored_by(&self, options: RunOptions) -> RunOptions {
        self.metadata().into_iter().fold(options, |options, (name, value)| options.metadata(name, value))
    }

    /// Returns the metadata in which a thread stores them.
    pub fn metadata(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            _ => unreachable!("a struct of settings is a JSON object"),
        }
    }
}

impl Settings {
    /// Returns them as the thread will have stored them.
    pub(crate) fn to_stored(&self) -> StoredSettings {
        StoredSettings::deserialize(&Value::Object(self.metadata())).expect("stored settings can be read")
    }
}

impl StoredSettings {
    /// Loads the settings of the thread's newest input or resumed run, or those retained by a prune; empty for a new thread.
    pub async fn load(
        store: &dyn Checkpointer,
        thread: &ThreadId,
        from: Option<CheckpointId>,
    ) -> Result<Self, SessionError> {
        let meta = match (newest(store, thread, None, has_settings).await, from) {
            // A damaged checkpoint hides those before it; from a named one on, they can be read.
            (Err(CheckpointError::Corrupt { .. }), Some(from)) => {
                newest(store, thread, Some(CheckpointId(from.0.saturating_add(1))), has_settings).await?
            }
            (found, _) => found?,
        };
        let Some(meta) = meta else {
            // A thread without settings was not created by this program.
            let is_foreign = newest(store, thread, None, |_| true).await?.is_some();
            return Ok(Self { is_foreign, ..Self::default() });
        };
        Ok(Self { is_foreign: true, ..Self::read(&meta, thread)? })
    }

    /// Loads the settings that one checkpoint stores.
    pub async fn at(
        store: &dyn Checkpointer,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> Result<Self, SessionError> {
        match store.load(thread, Some(at)).await? {
            Some(loaded) => Ok(Self { is_foreign: true, ..Self::read(&loaded.meta, thread)? }),
            None => Self::load(store, thread, None).await,
        }
    }

    fn read(meta: &CheckpointMeta, thread: &ThreadId) -> Result<Self, SessionError> {
        Self::of(meta).map_err(|cause| {
            let message = format!(
                "checkpoint {} of thread `{thread}` stores its model in an unknown form ({cause}); use \
                 another thread",
                meta.id
            );
            SessionError::new(ErrorKind::Database, message)
        })
    }

    /// Loads all settings that the thread's checkpoints have; skips unreadable ones.
    pub async fn all(store: &dyn Checkpointer, thread: &ThreadId) -> Result<Vec<Self>, CheckpointError> {
        let mut all: Vec<Self> = Vec::new();
        for meta in store.history(thread, History::default()).await?.iter().filter(|meta| has_settings(meta))
        {
            if let Some(settings) = Self::of(meta).ok().filter(|settings| !all.contains(settings)) {
                all.push(settings);
            }
        }
        Ok(all)
    }

    pub fn of(meta: &CheckpointMeta) -> serde_json::Result<Self> {
        Self::deserialize(&meta.metadata)
    }

    /// Returns whether they are those of a thread without a turn.
    pub fn is_new(&self) -> bool {
        !self.is_foreign && self.model.is_none() && self.max_steps.is_none() && self.config.is_empty()
    }

    /// Returns the configuration.
    pub fn configuration(&self) -> Map<String, Value> {
        match self.max_steps {
            Some(max) if self.config.is_empty() => {
                let limit = Map::from_iter([("max".to_owned(), max.into())]);
                Map::from_iter([("limit".to_owned(), Value::Object(limit))])
            }
            _ => self.config.clone(),
        }
    }

    /// Returns the settings that are compared with those that the user ran.
    pub fn to_compare(&self) -> Value {
        let Self { model, base_url, max_steps, config, cwd, user, is_foreign: _ } = self;
        json!([model, base_url, max_steps, config, cwd, user])
    }

    /// Removes settings that only a database has and that would widen the permissions; returns the rest and
    /// their names.
    pub(crate) fn narrowed(self) -> (Self, Vec<String>) {
        let (config, mut left_out) = narrowed(self.config);
        if self.max_steps.is_some() {
            left_out.push("`limit`".to_owned());
        }
        // A user's memory is only read if a file configures it, which also names the user.
        (Self { config, max_steps: None, user: None, ..self }, left_out)
    }
}

/// Removes settings of a database's configuration that would widen the permissions; returns the rest and
/// their names.
///
/// MCP servers and memories stay, because running such a thread rejects them by name.
fn narrowed(config: Map<String, Value>) -> (Map<String, Value>, Vec<String>) {
    let (mut narrowed, mut left_out) = (Map::new(), Vec::new());
    for (name, value) in config {
        match (name.as_str(), value) {
            ("preset" | "mode" | "tools" | "mcp" | "memory" | "guardrails" | "db", value) => {
                narrowed.insert(name, value);
            }
            // Switching them on is left out.
            ("instructions", Value::Bool(false)) => _ = narrowed.insert(name, false.into()),
            ("permissions", Value::Array(rules)) => {
                let all = rules.len();
                let is_narrow = |rule: &Value| matches!(rule["then"].as_str(), Some("ask" | "deny"));
                let rules: Vec<_> = rules.into_iter().filter(is_narrow).collect();
                if rules.len() < all {
                    left_out
                        .push(format!("{} of the rules in `permissions`, which allow", all - rules.len()));
                }
                narrowed.insert(name, rules.into());
            }
            _ => left_out.push(format!("`{name}`")),
        }
    }
    (narrowed, left_out)
}

/// Returns whether a checkpoint has the thread's settings.
fn has_settings(meta: &CheckpointMeta) -> bool {
    matches!(meta.source, Source::Input | Source::Fork) || meta.parent_pruned || resumes(meta)
}

/// Returns whether a checkpoint is the first one of a resumed run, which has its settings.
pub fn resumes(meta: &CheckpointMeta) -> bool {
    meta.source == Source::Loop && has_model(meta)
}

/// Returns whether a checkpoint has settings of this program.
pub fn has_model(meta: &CheckpointMeta) -> bool {
    meta.metadata.contains_key(MODEL)
}

/// Returns the newest checkpoint that is `wanted`, optionally before a given one.
async fn newest(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    before: Option<CheckpointId>,
    wanted: fn(&CheckpointMeta) -> bool,
) -> Result<Option<CheckpointMeta>, CheckpointError> {
    let mut page = History { limit: Some(50), before, ..History::default() };
    loop {
        let metas = store.history(thread, page.clone()).await?;
        let Some(oldest) = metas.last() else { return Ok(None) };
        page.before = Some(oldest.id);
        if let Some(meta) = metas.into_iter().find(wanted) {
            return Ok(Some(meta));
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_settings_have_no_key_and_are_read_unchanged() {
        let settings = Settings {
            model: Some("m".into()),
            base_url: Some("http://h/v1".into()),
            config: Configuration { preset: Some("graph".into()), ..Configuration::default() },
            cwd: Some("/w".into()),
            user: Some("ada".into()),
            ..Settings::default()
        };
        let stored = Value::Object(settings.metadata());
        assert_eq!(
            stored.to_string(),
            r#"{"base_url":"http://h/v1","config":{"preset":"graph"},"cwd":"/w","model":"m","user":"ada"}"#
        );
        assert_eq!(serde_json::from_value::<Settings>(stored).unwrap(), settings);
    }
}
