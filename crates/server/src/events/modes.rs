//! The stream modes of the API.
//!
//! Start at [`Modes`].

use serde_json::Value;
use superstep_graph::StreamMode;

use crate::error::ApiError;

/// A stream mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Values,
    Updates,
    Custom,
    /// Messages so far, whole each time.
    Messages,
    /// Pieces of messages.
    MessagesTuple,
    Tasks,
    Checkpoints,
    Debug,
}

const NAMES: [(&str, Mode); 8] = [
    ("values", Mode::Values),
    ("updates", Mode::Updates),
    ("custom", Mode::Custom),
    ("messages", Mode::Messages),
    ("messages-tuple", Mode::MessagesTuple),
    ("tasks", Mode::Tasks),
    ("checkpoints", Mode::Checkpoints),
    ("debug", Mode::Debug),
];

/// The modes of a stream, each once; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Modes(Vec<Mode>);

impl Default for Modes {
    fn default() -> Self {
        Self(vec![Mode::Values])
    }
}

impl Modes {
    /// Reads one mode, a list of them, or null for the default.
    ///
    /// # Errors
    /// 422 for an unknown mode, and for `events`.
    pub(crate) fn read(json: &Value) -> Result<Self, ApiError> {
        let wrong = || ApiError::invalid("stream_mode: expected a mode or a list of modes");
        let names: Vec<&str> = match json {
            Value::Null => Vec::new(),
            Value::String(name) => vec![name],
            Value::Array(names) => {
                names.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(wrong)?
            }
            _ => return Err(wrong()),
        };
        Self::of_names(names)
    }

    /// Reads the names of modes; none are the default.
    ///
    /// # Errors
    /// As of [`read`](Self::read).
    pub(crate) fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, ApiError> {
        let mut modes = Vec::new();
        for name in names {
            let known = NAMES.iter().find(|(known, _)| *known == name);
            let (_, mode) = known.ok_or_else(|| unknown(name))?;
            if !modes.contains(mode) {
                modes.push(*mode);
            }
        }
        Ok(if modes.is_empty() { Self::default() } else { Self(modes) })
    }

    /// Returns all modes.
    pub(crate) fn all() -> Self {
        Self(NAMES.iter().map(|(_, mode)| *mode).collect())
    }

    pub(crate) fn has(&self, mode: Mode) -> bool {
        self.0.contains(&mode)
    }

    /// Returns the names, as runs show them.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        NAMES.iter().filter(|(_, mode)| self.has(*mode)).map(|(name, _)| *name).collect()
    }

    /// Returns the modes of the graph's own stream from which these are made.
    pub(crate) fn of_graph(&self) -> Vec<StreamMode> {
        let mut modes = Vec::new();
        for (mode, needs) in [
            (StreamMode::Values, &[Mode::Values] as &[Mode]),
            (StreamMode::Updates, &[Mode::Updates]),
            (StreamMode::Custom, &[Mode::Custom]),
            (StreamMode::Messages, &[Mode::Messages, Mode::MessagesTuple]),
            (StreamMode::Debug, &[Mode::Tasks, Mode::Checkpoints, Mode::Debug]),
        ] {
            if needs.iter().any(|mode| self.has(*mode)) {
                modes.push(mode);
            }
        }
        modes
    }
}

fn unknown(name: &str) -> ApiError {
    if name == "events" {
        return ApiError::invalid(
            "stream_mode: `events` is not supported yet; use `updates` and `messages-tuple`",
        );
    }
    let known = NAMES.map(|(name, _)| format!("`{name}`")).join(", ");
    ApiError::invalid(format!("stream_mode: unknown mode `{name}`; use {known}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn modes_come_alone_in_a_list_or_not_at_all() {
        assert_eq!(Modes::read(&Value::Null), Ok(Modes::default()));
        assert_eq!(Modes::read(&json!([])), Ok(Modes::default()));
        assert_eq!(Modes::read(&json!("updates")), Ok(Modes(vec![Mode::Updates])));
        let twice = Modes::read(&json!(["messages-tuple", "values", "values"])).unwrap();
        assert_eq!(twice.names(), ["values", "messages-tuple"]);
        for wrong in [json!("events"), json!(["value"]), json!(3), json!([3])] {
            assert_eq!(Modes::read(&wrong).unwrap_err().status, 422, "{wrong}");
        }
    }
}
