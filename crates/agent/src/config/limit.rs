//! How long a turn may go on.

use serde::{Deserialize, Serialize};

/// The step limit of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// How many there may be.
    pub max: u32,
    /// What is counted.
    pub unit: LimitUnit,
    /// What happens when there are no more.
    pub at: AtLimit,
}

/// What a [`Limit`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitUnit {
    /// Rounds of tool calls.
    ToolRounds,
    /// Model answers that were accepted.
    ModelCalls,
}

/// How a turn ends at its limit.
///
/// If its reply is to have a schema, the model is asked once more, without tools, in the place of
/// [`LastMessage`](Self::LastMessage) and [`Fixed`](Self::Fixed), and the last call of [`Reminder`](Self::Reminder) has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum AtLimit {
    /// At once, with the last message as the reply; after a round of tools that is a tool's result.
    LastMessage,
    /// The last model call that is allowed is told that it is the last. Tools that it calls all the same are not run.
    Reminder(String),
    /// At once, with this reply.
    Fixed(String),
    /// The model is asked once more, without tools.
    NoToolsCall {
        /// What it is told then, as if the user said it. Part of the request, not of the conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    /// The same, and the turn is complete if there is an answer: there was never to be more than that.
    Reply,
    /// The run fails.
    Fail,
}

impl Limit {
    /// How many are left.
    pub(crate) fn left(&self, tool_rounds: u32, model_calls: u32) -> u32 {
        let used = match self.unit {
            LimitUnit::ToolRounds => tool_rounds,
            LimitUnit::ModelCalls => model_calls,
        };
        self.max.saturating_sub(used)
    }
}
