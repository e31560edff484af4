//! The collection of the parts of an answer that its server wants back, and their validity for a message.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    MessageData,
    messages::origin::{Fields, Origin, OriginItem, object},
};

/// Returns the origin of a message, if it is valid at this place.
#[cfg(feature = "openai")]
pub(crate) fn valid<'a>(
    message: &'a crate::Message,
    (wire, server, model): (&str, &str, &str),
) -> Option<&'a Origin> {
    let is_here =
        |origin: &&Origin| (&*origin.wire, &*origin.server, &*origin.model) == (wire, server, model);
    let origin = message.origin.as_deref().filter(is_here)?;
    (origin.shows == message.derived::<Shown>().0).then_some(origin)
}

/// The place of an answer's parts: the protocol, the server and the model, and the hash of what precedes it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) wire: String,
    pub(crate) server: String,
    pub(crate) model: String,
    pub(crate) prefix: String,
}

/// The parts of an answer that its server wants back, as they arrive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    place: Option<Place>,
    /// The parts by their index in the answer.
    items: BTreeMap<usize, OriginItem>,
    bytes: usize,
    /// Reasoning has begun to arrive, and the part that signs it has not.
    is_thinking: bool,
}

impl Extras {
    /// Adds a piece to the fields of the message or a call. Pieces beyond the maximum void all.
    pub(crate) fn add(&mut self, to: &mut Fields, piece: &str) {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes <= Origin::MAX_BYTES {
            merge(to, object(piece));
        }
    }

    /// Begins the parts of an answer, without those before.
    pub(crate) fn begin(&mut self, place: Place) {
        *self = Self { place: Some(place), ..Self::default() };
    }

    /// Adds a part. Parts beyond the maximum void all.
    pub(crate) fn item(&mut self, index: usize, item: &OriginItem) {
        self.bytes = self.bytes.saturating_add(item.len());
        if self.bytes <= Origin::MAX_BYTES {
            self.is_thinking &= !matches!(item, OriginItem::Opaque(_));
            self.items.insert(index, item.clone());
        }
    }

    /// Drops the parts so far.
    pub(crate) fn void(&mut self) {
        (self.items, self.is_thinking) = Default::default();
    }

    /// Notes a piece of reasoning: until its part arrives, the answer has no origin if it ends.
    pub(crate) fn reasoning(&mut self) {
        self.is_thinking = true;
    }

    /// Returns the origin of a message, if there are such parts or fields.
    pub(crate) fn origin(
        self,
        message: &MessageData,
        text: &Fields,
        calls: &[&Fields],
    ) -> Option<Box<Origin>> {
        if self.bytes > Origin::MAX_BYTES {
            return None;
        }
        let Place { wire, server, model, prefix } = self.place?;
        let items: Vec<_> = self.items.into_values().collect();
        let is_refused = items.contains(&OriginItem::Refused);
        let shows = shown(message, is_refused);
        if !items.is_empty() {
            let origin = Origin { wire, server, model, prefix, shows, items };
            // Nothing of a refused answer goes back, so that its reasoning need not be whole.
            return (is_refused || !self.is_thinking).then(|| Box::new(origin));
        }
        if text.is_empty() && calls.iter().all(|call| call.is_empty()) {
            return None;
        }
        let json = |fields: &Fields| serde_json::to_string(fields).expect("texts have a JSON form");
        let calls = calls.iter().map(|call| OriginItem::Call { rest: json(call) });
        let text = OriginItem::Text { bytes: message.content.len(), rest: json(text) };
        let items = [text].into_iter().chain(calls).collect();
        Some(Box::new(Origin { wire, server, model, prefix, shows, items }))
    }
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

/// A hash of what a message shows.
#[cfg(feature = "openai")]
struct Shown(String);

#[cfg(feature = "openai")]
impl crate::derived::DerivedFrom<MessageData> for Shown {
    fn derive(message: &MessageData) -> Self {
        let items = message.origin.as_deref().map_or(&[][..], |origin| &origin.items);
        Self(shown(message, items.contains(&OriginItem::Refused)))
    }
}

/// Returns the hash of what a message shows. The ids of calls are not part of it, as some requests change them, nor are the calls of a
/// refused answer, which is stored without them.
fn shown(message: &MessageData, is_refused: bool) -> String {
    let calls = if is_refused { &[][..] } else { &message.tool_calls };
    let calls = calls.iter().flat_map(|call| [&call.name, &call.arguments]);
    let texts = [&message.content, &message.reasoning].into_iter().chain(calls);
    format!("{:016x}", fnv(texts.flat_map(|text| text.bytes().chain([0xFF]))))
}

/// Returns the hash FNV-1a, which is the same in every version of a program.
pub(crate) fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the hash FNV-1a of a text as 16 digits.
pub fn hash_of(text: &str) -> String {
    format!("{:016x}", fnv(text.bytes()))
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
