//! The fields that a server adds to its answers and needs back.
//!
//! Start at [`Origin`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[cfg(feature = "openai")]
use crate::Message;
use crate::{MessageData, convert::DerivedFrom};

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

    /// Returns whether the fields are valid for the message at this place.
    #[cfg(feature = "openai")]
    pub(crate) fn is_valid(&self, message: &Message, wire: &str, server: &str, model: &str) -> bool {
        (&*self.wire, &*self.server, &*self.model) == (wire, server, model)
            && self.shows == message.derived::<Shown>().0
    }

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

/// The fields of an answer, as they arrive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// The protocol, the server and the model.
    pub(crate) place: Option<(String, String, String)>,
    bytes: usize,
}

impl Extras {
    /// Adds a piece to the fields of the message or a call. Pieces beyond the maximum void all.
    pub(crate) fn add(&mut self, to: &mut Fields, piece: &str) {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes <= Origin::MAX_BYTES {
            merge(to, object(piece));
        }
    }

    /// Returns the origin of a message, if there are such fields.
    pub(crate) fn origin(
        self,
        message: &MessageData,
        text: &Fields,
        calls: &[&Fields],
    ) -> Option<Box<Origin>> {
        let is_empty = text.is_empty() && calls.iter().all(|call| call.is_empty());
        if is_empty || self.bytes > Origin::MAX_BYTES {
            return None;
        }
        let (wire, server, model) = self.place?;
        let json = |fields: &Fields| serde_json::to_string(fields).expect("texts have a JSON form");
        let calls = calls.iter().map(|call| OriginItem::Call { rest: json(call) });
        let text = OriginItem::Text { bytes: message.content.len(), rest: json(text) };
        let items = [text].into_iter().chain(calls).collect();
        Some(Box::new(Origin { wire, server, model, shows: Shown::derive(message).0, items }))
    }
}

fn object(json: &str) -> Fields {
    serde_json::from_str(json).unwrap_or_default()
}

/// Adds later pieces of fields: objects are merged, lists are joined, and other values are replaced.
fn merge(fields: &mut Fields, piece: Fields) {
    for (name, value) in piece {
        match (fields.get_mut(&name), value) {
            (Some(Value::Object(fields)), Value::Object(piece)) => merge(fields, piece),
            (Some(Value::Array(list)), Value::Array(piece)) => {
                piece.into_iter().for_each(|element| append(list, element));
            }
            (Some(field), value) => *field = value,
            (None, value) => drop(fields.insert(name, value)),
        }
    }
}

/// Appends an element to a streamed list. One with the index and the type of the last one continues it, as OpenRouter documents for
/// `reasoning_details`.
fn append(list: &mut Vec<Value>, element: Value) {
    let last = list.last_mut().filter(|last| {
        let is_same = |name: &str| last.get(name).is_some() && last.get(name) == element.get(name);
        is_same("index") && is_same("type")
    });
    let (Some(Value::Object(last)), Value::Object(piece)) = (last, &element) else {
        list.push(element);
        return;
    };
    for (name, value) in piece {
        match (last.get_mut(name), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more))
                if ["text", "summary", "data"].contains(&&**name) =>
            {
                text.push_str(more);
            }
            (Some(field), value) => *field = value.clone(),
            (None, value) => drop(last.insert(name.clone(), value.clone())),
        }
    }
}

/// A hash of what a message shows. The ids of calls are not part of it: some requests change them.
struct Shown(String);

impl DerivedFrom<MessageData> for Shown {
    fn derive(message: &MessageData) -> Self {
        let calls = message.tool_calls.iter().flat_map(|call| [&call.name, &call.arguments]);
        let texts = [&message.content, &message.reasoning].into_iter().chain(calls);
        Self(format!("{:016x}", fnv(texts.flat_map(|text| text.bytes().chain([0xFF])))))
    }
}

/// Returns the hash FNV-1a, which is the same in every version of a program.
pub(crate) fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(pieces: &[Value]) -> Value {
        let mut fields = Fields::new();
        for piece in pieces {
            merge(&mut fields, piece.as_object().unwrap().clone());
        }
        fields.into()
    }

    #[test]
    fn streamed_details_are_joined_by_index_and_type() {
        let text =
            |text: &str| json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": text}]});
        let signed = json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "S", "text": null}]});
        let hidden = json!({"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "D"}]});
        assert_eq!(
            merged(&[text("I "), text("think"), signed, hidden]),
            json!({"reasoning_details": [
                {"type": "reasoning.text", "index": 0, "text": "I think", "signature": "S"},
                {"type": "reasoning.encrypted", "index": 1, "data": "D"},
            ]})
        );
    }

    #[test]
    fn other_fields_are_merged_or_replaced() {
        let pieces = [
            json!({"a": {"x": 1}, "b": "old"}),
            json!({"a": {"y": 2}, "b": "new", "c": [1]}),
            json!({"c": [2]}),
        ];
        assert_eq!(merged(&pieces), json!({"a": {"x": 1, "y": 2}, "b": "new", "c": [1, 2]}));
    }
}
