//! Reading of partial configurations.
//!
//! Start at [`ReactConfig::read`].

use serde_json::{Map, Value};

use super::named::PRESETS;
use crate::{ReactConfig, config::ConfigError};

impl ReactConfig {
    /// Reads a partial configuration. Missing fields are those of the preset that the entry `preset` names,
    /// or of `default`. `limit`, `retry`, `approval`, `truncate`, `media`, `context`, `budget`, `finish` and
    /// `retrieve` may be partial as well. `false` disables an optional field.
    ///
    /// ```
    /// # use superstep_agent::ReactConfig;
    /// let given = serde_json::json!({ "preset": "harness", "limit": { "max": 5 }, "truncate": false });
    /// let config = ReactConfig::read(given)?;
    /// assert_eq!((config.limit.max, config.truncate), (5, None));
    /// # Ok::<(), superstep_agent::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`] if there is no such preset or field, or a value is not valid.
    pub fn read(given: Value) -> Result<Self, ConfigError> {
        let Value::Object(mut given) = given else { return Err(ConfigError::NoTable) };
        let base = match given.remove("preset") {
            None => Self::default(),
            Some(Value::String(name)) => {
                Self::preset(&name).ok_or_else(|| ConfigError::unknown_preset(name))?
            }
            Some(other) => return Err(ConfigError::unknown_preset(other.to_string())),
        };
        over(&base, given.clone())
            .map_err(|problem| ConfigError::Field { place: misfit(&base, given), problem })
    }
}

/// Overlays the given fields on the base configuration.
fn over(base: &ReactConfig, given: Map<String, Value>) -> Result<ReactConfig, serde_json::Error> {
    let mut config = serde_json::to_value(base)?;
    let fields = config.as_object_mut().expect("a struct becomes an object");
    for (name, value) in given {
        let is_table = TABLES.contains(&name.as_str());
        let field = fields.entry(name).or_insert(Value::Null);
        match (field, value) {
            (Value::Object(field), Value::Object(value)) if is_table => {
                for (name, value) in value {
                    set(field.entry(name).or_insert(Value::Null), value);
                }
            }
            (field, value) => set(field, value),
        }
    }
    serde_json::from_value(config)
}

/// Returns the path of the field that is not valid, in backticks with a colon; empty if the name itself is
/// wrong, because the error names it. serde reports no paths, so each part is parsed separately.
fn misfit(base: &ReactConfig, given: Map<String, Value>) -> String {
    let fits = |name: &str, value: Value| over(base, Map::from_iter([(name.to_owned(), value)])).is_ok();
    let Some((name, value)) = given.into_iter().find(|(name, value)| !fits(name, value.clone())) else {
        return String::new();
    };
    let known = serde_json::to_value(base).unwrap_or_default();
    match (value, known.get(&name)) {
        (_, None) => String::new(),
        (Value::Object(parts), Some(Value::Object(known))) if TABLES.contains(&name.as_str()) => {
            let wrong = parts.into_iter().find(|(part, value)| {
                !fits(&name, Value::Object(Map::from_iter([(part.clone(), value.clone())])))
            });
            match wrong.filter(|(part, _)| known.contains_key(part)) {
                Some((part, _)) => format!("`{name}.{part}`: "),
                None => format!("`{name}`: "),
            }
        }
        (Value::Array(entries), _) => {
            let wrong = entries.into_iter().position(|entry| !fits(&name, Value::Array(vec![entry])));
            wrong.map_or(format!("`{name}`: "), |at| format!("`{name}`, entry {}: ", at + 1))
        }
        _ => format!("`{name}`: "),
    }
}

/// Sets a field. `false` stands for no value in an optional field, because TOML has no null.
fn set(field: &mut Value, value: Value) {
    *field = match value {
        Value::Bool(false) if !field.is_boolean() => Value::Null,
        value => value,
    };
}

/// The fields that are tables and merge field by field. All others are replaced as a whole.
const TABLES: [&str; 9] =
    ["limit", "retry", "approval", "truncate", "media", "context", "budget", "finish", "retrieve"];

impl ConfigError {
    /// Returns the error for an unknown preset, with the names of all presets.
    pub fn unknown_preset(name: impl Into<String>) -> Self {
        Self::UnknownPreset { name: name.into(), known: PRESETS.iter().map(|preset| preset.name).collect() }
    }
}
