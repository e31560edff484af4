//! The step limit of a turn.

use serde::{Deserialize, Serialize};

/// The step limit of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Maximum number of steps.
    pub max: u32,
    /// The counted unit.
    pub unit: LimitUnit,
    /// The action at the limit.
    pub at: AtLimit,
}

/// The unit of a [`Limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitUnit {
    /// Rounds of tool calls.
    ToolRounds,
    /// Accepted model responses.
    ModelCalls,
}

/// The end of a turn at its limit.
///
/// If the reply has a schema, [`LastMessage`](Self::LastMessage) and [`Fixed`](Self::Fixed) are replaced by
/// one more model call without tools, and the last call of [`Reminder`](Self::Reminder) has no tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum AtLimit {
    /// End at once with the last message as the reply; after a round of tools that is a tool's result.
    LastMessage,
    /// Add this text to the last allowed model call. Tools that it calls are not run.
    Reminder(String),
    /// End at once with this reply.
    Fixed(String),
    /// Call the model once more, without tools.
    NoToolsCall {
        /// An additional user message. Part of the request, not of the conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    /// Call the model once more, without tools; a reply completes the turn, since the limit is intended.
    Reply,
    /// Fail the run.
    Fail,
}

impl Limit {
    /// Returns the number of steps left.
    pub(crate) fn left(&self, tool_rounds: u32, model_calls: u32) -> u32 {
        let used = match self.unit {
            LimitUnit::ToolRounds => tool_rounds,
            LimitUnit::ModelCalls => model_calls,
        };
        self.max.saturating_sub(used)
    }
}

/// Maximum number of times that such messages extend a turn. Later ones are read in the next turn.
pub(crate) const MAX_STEERED: u32 = 100;
