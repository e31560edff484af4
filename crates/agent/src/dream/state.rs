//! What a dream remembers from superstep to superstep.

use superstep_graph::{NodeName, State};

use super::Due;
use crate::{AgentState, HistoryPlace};

/// The state of the dream graph: that of the agent inside, and which turns the dream is about.
#[derive(State, Clone, Debug, Default, PartialEq)]
pub struct DreamState {
    /// The agent's channels. Each dream is a conversation of its own.
    #[channel(flatten)]
    pub agent: AgentState,
    /// Whether a dream is wanted although none is due; given with the input.
    pub asked: bool,
    /// Why there is one; `None` if there is none.
    pub due: Option<Due>,
    /// The ids of the turns that it is about, oldest first.
    pub entries: Vec<String>,
    /// How far the history was read before it.
    pub from: HistoryPlace,
    /// How far it will have been read after it.
    pub to: HistoryPlace,
    /// Whether it was read so far: the dream was completed.
    pub settled: bool,
}

impl DreamState {
    /// Whether a dream that stopped before these nodes knows what it is about. One that does not begins anew.
    pub(super) fn has_begun(&self, next: &[NodeName]) -> bool {
        !next.iter().any(|node| node.as_str() == "gather")
    }
}
