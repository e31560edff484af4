//! The selection of streamed events.

use std::fmt;

/// The kinds of events to stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamMode {
    /// The state after each superstep.
    Values,
    /// The update of each task.
    Updates,
    /// The custom events of nodes.
    Custom,
    /// The start and end of tasks.
    Tasks,
    /// The stored checkpoints.
    Checkpoints,
    /// Messages as their nodes write them, such as the tokens of a model.
    Messages,
    /// Checkpoints and tasks with all details, as JSON.
    Debug,
}

impl StreamMode {
    /// Returns the name of the mode, in lowercase.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Updates => "updates",
            Self::Custom => "custom",
            Self::Tasks => "tasks",
            Self::Checkpoints => "checkpoints",
            Self::Messages => "messages",
            Self::Debug => "debug",
        }
    }
}

impl fmt::Display for StreamMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The settings of a stream. If only the modes matter, a list of them is enough.
///
/// By default a stream has all channels, no events of subgraphs, and up to 4,096 waiting events.
///
/// ```
/// # use superstep_graph::{StreamMode, Streaming};
/// let answers = Streaming::from([StreamMode::Updates, StreamMode::Custom]).output_keys(["answer"]).subgraphs();
/// # let _ = answers;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streaming {
    pub(crate) modes: Vec<StreamMode>,
    pub(crate) subgraphs: bool,
    pub(crate) output_keys: Option<Vec<String>>,
    pub(crate) buffer: usize,
}

impl Streaming {
    /// Streams the events of subgraphs as well.
    #[must_use]
    pub fn subgraphs(self) -> Self {
        Self { subgraphs: true, ..self }
    }

    /// Limits updates and values to these channels. A task that wrote none of them has an empty update.
    #[must_use]
    pub fn output_keys<K: Into<String>>(self, channels: impl IntoIterator<Item = K>) -> Self {
        Self { output_keys: Some(channels.into_iter().map(Into::into).collect()), ..self }
    }

    /// Sets the maximum number of events that wait for the consumer; 0 counts as 1.
    #[must_use]
    pub fn buffer(self, events: usize) -> Self {
        Self { buffer: events, ..self }
    }
}

impl Default for Streaming {
    /// Returns the settings without a mode: such a stream has only events of every mode.
    fn default() -> Self {
        Self { modes: Vec::new(), subgraphs: false, output_keys: None, buffer: 4_096 }
    }
}

impl From<Vec<StreamMode>> for Streaming {
    fn from(modes: Vec<StreamMode>) -> Self {
        Self { modes, ..Self::default() }
    }
}

impl From<&[StreamMode]> for Streaming {
    fn from(modes: &[StreamMode]) -> Self {
        modes.to_vec().into()
    }
}

impl<const N: usize> From<&[StreamMode; N]> for Streaming {
    fn from(modes: &[StreamMode; N]) -> Self {
        modes.to_vec().into()
    }
}

impl<const N: usize> From<[StreamMode; N]> for Streaming {
    fn from(modes: [StreamMode; N]) -> Self {
        modes.to_vec().into()
    }
}

impl From<StreamMode> for Streaming {
    fn from(mode: StreamMode) -> Self {
        vec![mode].into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_shown_by_its_name_in_lowercase() {
        use StreamMode::*;
        for mode in [Values, Updates, Custom, Tasks, Checkpoints, Messages, Debug] {
            assert_eq!(mode.to_string(), format!("{mode:?}").to_lowercase());
        }
    }
}
