//! What is done about answers that are none, or not whole.

use serde::{Deserialize, Serialize};

/// What becomes of a turn whose model cannot be asked, once the attempts are exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    /// The reply explains it, and the turn can be resumed.
    Explain,
    /// The error's message is the reply.
    AsContent,
    /// The facades return the error.
    Fail,
}

/// What is done about an answer that the output limit cut off, and that calls no tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LengthPolicy {
    /// It is taken as it is.
    Accept,
    /// The model is asked to go on, and the parts become one message. An empty part ends that.
    Continue {
        /// How often at the most in a turn.
        max: u32,
        /// What it is told, as if the user said it. Part of the request, not of the conversation.
        prompt: String,
    },
}

/// What is done about an answer without text and without calls; white space and reasoning are no text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EmptyPolicy {
    /// It is taken as it is.
    Accept,
    /// The model is asked again.
    Retry {
        /// How often at the most, in a row.
        max: u32,
        /// What it is told then, as if the user said it. Part of the request, not of the conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nudge: Option<String>,
        /// What follows the last one.
        then: AfterEmpty,
    },
}

/// What follows when a model keeps giving empty answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterEmpty {
    /// The turn ends, with an explanation.
    Stop,
    /// The model is asked once more, without tools.
    NoToolsCall,
}
