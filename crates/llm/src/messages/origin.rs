//! The fields that a server adds to its answers and needs back.
//!
//! Start at [`Origin`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The fields that a server added to an answer, such as the signatures of its reasoning, and the place where they are valid.
///
/// They go back with the message to the same server and model, unless the message has been changed. Anywhere else the message is
/// sent without them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The protocol, such as `chat`.
    pub wire: String,
    /// The server, as `scheme://host:port`.
    pub server: String,
    /// The model, as requested.
    pub model: String,
    /// A hash of the text, the reasoning and the calls of the message: an edited message is not that of the server.
    pub shows: String,
    /// The fields: of the text, and of each call.
    pub items: Vec<OriginItem>,
}

/// The fields of a part of an answer, as a JSON object each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OriginItem {
    /// The text, of this length.
    Text {
        /// The number of its bytes.
        bytes: usize,
        /// The fields of the message.
        rest: String,
    },
    /// The next call.
    Call {
        /// The fields of the call; those within its `function` are in an object of this name.
        rest: String,
    },
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
