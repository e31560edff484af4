//! Handling of invalid or incomplete responses.

use serde::{Deserialize, Serialize};

/// The outcome of a turn whose model requests keep failing after all retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    /// The reply explains the failure, and the turn can be resumed.
    Explain,
    /// The error's message is the reply.
    AsContent,
    /// The facades return the error.
    Fail,
}

/// The handling of a response that the output limit truncated and that calls no tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LengthPolicy {
    /// Accept it unchanged.
    Accept,
    /// Request the continuation and join the parts to one message. An empty part ends this, and a repeated one, which is
    /// discarded with its reasoning.
    Continue {
        /// Maximum number of continuations in a turn.
        max: u32,
        /// The user message that requests the continuation. Part of the request, not of the conversation.
        prompt: String,
    },
}

/// The handling of a response without text and calls; white space and reasoning do not count as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EmptyPolicy {
    /// Accept it unchanged.
    Accept,
    /// Call the model again.
    Retry {
        /// Maximum number of consecutive retries.
        max: u32,
        /// An additional user message. Part of the request, not of the conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nudge: Option<String>,
        /// The action after the last retry.
        then: AfterEmpty,
    },
}

/// The action when a model keeps returning empty responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterEmpty {
    /// End the turn with an explanation.
    Stop,
    /// Call the model once more, without tools.
    NoToolsCall,
}
