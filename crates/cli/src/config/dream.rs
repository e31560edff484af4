//! The section `dream` of a configuration.

use serde::Deserialize;
use serde_json::Value;
use superstep::memory::DreamConfig;

use crate::config::{
    memory::{self, Memory},
    settings::Chosen,
};

/// Its key in a configuration.
pub(crate) const KEY: &str = "dream";

/// Parses the entry of a configuration, if present; `true` means the defaults.
///
/// # Errors    The problem with it, or with the memory that it updates.
pub(crate) fn of(chosen: &Chosen) -> Result<Option<DreamConfig>, String> {
    let config = match chosen.get(KEY) {
        None | Some(Value::Bool(false)) => return Ok(None),
        Some(Value::Bool(true)) => DreamConfig::default(),
        Some(config) => DreamConfig::deserialize(config).map_err(|error| format!("`dream`: {error}"))?,
    };
    match Memory::of(chosen)? {
        Some(memory) if memory.is_files() => Ok(Some(config)),
        // It will have the defaults.
        None if !chosen.contains_key(memory::KEY) => Ok(Some(config)),
        _ => {
            Err("`dream`: it edits `MEMORY.md`, which takes a memory in files; set `memory.store = \"file\"`"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dreams_are_configured_for_a_memory_in_files() {
        let read = |toml: &str| of(&toml::from_str(toml).unwrap());
        let files = "memory = { store = \"file\" }\n";
        assert_eq!((read("").unwrap(), read("dream = false").unwrap()), (None, None));
        for usual in ["dream = true", "[dream]"] {
            assert_eq!(read(&format!("{files}{usual}")).unwrap(), Some(DreamConfig::default()));
            assert_eq!(read(usual).unwrap(), Some(DreamConfig::default()));
        }
        let given = read(&format!("{files}[dream]\nturns = 10\nafter_ms = 5")).unwrap().unwrap();
        assert_eq!((given.turns, given.after.as_millis()), (10, 5));
        for (given, wanted) in [
            ("dream = true\nmemory = false", "`dream`: it edits `MEMORY.md`"),
            ("memory = { store = \"sqlite\" }\n[dream]", "`dream`: it edits `MEMORY.md`"),
            ("[dream]\nturn = 1", "`dream`: unknown field `turn`"),
            ("dream = 3", "`dream`: invalid type: integer `3`"),
        ] {
            let error = read(given).unwrap_err();
            assert!(error.starts_with(wanted), "{given}: {error}");
        }
    }
}
