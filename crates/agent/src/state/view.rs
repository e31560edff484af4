//! The part of the conversation that is sent.
//!
//! Start at [`ContextView`].

use serde::{Deserialize, Serialize};

/// The part of the conversation that is sent, and the state of its reduction.
///
/// Messages are referenced by id, so that the view stays valid if messages are removed; references to missing
/// messages are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextView {
    /// The first message that is sent; empty for the first of all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub start: String,
    /// The summary of the messages before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The texts that stay of the messages before it, word for word: pins, results and messages of the user, as one message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried: Option<String>,
    /// A user message before [`start`](Self::start) that is still sent, because it was the newest when the
    /// view was created; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kept: String,
    /// The newest tool result that is truncated to its beginning and end; so are all results before it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub shortened: String,
    /// The newest tool result that is reduced to its first line; so are all results before it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pruned: String,
    /// The newest message whose images and audio are no longer sent; so are those of all messages before it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub without_media: String,
    /// The newest message when an agent took over that does not read tool calls and results up to it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub without_rounds: String,
    /// The request must be reduced before the model is called.
    #[serde(skip_serializing_if = "is_false")]
    pub due: bool,
    /// The newest message when all reductions had been applied: nothing else is tried before there is another
    /// message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub settled: String,
    /// Number of consecutive summaries that failed or gained too little.
    #[serde(skip_serializing_if = "is_zero")]
    pub ineffective: u32,
    /// Summaries are disabled for this turn.
    #[serde(skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Number of consecutive requests that the provider rejected as too long.
    #[serde(skip_serializing_if = "is_zero")]
    pub overflows: u32,
    /// Number of tokens by which the last request exceeded its limit, because it could not be reduced.
    #[serde(skip_serializing_if = "is_zero")]
    pub over: u64,
    /// Number of tokens of a request that the provider rejected as too long in this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
    /// Number of tokens of the last request whose answer filled the model's window. Later requests are smaller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<u64>,
    /// The newest message when the provider refused the reasoning of earlier answers: that of messages up to it is never sent again.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bare_until: String,
    /// The provider's error about the rejected request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub refusal: String,
}

/// The size of a request, so that only later messages need to be counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestSize {
    /// The newest message that it contained; empty if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The tokens of the request, including the system prompt and the tools: as reported by the provider, otherwise as
    /// counted.
    #[serde(skip_serializing_if = "is_zero")]
    pub tokens: u64,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero<N: Default + PartialEq>(n: &N) -> bool {
    *n == N::default()
}

/// Another view, and what it gains.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) view: ContextView,
    /// Tokens of the request before and after.
    pub(crate) before: u64,
    pub(crate) after: u64,
    /// The number of messages that are no longer sent, or sent in a changed form.
    pub(crate) dropped: usize,
    /// The number of pins for which there is no room.
    pub(crate) pins_left_out: u64,
}
