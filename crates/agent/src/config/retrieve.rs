//! What is looked up for the user before the model is asked.

use serde::{Deserialize, Serialize};

/// What the node `retrieve` finds for a new message of the user. It is there if there is something to look into: the memory of the
/// agent, or knowledge; see [`AgentBuilder::memory`](crate::AgentBuilder::memory) and
/// [`AgentBuilder::knowledge`](crate::AgentBuilder::knowledge).
///
/// All of them are searched at the same time, for as long as [`ReactConfig::memory_timeout`](crate::ReactConfig::memory_timeout)
/// allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retrieve {
    /// How many entries of the memory; 0 to leave it alone.
    pub memories: usize,
    /// How many passages of each knowledge.
    pub passages: usize,
    /// How many characters the model reads of all that was found. What comes later is cut, or left out.
    pub max_chars: usize,
}

impl Default for Retrieve {
    /// Five entries and five passages, in 8,000 characters.
    fn default() -> Self {
        Self { memories: 5, passages: 5, max_chars: 8_000 }
    }
}
