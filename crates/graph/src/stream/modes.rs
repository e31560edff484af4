//! The selection of streamed events.

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

/// The settings of a stream. If only the modes matter, a list of them is enough.
///
/// ```
/// # use superstep_graph::{StreamMode, Streaming};
/// let all = Streaming::from(&[StreamMode::Updates, StreamMode::Custom]);
/// let answers = Streaming { output_keys: Some(vec!["answer".into()]), ..all };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streaming {
    /// The kinds of events.
    pub modes: Vec<StreamMode>,
    /// `true` to stream the events of subgraphs as well.
    pub subgraphs: bool,
    /// The channels in updates and values, by name; `None` for all. A task that wrote none of them has an
    /// empty update.
    pub output_keys: Option<Vec<String>>,
    /// The maximum number of events that wait for the consumer; 0 counts as 1.
    pub buffer: usize,
}

impl Default for Streaming {
    /// Returns no mode, no subgraphs, all channels, 4,096 events.
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
