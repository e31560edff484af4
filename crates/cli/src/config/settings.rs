//! The agent's configuration: presets, files, and the thread's settings.

use std::{
    fs,
    io::{self, Read},
    path::Path,
    time::Duration,
};

use serde_json::{Map, Value};
use superstep::agent::{ConfigError, ReactConfig, opencode::react_rules};

use crate::{
    args::shared::{Mode, TurnArgs},
    config::{
        database, dream, mcp,
        memory::{self, Memory},
        profile::{MODELS, Profiles},
        tools,
    },
    output::exit::Failure,
};

const SYSTEM_PROMPT: &str = "You answer questions and do small tasks in one folder of files. Use the tools to find facts \
    instead of guessing; quote files as `path:line`. Call several tools at once where they do not need each other's \
    results. If a tool fails, read why and try another way. Answer in the language of the question, briefly.";

const TOOL_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum size of a configuration file in bytes.
const MOST_CONFIG: u64 = 1 << 20;

/// The entry for `--mode`, and its values.
pub(crate) const MODE: &str = "mode";
pub(crate) const SINGLE: &str = "single";
const REACT: &str = "react";

/// The entry with the permission rules.
const PERMISSIONS: &str = "permissions";

/// The preset that defaults to a single round.
pub(crate) const OPENCODE: &str = "opencode";

/// The entry that says whether files are kept.
pub(crate) const SNAPSHOTS: &str = "snapshots";

/// The entries of a configuration that belong to the program and stay if another preset is chosen.
const OWN: [&str; 7] = [MODELS, tools::KEY, mcp::KEY, memory::KEY, dream::KEY, SNAPSHOTS, database::KEY];

/// A configuration as the thread stores it: the input of [`ReactConfig::read`], the models, and the mode.
pub(crate) type Chosen = Map<String, Value>;

/// Returns the configuration of the flags, or else of the thread.
pub(crate) fn chosen(flags: &TurnArgs, thread: Option<Chosen>) -> Result<Chosen, Failure> {
    let mut chosen = match (&flags.config, &flags.preset) {
        (Some(file), _) => read(file)?,
        (None, Some(preset)) => {
            // Models and permissions are independent of the preset's design.
            let mut thread = thread.unwrap_or_default();
            let kept = OWN.map(|own| Some((own.to_owned(), thread.remove(own)?)));
            let preset = ("preset".to_owned(), Value::from(preset.as_str()));
            [preset].into_iter().chain(kept.into_iter().flatten()).collect()
        }
        (None, None) => thread.unwrap_or_default(),
    };
    // That design's own program runs a single round unless configured to loop.
    let usual = flags.preset.as_deref() == Some(OPENCODE) && flags.max_steps.is_none();
    if let Some(mode) = flags.mode.or(usual.then_some(Mode::Single)) {
        chosen.insert(MODE.to_owned(), if mode == Mode::Single { SINGLE } else { REACT }.into());
    }
    if let Some(max) = flags.max_steps {
        let limit = chosen.entry("limit").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(limit) = limit {
            limit.insert("max".to_owned(), max.into());
        }
    }
    if flags.no_memory {
        chosen.extend([memory::KEY, dream::KEY].map(|key| (key.to_owned(), false.into())));
    }
    if let Some(names) = &flags.tools {
        let names: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        chosen.insert(tools::KEY.to_owned(), names.into());
    }
    Ok(chosen)
}

/// Removes settings of a database's configuration that would widen the permissions; returns the rest and
/// their names.
///
/// MCP servers and memories stay, because running such a thread rejects them by name.
pub(crate) fn narrowed(chosen: Chosen) -> (Chosen, Vec<String>) {
    let (mut narrowed, mut left_out) = (Chosen::new(), Vec::new());
    for (name, value) in chosen {
        match (name.as_str(), value) {
            ("preset" | MODE | tools::KEY | mcp::KEY | memory::KEY | database::KEY, value) => {
                narrowed.insert(name, value);
            }
            (PERMISSIONS, Value::Array(rules)) => {
                let all = rules.len();
                let is_narrow = |rule: &Value| matches!(rule["then"].as_str(), Some("ask" | "deny"));
                let rules: Vec<_> = rules.into_iter().filter(is_narrow).collect();
                if rules.len() < all {
                    left_out
                        .push(format!("{} of the rules in `{PERMISSIONS}`, which allow", all - rules.len()));
                }
                narrowed.insert(name, rules.into());
            }
            _ => left_out.push(format!("`{name}`")),
        }
    }
    (narrowed, left_out)
}

/// Returns the agent's configuration, with a default prompt and time limit.
pub(crate) fn config(chosen: &Chosen, is_offline: bool) -> Result<ReactConfig, ConfigError> {
    let mut config = agent(chosen)?;
    if !chosen.contains_key("system_prompt") {
        SYSTEM_PROMPT.clone_into(&mut config.system_prompt);
        if chosen.get(MODE).and_then(Value::as_str) == Some(REACT) {
            config.system_prompt.push_str("\n\n");
            config.system_prompt.push_str(&react_rules(config.limit.max));
        }
    }
    if !chosen.contains_key("tool_timeout_ms") {
        config.tool_timeout = Some(TOOL_TIMEOUT);
    }
    let own_window = chosen.get("context").and_then(|context| context.get("window"));
    let profiles = Profiles::of(chosen)
        .map_err(|problem| ConfigError::Field { place: format!("`{MODELS}`: "), problem })?;
    if let (Some(window), None) = (profiles.context_window(), own_window) {
        config.context.window = window;
    }
    if let Ok(Some(memory)) = Memory::of(chosen) {
        memory.configure(chosen, &mut config);
    }
    if is_offline {
        // It never repeats itself, and two of its searches may be similar.
        config.loops.clear();
    }
    Ok(config)
}

/// Returns the agent's own part of the configuration.
fn agent(chosen: &Chosen) -> Result<ReactConfig, ConfigError> {
    let mut chosen = chosen.clone();
    for own in OWN {
        chosen.remove(own);
    }
    let mode = chosen.get(MODE).and_then(Value::as_str);
    let (is_single, is_known) = (mode == Some(SINGLE), matches!(mode, Some(SINGLE | REACT)));
    if is_known {
        chosen.remove(MODE);
    }
    let config = ReactConfig::read(Value::Object(chosen))?;
    Ok(if is_single { config.single_round() } else { config })
}

pub(crate) fn read(file: &Path) -> Result<Chosen, Failure> {
    let failed = |what: String| Failure::usage(format!("the configuration `{}` {what}", file.display()));
    let unread = |cause: io::Error| failed(format!("cannot be read: {cause}"));
    let about = fs::metadata(file).map_err(unread)?;
    if !about.is_file() {
        // Opening a pipe waits for its writer, and a device may never end.
        return Err(failed("is no regular file".to_owned()));
    }
    let mut text = String::new();
    fs::File::open(file)
        .and_then(|file| file.take(MOST_CONFIG + 1).read_to_string(&mut text))
        .map_err(unread)?;
    if text.len() as u64 > MOST_CONFIG {
        return Err(failed("is longer than 1 MiB".to_owned()));
    }
    let chosen: Chosen =
        toml::from_str(&text).map_err(|cause| failed(format!("is no TOML: {}", syntax(&text, &cause))))?;
    if let Some(wrong) = wrong_entry(&chosen) {
        return Err(failed(format!("does not fit: {wrong}")));
    }
    if let Err(error) = Profiles::of(&chosen) {
        return Err(failed(format!("does not fit: `models`: {error}")));
    }
    let servers = mcp::servers(&chosen).map_err(|wrong| failed(format!("does not fit: {wrong}")))?;
    Memory::of(&chosen).map_err(|wrong| failed(format!("does not fit: {wrong}")))?;
    dream::of(&chosen).map_err(|wrong| failed(format!("does not fit: {wrong}")))?;
    database::options(&chosen).map_err(|wrong| failed(format!("does not fit: {wrong}")))?;
    if let Some(names) = chosen.get(tools::KEY) {
        tools::names(names, &servers).map_err(|wrong| failed(format!("does not fit: {wrong}")))?;
    }
    if !matches!(chosen.get(SNAPSHOTS), None | Some(Value::Bool(_))) {
        return Err(failed(format!("does not fit: `{}` is `true` or `false`", SNAPSHOTS)));
    }
    match agent(&chosen) {
        Ok(_) => Ok(chosen),
        Err(error) => Err(failed(format!("does not fit: {error}"))),
    }
}

/// Formats the position and the reason of a TOML syntax error, without the line, which may contain secrets.
fn syntax(text: &str, cause: &toml::de::Error) -> String {
    let before = cause.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    let message = cause.message().replace('\n', ", ");
    format!("line {}, column {column}: {message}", before.matches('\n').count() + 1)
}

/// Returns the problem with an entry unknown to the agent, whose own message would list only its entries.
fn wrong_entry(chosen: &Chosen) -> Option<String> {
    if !matches!(chosen.get(MODE).map(Value::as_str), None | Some(Some(SINGLE | REACT))) {
        return Some(format!("`{MODE}` is `{REACT}` or `{SINGLE}`"));
    }
    let fields = serde_json::to_value(ReactConfig::default()).unwrap_or_default();
    let fields = fields.as_object().into_iter().flat_map(Map::keys).map(String::as_str);
    let known: Vec<_> = ["preset", MODE].into_iter().chain(OWN).chain(fields).collect();
    let wrong = chosen.keys().find(|name| !known.contains(&name.as_str()))?;
    let near = known
        .iter()
        .max_by(|one, other| strsim::jaro_winkler(wrong, one).total_cmp(&strsim::jaro_winkler(wrong, other)));
    Some(match near.filter(|near| strsim::jaro_winkler(wrong, near) > 0.8) {
        Some(near) => format!("unknown field `{wrong}`; did you mean `{near}`?"),
        None => format!("unknown field `{wrong}`; there are `{}`", known.join("`, `")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_is_kept_and_the_rest_is_the_programs() {
        let given: Chosen = toml::from_str("preset = \"harness\"\ntool_timeout_ms = 5").unwrap();
        let harness = config(&given, false).unwrap();
        assert_eq!((harness.limit.max, harness.tool_timeout), (40, Some(Duration::from_millis(5))));
        assert!(harness.system_prompt.starts_with("You answer questions"));
        let given: Chosen = toml::from_str("system_prompt = \"\"\n[models.main]\nmodel = \"m\"").unwrap();
        assert_eq!(config(&given, false).unwrap().system_prompt, "");
        let window = |toml: &str| config(&toml::from_str(toml).unwrap(), false).unwrap().context.window;
        let models = "[models.main]\ncontext_window = 9000\n[models.fallback]\ncontext_window = 8000\n";
        assert_eq!(window(models), 8_000);
        assert_eq!(window(&format!("{models}[context]\nwindow = 5000")), 5_000);
    }
}
