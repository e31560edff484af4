//! The parts of answers that a server wants back as they were.
//!
//! Start at [`Origin`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The parts of an answer that its server wants back as they were, such as signed reasoning, and the place where they are valid.
///
/// They go back with the message to the same server and model, unless the message has been changed. Anywhere else the message is
/// sent without them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The protocol: `chat`, `responses`, `anthropic` or `gemini`.
    pub wire: String,
    /// The server, as `scheme://host:port`.
    pub server: String,
    /// The model, as requested.
    pub model: String,
    /// A hash of everything before the answer, for protocols that sign it with the reasoning; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// A hash of the text, the reasoning and the calls of the message: an edited message is not that of the server.
    pub shows: String,
    /// The parts, in the order of the answer.
    pub items: Vec<OriginItem>,
}

/// A part of an answer. JSON is stored as text, byte for byte; text and arguments are those of the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OriginItem {
    /// A part that only the server reads, such as signed or encrypted reasoning: its JSON.
    Opaque(String),
    /// The next piece of the text, of this length.
    Text {
        /// The number of its bytes.
        bytes: usize,
        /// The other fields of the piece, as a JSON object.
        rest: String,
    },
    /// The next call.
    Call {
        /// The other fields of the call, as a JSON object; in the protocols `chat` and `gemini` those within its
        /// `function` or `functionCall` are in an object of this name.
        rest: String,
    },
    /// The answer is a refusal, which is not sent to the server again.
    Refused,
}

impl OriginItem {
    /// Returns the number of stored bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Opaque(text) | Self::Text { rest: text, .. } | Self::Call { rest: text } => text.len(),
            Self::Refused => 0,
        }
    }
}

impl Origin {
    /// The maximum number of bytes of an answer's fields. More are not stored, and the answer goes back without any.
    pub const MAX_BYTES: usize = 1024 * 1024;

    /// Returns the fields of the message, and of each call.
    pub(crate) fn fields(&self) -> (Fields, Vec<Fields>) {
        let (mut text, mut calls) = (Fields::new(), Vec::new());
        for item in &self.items {
            match item {
                OriginItem::Text { rest, .. } => text = object(rest),
                OriginItem::Call { rest } => calls.push(object(rest)),
                OriginItem::Opaque(_) | OriginItem::Refused => {}
            }
        }
        (text, calls)
    }
}

/// Unknown fields by name.
pub(crate) type Fields = Map<String, Value>;

/// Parses an object of fields.
pub(crate) fn object(json: &str) -> Fields {
    serde_json::from_str(json).unwrap_or_default()
}
