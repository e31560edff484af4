//! The work of guards, as the state stores it.
//!
//! Start at [`Guarding`].

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_llm::Message;

use crate::plain_name::hash_of;

/// The texts that a guard checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardAt {
    /// The messages of the user in a turn.
    Input,
    /// The answer of the model.
    Output,
    /// The arguments of each tool call.
    Tool,
}

/// The decision of a guard on a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Accepts the text.
    Pass,
    /// Ends the turn, or denies the tool call.
    Block {
        /// The text for the user, for the model if a tool call is denied; a default if empty.
        reply: String,
    },
    /// Replaces the text. Arguments of a tool call cannot be replaced: the call is denied.
    Rewrite(String),
}

/// A stored verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardVerdict {
    /// The name of the guard.
    pub guard: String,
    /// The id of the checked message.
    pub message: String,
    /// The hash of the checked text.
    pub text: String,
    /// The decision.
    pub verdict: Verdict,
    /// The error of a guard that failed, which blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The progress of the guards in a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Guarding {
    /// The id of the message after which the guards of the input check all messages of the user; empty for the start of the
    /// conversation. `None` in a thread without guards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The response of the model that waits for verdicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft: Option<Draft>,
}

/// A response of the model that is not a part of the conversation yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    /// The response, and the message that requests another one, if it is not valid.
    pub messages: Vec<Message>,
    /// The text that the guards of the output check; `None` if the response is not an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The response was truncated.
    pub(crate) cut_off: bool,
    /// The model was offered tools.
    pub(crate) had_tools: bool,
    /// The text was streamed already.
    pub(crate) streamed: bool,
    /// Number of streamed tool calls.
    pub(crate) calls: usize,
    /// The update of the other channels.
    pub(crate) rest: Value,
}

impl GuardVerdict {
    /// Creates the verdict of a guard on a text of a message.
    pub(crate) fn new(guard: &str, message: &str, text: &str, verdict: Verdict) -> Self {
        let [guard, message] = [guard, message].map(str::to_owned);
        Self { guard, message, text: hash_of(text), verdict, failure: None }
    }
}

impl Draft {
    /// Returns the id of the response.
    pub(crate) fn id(&self) -> &str {
        self.messages.first().map_or("", |message| &message.id)
    }
}
