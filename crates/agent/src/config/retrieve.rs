//! Retrieval of entries and passages before the model call.

use serde::{Deserialize, Serialize};

/// The configuration of the node `retrieve`, which searches for each new user message. The node exists if the
/// agent has a memory or knowledge; see [`AgentBuilder::memory`](crate::AgentBuilder::memory) and
/// [`AgentBuilder::knowledge`](crate::AgentBuilder::knowledge).
///
/// All sources are searched concurrently within
/// [`ReactConfig::memory_timeout`](crate::ReactConfig::memory_timeout).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retrieve {
    /// Maximum number of memory entries; 0 disables them.
    pub memories: usize,
    /// Maximum number of passages of each knowledge.
    pub passages: usize,
    /// Maximum number of characters of all results. Later results are truncated or omitted.
    pub max_chars: usize,
}

impl Default for Retrieve {
    /// Returns five entries and five passages in 8,000 characters.
    fn default() -> Self {
        Self { memories: 5, passages: 5, max_chars: 8_000 }
    }
}
