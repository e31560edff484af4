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
    /// Calls of tools.
    Tools,
    /// Starts, pieces and ends of graphs, nodes, models and tools.
    Events,
}

const NAMES: [(&str, Mode); 10] = [
    ("values", Mode::Values),
    ("updates", Mode::Updates),
    ("custom", Mode::Custom),
    ("messages", Mode::Messages),
    ("messages-tuple", Mode::MessagesTuple),
    ("tasks", Mode::Tasks),
    ("checkpoints", Mode::Checkpoints),
    ("debug", Mode::Debug),
    ("tools", Mode::Tools),
    ("events", Mode::Events),
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
    /// 422 for an unknown mode.
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

    /// Returns the modes from which the events of threads are made.
    pub(crate) fn of_threads() -> Self {
        use Mode::{Checkpoints, Custom, MessagesTuple, Tasks, Updates, Values};
        Self(vec![Values, Updates, MessagesTuple, Custom, Tasks, Checkpoints])
    }

    pub(crate) fn has(&self, mode: Mode) -> bool {
        self.0.contains(&mode)
    }

    /// Returns whether checkpoints or the ids of tasks, which contain them, are shown.
    pub(crate) fn show_checkpoints(&self) -> bool {
        use Mode::{Checkpoints, Debug, Events, Tasks};
        [Tasks, Checkpoints, Debug, Events].iter().any(|mode| self.has(*mode))
    }

    /// Returns the names in the order of the request, as runs show them.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let name = |mode: &Mode| NAMES.iter().find(|(_, known)| known == mode).map(|(name, _)| *name);
        self.0.iter().filter_map(name).collect()
    }

    /// Returns the modes of the graph's own stream from which these are made.
    pub(crate) fn of_graph(&self) -> Vec<StreamMode> {
        let mut modes = Vec::new();
        for (mode, needs) in [
            (StreamMode::Values, &[Mode::Values, Mode::Events] as &[Mode]),
            (StreamMode::Updates, &[Mode::Updates, Mode::Tools, Mode::Events]),
            (StreamMode::Custom, &[Mode::Custom]),
            (StreamMode::Messages, &[Mode::Messages, Mode::MessagesTuple, Mode::Tools, Mode::Events]),
            (StreamMode::Debug, &[Mode::Tasks, Mode::Checkpoints, Mode::Debug, Mode::Tools, Mode::Events]),
        ] {
            if needs.iter().any(|mode| self.has(*mode)) {
                modes.push(mode);
            }
        }
        modes
    }
}

fn unknown(name: &str) -> ApiError {
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
        assert_eq!(twice.names(), ["messages-tuple", "values"]);
        for wrong in [json!("event"), json!(["value"]), json!(3), json!([3])] {
            assert_eq!(Modes::read(&wrong).unwrap_err().status, 422, "{wrong}");
        }
    }
}
