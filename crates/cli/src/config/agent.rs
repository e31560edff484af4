//! The settings of the agent in a configuration.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};
use superstep::{
    agent::{ReactConfig, config::ConfigError, facades::opencode::react_rules},
    llm::Tool,
};

use crate::args::shared::Mode;

const ROLE: &str = "# Role: an assistant for one folder of files, step by step";

const TASK: &str = "You answer questions and do small tasks in one folder of files. Use the tools to find facts instead of \
    guessing; quote files as `path:line`.";

/// Contradicts the rules of `--mode react`.
const AT_ONCE: &str = "Call several tools at once where they do not need each other's results.";

const MANNER: &str =
    "If a tool fails, read why and try another way. Answer in the language of the question, briefly.";

const TOOL_TIMEOUT: Duration = Duration::from_secs(120);

/// The settings that are given, and those of the preset with them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AgentSettings {
    given: Map<String, Value>,
    config: ReactConfig,
}

impl AgentSettings {
    /// Reads the settings over those of a preset.
    pub(super) fn read(preset: Option<&str>, given: Map<String, Value>) -> Result<Self, ConfigError> {
        let preset = preset.map(|preset| ("preset".to_owned(), preset.into()));
        let all = given.clone().into_iter().chain(preset).collect();
        Ok(Self { given, config: ReactConfig::read(Value::Object(all))? })
    }

    /// The names of all settings.
    pub(super) fn fields() -> Vec<String> {
        match serde_json::to_value(ReactConfig::default()) {
            Ok(Value::Object(fields)) => fields.into_iter().map(|(name, _)| name).collect(),
            _ => unreachable!("a struct of settings is a JSON object"),
        }
    }

    /// Sets the limit of steps.
    pub(super) fn set_max_steps(&mut self, max: u32) {
        self.config.limit.max = max;
        let limit = self.given.entry("limit").or_insert_with(|| Value::Object(Map::new()));
        limit["max"] = max.into();
    }

    /// Returns whether a setting is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Returns whether the context window is given.
    pub(super) fn has_window(&self) -> bool {
        self.given.get("context").is_some_and(|context| context.get("window").is_some())
    }

    /// Returns whether tool calls are found in text, if that is given.
    pub(crate) fn text_calls(&self) -> Option<bool> {
        self.has("text_calls").then_some(self.config.text_calls)
    }

    /// Returns the settings that are given.
    pub(super) fn given(&self) -> &Map<String, Value> {
        &self.given
    }

    /// Returns the system prompt: the given one, or the default one for an agent with these tools.
    pub(super) fn prompt(&self, mode: Option<Mode>, tools: &[Arc<dyn Tool>]) -> String {
        match mode {
            _ if self.has("system_prompt") => self.config.system_prompt.clone(),
            Some(Mode::React) => {
                format!("{ROLE}\n\n{TASK} {MANNER}\n\n{}", react_rules(self.config.limit.max, tools))
            }
            Some(Mode::Single) | None => format!("{TASK} {AT_ONCE} {MANNER}"),
        }
    }

    /// Returns the configuration of the agent, with a default prompt and time limit.
    pub(super) fn react(&self, mode: Option<Mode>) -> ReactConfig {
        let mut config = self.config.clone();
        if mode == Some(Mode::Single) {
            config = config.single_round();
        }
        config.system_prompt = self.prompt(mode, &[]);
        if !self.has("tool_timeout_ms") {
            config.tool_timeout = Some(TOOL_TIMEOUT);
        }
        config
    }
}
