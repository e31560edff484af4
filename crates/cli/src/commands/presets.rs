//! `superstep presets`: the designs that the agent can follow.

use superstep::agent::{ReactConfig, config::ConfigError, presets::PRESETS};
use superstep_session::{
    config::configuration::OPENCODE,
    error::{ErrorKind, SessionError},
};

use crate::{
    args::command_line::PresetsArgs,
    output::{
        exit::Exit,
        table::{formatted, lines, new_table, print},
    },
};

pub(crate) fn presets(args: &PresetsArgs) -> Result<Exit, SessionError> {
    let Some(name) = &args.name else {
        if args.json {
            return print(&lines(PRESETS.iter().map(|preset| {
                serde_json::json!({ "preset": preset.name, "about": preset.about, "config": (preset.config)() })
            })));
        }
        let mut table = new_table(&["PRESET", "WHAT IT IS"]);
        for preset in PRESETS {
            table.add_row([preset.name, preset.about]);
        }
        return print(&formatted(table));
    };
    let unknown = || ConfigError::unknown_preset(name);
    let config = ReactConfig::preset(name).ok_or_else(|| SessionError::usage(unknown().to_string()))?;
    if args.json {
        return print(&lines([serde_json::json!({ "preset": name, "config": config })]));
    }
    written(name, &config)
        .map(|text| print(&text))
        .map_err(|error| SessionError::caused(ErrorKind::Failed, &error))?
}

/// Formats a preset as a file that is equivalent to its flag.
fn written(name: &str, config: &ReactConfig) -> Result<String, toml::ser::Error> {
    let toml = toml::to_string(config)?;
    // Without a prompt the program uses its own; an empty one would disable it.
    let toml = toml.strip_prefix("system_prompt = \"\"\n").unwrap_or(&toml);
    let mode = if name == OPENCODE { "mode = \"single\"\n" } else { "" };
    Ok(format!("preset = \"{name}\"\n{mode}{toml}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use superstep_session::config::{configuration::Configuration, file::parse};

    #[test]
    fn a_preset_that_is_written_down_is_read_as_it_was() {
        for preset in PRESETS {
            let text = written(preset.name, &(preset.config)()).unwrap();
            let file = parse(&text).unwrap();
            let preset = Some(preset.name.to_owned());
            let flags = Configuration { preset, ..Configuration::default() };
            let flag = flags.clone().with(&flags);
            assert_eq!(file.react(false).unwrap(), flag.react(false).unwrap(), "{text}");
            assert_eq!(file.mode, flag.mode, "{text}");
        }
    }
}
