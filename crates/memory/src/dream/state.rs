//! The state of a dream.

use superstep_agent::AgentState;
use superstep_graph::{State, node::NodeName};

use super::{config::Due, events::DreamEnd};
use crate::HistoryPlace;

/// The state of the dream graph: that of the inner agent, and the covered turns.
#[derive(State, Clone, Debug, Default, PartialEq)]
pub struct DreamState {
    /// The agent's channels. Each dream is a separate conversation.
    #[channel(flatten)]
    pub agent: AgentState,
    /// An input: dream even if none is due.
    pub asked: bool,
    /// The reason for the dream; `None` if there is none.
    pub due: Option<Due>,
    /// The ids of the covered turns, oldest first.
    pub entries: Vec<String>,
    /// The position in the history before it.
    pub from: HistoryPlace,
    /// The position in the history after it.
    pub to: HistoryPlace,
    /// The dream before it read the same turns and changed nothing.
    pub again: bool,
    /// The position was advanced: the dream was completed.
    pub settled: bool,
    /// The end of the dream; `None` before it.
    pub end: Option<DreamEnd>,
}

impl DreamState {
    /// Returns whether a dream that stopped before these nodes has gathered its turns. One that has not
    /// starts over.
    pub(super) fn has_begun(&self, next: &[NodeName]) -> bool {
        !next.iter().any(|node| node.as_str() == "gather")
    }
}
