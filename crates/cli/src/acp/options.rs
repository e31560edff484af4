//! The modes and options of a session.

use superstep::agent::presets::PRESETS;
use superstep_acp::wire::{ConfigOption, ConfigValue, Mode as WireMode, ModeState, RpcError, SessionState};
use superstep_session::live::{Change, Mode, Session};

/// Returns the state of a session for its client.
pub(super) fn state(session: &Session, models: &[String]) -> SessionState {
    let modes = Mode::ALL.map(|mode| WireMode {
        id: mode.name().to_owned(),
        name: title(mode).to_owned(),
        description: Some(mode.description().to_owned()),
    });
    let current_mode_id = session.settings().mode.name().to_owned();
    SessionState {
        modes: Some(ModeState { current_mode_id, available_modes: modes.into() }),
        config_options: options(session, models),
    }
}

/// Returns all options of a session, in their order.
pub(super) fn options(session: &Session, models: &[String]) -> Vec<ConfigOption> {
    let settings = session.settings();
    let value = |value: &str, name: &str, description: Option<&str>| ConfigValue {
        value: value.to_owned(),
        name: name.to_owned(),
        description: description.map(str::to_owned),
    };
    let modes = Mode::ALL.map(|mode| value(mode.name(), title(mode), Some(mode.description())));
    let mut options = vec![ConfigOption {
        id: "mode".to_owned(),
        name: "Mode".to_owned(),
        category: Some("mode"),
        current_value: settings.mode.name().to_owned(),
        options: modes.into(),
    }];
    if !settings.is_configurable {
        return options;
    }
    let model = settings.model.as_deref().or(models.first().map(String::as_str));
    if let Some(model) = model {
        let mut known: Vec<_> = models.iter().map(|model| value(model, model, None)).collect();
        if !models.iter().any(|known| known == model) {
            known.insert(0, value(model, model, None));
        }
        options.push(ConfigOption {
            id: "model".to_owned(),
            name: "Model".to_owned(),
            category: Some("model"),
            current_value: model.to_owned(),
            options: known,
        });
    }
    let mut presets: Vec<_> =
        PRESETS.iter().map(|preset| value(preset.name, preset.name, Some(preset.about))).collect();
    presets.insert(0, value(DEFAULT, "As configured", None));
    options.push(ConfigOption {
        id: "preset".to_owned(),
        name: "Preset".to_owned(),
        category: None,
        current_value: settings.preset.unwrap_or_else(|| DEFAULT.to_owned()),
        options: presets,
    });
    options
}

/// The value of the option `preset` that names none.
const DEFAULT: &str = "default";

/// Returns the change of an option.
pub(super) fn change(id: &str, value: &str) -> Result<Change, RpcError> {
    match id {
        "mode" => value.parse().map(Change::Mode).map_err(RpcError::invalid_params),
        "model" if value.is_empty() => Err(RpcError::invalid_params("the model has no name")),
        "model" => Ok(Change::Model(value.to_owned())),
        "preset" if value == DEFAULT => Ok(Change::Preset(None)),
        "preset" if PRESETS.iter().any(|preset| preset.name == value) => {
            Ok(Change::Preset(Some(value.to_owned())))
        }
        "preset" => Err(RpcError::invalid_params(format!("`{value}` is no preset"))),
        _ => {
            Err(RpcError::invalid_params(format!("`{id}` is none of the options `mode`, `model`, `preset`")))
        }
    }
}

fn title(mode: Mode) -> &'static str {
    match mode {
        Mode::Ask => "Ask",
        Mode::AcceptEdits => "Accept edits",
        Mode::ReadOnly => "Read only",
        Mode::Auto => "Auto",
    }
}
