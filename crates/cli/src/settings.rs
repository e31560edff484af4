//! How the agent is configured: presets, files, and what a thread remembers.

use std::{fs, path::Path, time::Duration};

use serde_json::{Map, Value};
use superstep::agent::{ConfigError, PRESETS, ReactConfig};

use crate::{
    args::{PresetsArgs, TurnArgs},
    exit::{Exit, Failure},
    model::{Choice, OFFLINE, is_loopback},
    show,
};

const SYSTEM_PROMPT: &str = "You answer questions and do small tasks in one folder of files. Use the tools to find facts \
    instead of guessing; quote files as `path:line`. Call several tools at once where they do not need each other's \
    results. If a tool fails, read why and try another way. Answer in the language of the question, briefly.";

const TOOL_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest configuration file, in bytes.
const MOST_CONFIG: u64 = 1 << 20;

/// What was chosen about the agent, as the thread remembers it: what [`ReactConfig::read`] takes.
pub(crate) type Chosen = Map<String, Value>;

/// What the flags choose, or else the thread.
pub(crate) fn chosen(flags: &TurnArgs, thread: Option<Chosen>) -> Result<Chosen, Failure> {
    let mut chosen = match (&flags.config, &flags.preset) {
        (Some(file), _) => read(file)?,
        (None, Some(preset)) => Map::from_iter([("preset".to_owned(), Value::from(preset.as_str()))]),
        (None, None) => thread.unwrap_or_default(),
    };
    if let Some(max) = flags.max_steps {
        let limit = chosen.entry("limit").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(limit) = limit {
            limit.insert("max".to_owned(), max.into());
        }
    }
    Ok(chosen)
}

/// The configuration of the program's agent: what was chosen, with a prompt and a time limit if nothing says otherwise.
pub(crate) fn config(chosen: &Chosen, choice: &Choice) -> Result<ReactConfig, ConfigError> {
    let mut config = ReactConfig::read(Value::Object(chosen.clone()))?;
    if !chosen.contains_key("system_prompt") {
        SYSTEM_PROMPT.clone_into(&mut config.system_prompt);
    }
    if !chosen.contains_key("tool_timeout_ms") {
        config.tool_timeout = Some(TOOL_TIMEOUT);
    }
    if !chosen.contains_key("text_calls") {
        // Servers of one's own often do not know their model's way to write calls.
        config.text_calls = choice.base_url.as_deref().is_some_and(is_loopback);
    }
    if choice.name == OFFLINE {
        // It never repeats itself, and two of its searches may look alike.
        config.loops.clear();
    }
    Ok(config)
}

fn read(file: &Path) -> Result<Chosen, Failure> {
    let failed = |what: String| Failure::usage(format!("the configuration `{}` {what}", file.display()));
    let size = fs::metadata(file).map_err(|cause| failed(format!("cannot be read: {cause}")))?;
    if size.len() > MOST_CONFIG {
        return Err(failed("is longer than 1 MiB".to_owned()));
    }
    let text = fs::read_to_string(file).map_err(|cause| failed(format!("cannot be read: {cause}")))?;
    let chosen: Chosen =
        toml::from_str(&text).map_err(|cause| failed(format!("is no TOML: {}", cause.message())))?;
    match ReactConfig::read(Value::Object(chosen.clone())) {
        Ok(_) => Ok(chosen),
        Err(error) => Err(failed(format!("does not fit: {error}"))),
    }
}

/// Lists the presets, or writes one down.
pub(crate) fn presets(args: &PresetsArgs) -> Result<Exit, Failure> {
    let Some(name) = &args.name else {
        if args.json {
            return show::print(&show::lines(PRESETS.iter().map(|preset| {
                serde_json::json!({ "preset": preset.name, "about": preset.about, "config": (preset.config)() })
            })));
        }
        let mut table = show::new_table(&["PRESET", "WHAT IT IS"]);
        for preset in PRESETS {
            table.add_row([preset.name, preset.about]);
        }
        return show::print(&format!("{}\n", table.trim_fmt()));
    };
    let unknown = || ConfigError::UnknownPreset { name: name.clone() };
    let config = ReactConfig::preset(name).ok_or_else(|| Failure::usage(unknown().to_string()))?;
    if args.json {
        return show::print(&show::lines([serde_json::json!({ "preset": name, "config": config })]));
    }
    let toml = toml::to_string(&config).map_err(|error| Failure::caused(Exit::Failed, &error))?;
    show::print(&format!("preset = \"{name}\"\n{toml}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_that_is_written_down_is_read_as_it_was() {
        for preset in PRESETS {
            let config = (preset.config)();
            let text = format!("preset = \"{}\"\n{}", preset.name, toml::to_string(&config).unwrap());
            let given: Chosen = toml::from_str(&text).unwrap();
            assert_eq!(ReactConfig::read(Value::Object(given)).unwrap(), config, "{text}");
        }
    }

    #[test]
    fn what_is_chosen_is_kept_and_the_rest_is_the_programs() {
        let given: Chosen = toml::from_str("preset = \"harness\"\ntool_timeout_ms = 5").unwrap();
        let choice = |base_url: &str| Choice {
            model: std::sync::Arc::new(crate::offline::Offline),
            name: "m".to_owned(),
            base_url: Some(base_url.to_owned()),
            note: None,
            name_url_again: false,
        };
        let harness = config(&given, &choice("http://127.0.0.1:1/v1")).unwrap();
        assert_eq!((harness.limit.max, harness.tool_timeout), (40, Some(Duration::from_millis(5))));
        assert!(harness.text_calls && harness.system_prompt.starts_with("You answer questions"));
        let given: Chosen = toml::from_str("system_prompt = \"\"").unwrap();
        let far = config(&given, &choice("https://api.example/v1")).unwrap();
        assert_eq!((far.system_prompt.as_str(), far.text_calls), ("", false));
        let off: Chosen = toml::from_str("text_calls = false").unwrap();
        assert!(!config(&off, &choice("http://localhost:1/v1")).unwrap().text_calls);
    }
}
