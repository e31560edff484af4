//! A setting that cannot be used, and where it is.

use std::fmt;

use superstep::agent::config::ConfigError;

/// A setting that cannot be used.
#[derive(Debug)]
pub struct InvalidSetting {
    /// The path of the setting, with dots.
    pub at: String,
    /// The problem, with the path if the reader needs it.
    pub problem: String,
}

impl InvalidSetting {
    pub fn at(path: &str, problem: impl fmt::Display) -> Self {
        Self { at: path.to_owned(), problem: format!("`{path}`: {problem}") }
    }
}

impl From<ConfigError> for InvalidSetting {
    fn from(error: ConfigError) -> Self {
        let problem = error.to_string();
        let at = match &error {
            ConfigError::UnknownPreset { .. } => "preset",
            // Such a text begins with the path.
            _ => problem.strip_prefix('`').and_then(|text| text.split('`').next()).unwrap_or_default(),
        };
        Self { at: at.to_owned(), problem }
    }
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}
