//! The configuration of the program and its agent, as a file says it and a thread stores it.
//!
//! Start at [`Configuration`].

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use superstep::{
    agent::{ReactConfig, facades::opencode::react_rules},
    llm::Tool,
    mcp::McpConfig,
    memory::DreamConfig,
    sqlite::{SqliteOptions, Synchronous},
    tools::{ShellSettings, ToolSettings, WebSettings},
};

use crate::{
    config::{
        guardrails::Guardrails, memory::Memory, misfit::InvalidSetting, profile::Profiles,
        state_folder::own_folder, switch::Switch, tools,
    },
    error::SessionError,
};

/// The preset that defaults to a single round.
pub const OPENCODE: &str = "opencode";

/// The preset whose design records turns and dreams.
const DREAMING: &str = "cococat";

const ROLE: &str = "# Role: an assistant for one folder of files, step by step";

const TASK: &str = "You answer questions and do small tasks in one folder of files. Use the tools to find facts instead of \
    guessing; quote files as `path:line`.";

/// Contradicts the rules of [`Mode::React`].
const AT_ONCE: &str = "Call several tools at once where they do not need each other's results.";

const MANNER: &str =
    "If a tool fails, read why and try another way. Answer in the language of the question, briefly.";

const TOOL_TIMEOUT: Duration = Duration::from_secs(120);

/// The sections of the program, and the settings of the agent over those of a preset. A promise: threads store it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Configuration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(skip_serializing_if = "Profiles::is_empty")]
    pub models: Profiles,
    /// The names of the tools and groups that the agent has; `None` for all.
    #[serde(deserialize_with = "tools::names", skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp: BTreeMap<String, McpConfig>,
    #[serde(skip_serializing_if = "Switch::is_absent")]
    pub memory: Switch<Memory>,
    #[serde(skip_serializing_if = "Switch::is_absent")]
    pub dream: Switch<DreamConfig>,
    /// The resources of the tools besides their folder.
    #[serde(skip_serializing_if = "is_default")]
    pub shell: ShellSettings,
    #[serde(skip_serializing_if = "is_default")]
    pub web: WebSettings,
    /// Reads instructions and skills; `None` for yes, except with presets of other designs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<bool>,
    /// Takes snapshots of the files that tools change; `None` for yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<bool>,
    #[serde(skip_serializing_if = "is_default")]
    pub guardrails: Guardrails,
    #[serde(skip_serializing_if = "is_default")]
    pub db: Database,
    /// The fields of [`ReactConfig`] that replace those of the preset.
    #[serde(flatten)]
    pub agent: Map<String, Value>,
}

/// The rounds of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One round: the model may call tools, and then replies.
    Single,
    /// As many rounds as the preset allows.
    React,
}

impl Configuration {
    /// The names of its own fields; all others are the agent's.
    pub(crate) const FIELDS: [&str; 13] = [
        "preset",
        "mode",
        "models",
        "tools",
        "mcp",
        "memory",
        "dream",
        "shell",
        "web",
        "instructions",
        "snapshots",
        "guardrails",
        "db",
    ];

    /// Reads the configuration that a thread stores. A preset replaces the thread's, and its mode and the settings of its
    /// agent with it.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub(crate) fn of_thread(
        mut stored: Map<String, Value>,
        preset: Option<&str>,
    ) -> Result<Self, InvalidSetting> {
        if let Some(preset) = preset {
            // Models, tools and memory are independent of the preset's design.
            stored.retain(|name, _| name != "mode" && Self::FIELDS.contains(&name.as_str()));
            stored.insert("preset".to_owned(), preset.into());
        }
        let read = Self::deserialize(&Value::Object(stored.clone())).map_err(|error| {
            // The text of an error has no path. Each field is tried by itself to find that of the setting.
            let is_wrong = |(name, value): &(&String, &Value)| {
                let field = Map::from_iter([((*name).clone(), (*value).clone())]);
                Self::deserialize(Value::Object(field)).is_err()
            };
            match stored.iter().find(is_wrong) {
                Some((name, _)) => InvalidSetting::at(name, error),
                None => InvalidSetting { at: String::new(), problem: error.to_string() },
            }
        })?;
        read.check()?;
        Ok(read)
    }

    /// Checks the settings of the agent, and sections that depend on each other.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        self.over_preset()?;
        if let Some(memory) = self.memory.on() {
            memory.check()?;
        }
        let guards = self.guardrails.guards(std::iter::empty());
        guards.map_err(|problem| InvalidSetting::at("guardrails.schema", problem))?;
        self.web.check().map_err(|(field, problem)| InvalidSetting::at(&format!("web.{field}"), problem))?;
        match (&self.dream, &self.memory) {
            (Switch::On(_), Switch::Off) => {}
            (Switch::On(_), Switch::On(memory)) if !memory.is_files() => {}
            // An absent memory will be the default one.
            _ => return Ok(()),
        }
        let problem = "it edits `MEMORY.md`, which takes a memory in files; set `memory.store = \"file\"`";
        Err(InvalidSetting::at("dream", problem))
    }

    /// Applies settings of a command to those of a file or a thread. Their preset is not applied.
    pub fn with(mut self, flags: &Self) -> Self {
        // That design's own program runs a single round unless configured to loop.
        let usual = flags.preset.as_deref() == Some(OPENCODE) && flags.max_steps().is_none();
        self.mode = flags.mode.or(usual.then_some(Mode::Single)).or(self.mode);
        if let Some(max) = flags.max_steps() {
            self.set_max_steps(max);
        }
        if flags.tools.is_some() {
            self.tools.clone_from(&flags.tools);
        }
        if !flags.memory.is_absent() {
            self.memory.clone_from(&flags.memory);
        }
        if !flags.dream.is_absent() {
            self.dream.clone_from(&flags.dream);
        }
        self
    }

    fn max_steps(&self) -> Option<Value> {
        self.agent.get("limit")?.get("max").cloned()
    }

    pub fn set_max_steps(&mut self, max: impl Into<Value>) {
        let limit = self.agent.entry("limit").or_insert_with(|| Value::Object(Map::new()));
        limit["max"] = max.into();
    }

    /// Adds the user's own memory to a configuration without one, and the dreams of a preset that has them.
    ///
    /// A preset that only a database names does not enable dreams. Returns a note for the user, if any.
    pub(crate) fn add_usual_memory(&mut self, may_dream: bool) -> Option<String> {
        if !self.memory.is_absent() {
            return None;
        }
        if let Err(SessionError { message, .. }) = own_folder().and_then(|_| Memory::refuse_files()) {
            return Some(format!("no long-term memory: {message}"));
        }
        let usual = Switch::On(DreamConfig::default());
        let is_dreaming = may_dream && self.preset.as_deref() == Some(DREAMING);
        if is_dreaming && self.dream.is_absent() {
            self.dream = usual.clone();
        }
        self.memory = Switch::On(Memory::usual());
        (is_dreaming && self.dream == usual).then(|| {
            format!(
                "with preset `{DREAMING}`, turns are recorded and consolidated by dreams; `--no-memory` \
                turns that off"
            )
        })
    }

    /// Returns the variables with the keys of models and memories, and those of MCP servers, which commands do not see.
    pub(crate) fn secret_variables(&self) -> impl Iterator<Item = String> {
        let Profiles { main, fallback, compaction } = &self.models;
        let models =
            main.iter().chain(fallback).chain(compaction).filter_map(|profile| profile.key_env.clone());
        let memory = self.memory.on().and_then(|memory| memory.key_env.clone());
        models.chain(memory).chain(self.mcp.values().flat_map(McpConfig::variables))
    }

    /// Returns what the tools may use besides their folder.
    pub fn tool_settings(&self) -> ToolSettings {
        ToolSettings { shell: self.shell.clone(), web: self.web.clone() }
    }

    /// Returns the MCP servers whose tools the agent has: those of the groups that `tools` names, or all of
    /// them if it names none.
    ///
    /// # Errors
    /// `tools` names something unknown, or tools of two servers could have the same name.
    pub(crate) fn wanted_servers(&self) -> Result<BTreeMap<String, McpConfig>, String> {
        tools::check(self.tools.as_deref().unwrap_or_default(), &self.mcp)?;
        let mut servers = self.mcp.clone();
        let named = self.tools.iter().flatten().filter_map(|name| name.strip_prefix(tools::SERVER));
        let named: Vec<&str> = named.collect();
        if !named.is_empty() {
            servers.retain(|server, _| named.contains(&&**server));
        }
        let begins =
            |one: &str, other: &str| other.strip_prefix(one).is_some_and(|rest| rest.starts_with('_'));
        match servers.keys().find_map(|one| Some((one, servers.keys().find(|other| begins(one, other))?))) {
            Some((one, other)) => Err(format!(
                "the servers `{one}` and `{other}` of `mcp` could have tools with the same name, and with it the approvals of the \
                 other one; rename one, for example to `{}`",
                other.replace('_', "-")
            )),
            None => Ok(servers),
        }
    }

    /// Returns the agent's settings over those of the preset.
    fn over_preset(&self) -> Result<ReactConfig, InvalidSetting> {
        let mut given = self.agent.clone();
        given.extend(self.preset.clone().map(|preset| ("preset".to_owned(), preset.into())));
        Ok(ReactConfig::read(Value::Object(given))?)
    }

    /// Returns the agent's configuration, with a default prompt and time limit.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn react(&self, is_offline: bool) -> Result<ReactConfig, InvalidSetting> {
        let mut config = self.over_preset()?;
        if self.mode == Some(Mode::Single) {
            config = config.single_round();
        }
        config.system_prompt = self.prompt(config.limit.max, &[]);
        if !self.agent.contains_key("tool_timeout_ms") {
            config.tool_timeout = Some(TOOL_TIMEOUT);
        }
        let has_window = self.agent.get("context").is_some_and(|context| context.get("window").is_some());
        if let (Some(window), false) = (self.models.context_window(), has_window) {
            config.context.window = Some(window);
        }
        if let (Some(memory), false) = (self.memory.on(), self.agent.contains_key("retrieve")) {
            memory.configure(&mut config);
        }
        if is_offline {
            // It never repeats itself, and two of its searches may be similar.
            config.loops.clear();
        }
        Ok(config)
    }

    /// Returns the system prompt: the given one, or the default one for an agent with this limit of steps and these tools.
    pub fn prompt(&self, max_steps: u32, tools: &[Arc<dyn Tool>]) -> String {
        match (self.agent.get("system_prompt").and_then(Value::as_str), self.mode) {
            (Some(given), _) => given.to_owned(),
            (None, Some(Mode::React)) => {
                format!("{ROLE}\n\n{TASK} {MANNER}\n\n{}", react_rules(max_steps, tools))
            }
            (None, Some(Mode::Single) | None) => format!("{TASK} {AT_ONCE} {MANNER}"),
        }
    }

    /// Returns whether tool calls are found in text, if that is given.
    pub(crate) fn text_calls(&self) -> Option<bool> {
        self.agent.get("text_calls").and_then(Value::as_bool)
    }
}

/// The database settings of a configuration. A promise: threads store them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    synchronous: Level,
}

/// The supported levels of SQLite's `PRAGMA synchronous`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    #[default]
    Normal,
    Full,
}

impl Database {
    pub fn options(self) -> SqliteOptions {
        let synchronous = match self.synchronous {
            Level::Normal => Synchronous::Effects,
            Level::Full => Synchronous::Commits,
        };
        SqliteOptions::new().synchronous(synchronous)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::file::parse;

    fn of_thread(given: Value, preset: Option<&str>) -> Result<Configuration, String> {
        let Value::Object(given) = given else { panic!("{given}") };
        Configuration::of_thread(given, preset).map_err(|misfit| misfit.to_string())
    }

    #[test]
    fn servers_whose_tools_could_share_a_name_are_rejected() {
        let server = |name: &str| format!("[mcp.{name}]\ncommand = \"x\"\n");
        let wanted = |names: &[&str], tools: &str| {
            let servers: String = names.iter().map(|name| server(name)).collect();
            parse(&format!("{tools}{servers}")).unwrap().wanted_servers()
        };
        let wrong = wanted(&["bank", "bank_eu"], "").unwrap_err();
        let says = "the servers `bank` and `bank_eu` of `mcp` could have tools with the same name, and with it the approvals of the other \
                    one; rename one, for example to `bank-eu`";
        assert_eq!(wrong, says);
        assert!(
            wanted(&["bank", "bank_eu"], "tools = [\"mcp.bank\"]\n").is_ok(),
            "the other one does not run"
        );
        assert!(wanted(&["bank", "bank-eu", "banks", "my_bank"], "").is_ok());
    }

    #[test]
    fn dreams_are_configured_for_a_memory_in_files() {
        let dream = |toml: &str| parse(toml).unwrap().dream;
        let files = "memory = { store = \"file\" }\n";
        assert_eq!((dream(""), dream("dream = false")), (Switch::Absent, Switch::Off));
        for usual in ["dream = true", "[dream]"] {
            assert_eq!(dream(&format!("{files}{usual}")), Switch::On(DreamConfig::default()));
            assert_eq!(dream(usual), Switch::On(DreamConfig::default()));
        }
        let given = dream(&format!("{files}[dream]\nturns = 10\nafter_ms = 5"));
        let given = given.on().unwrap();
        assert_eq!((given.turns, given.after.as_millis()), (10, 5));
    }

    #[test]
    fn chosen_settings_are_retained_and_others_are_defaults() {
        let react = |toml: &str| parse(toml).unwrap().react(false).unwrap();
        let harness = react("preset = \"harness\"\ntool_timeout_ms = 5");
        assert_eq!((harness.limit.max, harness.tool_timeout), (40, Some(Duration::from_millis(5))));
        assert!(harness.system_prompt.starts_with("You answer questions"));
        assert_eq!(react("system_prompt = \"\"\n[models.main]\nmodel = \"m\"").system_prompt, "");
        let models = "[models.main]\ncontext_window = 9000\n[models.fallback]\ncontext_window = 8000\n";
        assert_eq!(react(models).context.window, Some(8_000));
        assert_eq!(react(&format!("{models}[context]\nwindow = 5000")).context.window, Some(5_000));
    }

    #[test]
    fn flags_override_stored_settings() {
        let flags = of_thread(
            json!({ "mode": "single", "limit": { "max": 3 }, "tools": ["read", "shell"], "memory": false, "dream": false }),
            None,
        );
        let given = json!({ "mode": "react", "memory": { "tools": false }, "dream": true, "limit": { "unit": "model_calls" } });
        let read = of_thread(given, None).unwrap().with(&flags.unwrap());
        let wanted = json!({
            "mode": "single",
            "tools": ["read", "shell"],
            "memory": false,
            "dream": false,
            "limit": { "max": 3, "unit": "model_calls" },
        });
        assert_eq!(serde_json::to_value(read).unwrap(), wanted);
    }

    #[test]
    fn a_preset_overrides_all_agent_settings() {
        let given =
            json!({ "preset": "graph", "mode": "single", "gone": 1, "tools": ["read"], "snapshots": false });
        let read = of_thread(given.clone(), Some("harness")).unwrap();
        let wanted = json!({ "preset": "harness", "tools": ["read"], "snapshots": false });
        assert_eq!(serde_json::to_value(read).unwrap(), wanted);
        let error = of_thread(given, None).unwrap_err();
        assert!(error.starts_with("unknown field `gone`"), "{error}");
    }

    #[test]
    fn a_misfit_of_a_thread_is_named() {
        for (given, wanted) in [
            (json!({ "mode": 1 }), "`mode`: invalid type: integer `1`, expected string or map"),
            (
                json!({ "tools": ["read"], "memory": 3 }),
                "`memory`: invalid type: integer `3`, expected `true`, `false` or a table",
            ),
            (
                json!({ "limit": { "max": "x" } }),
                "`limit.max`: invalid type: string \"x\", expected a whole number from 0 on",
            ),
            (
                json!({ "preset": "nope" }),
                "unknown preset `nope`; known presets are default, cococat, opencode, harness, graph, \
                 agentscope",
            ),
        ] {
            assert_eq!(of_thread(given, None), Err(wanted.to_owned()));
        }
    }

    #[test]
    fn a_configuration_sets_when_the_database_is_synced() {
        let read = |toml: &str| parse(toml).map(|read| read.db.options().synchronous);
        assert_eq!(read(""), Ok(Synchronous::Effects));
        assert_eq!(read("[db]"), Ok(Synchronous::Effects));
        assert_eq!(read("[db]\nsynchronous = \"normal\""), Ok(Synchronous::Effects));
        assert_eq!(read("[db]\nsynchronous = \"full\""), Ok(Synchronous::Commits));
        let wrong = "does not fit: line 2, column 15: `db.synchronous`: unknown variant `off`, expected `normal` or `full`";
        assert_eq!(read("[db]\nsynchronous = \"off\""), Err(wrong.to_owned()));
    }
}
