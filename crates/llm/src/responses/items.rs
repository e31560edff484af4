//! The input items of messages.
//!
//! Start at [`Items`].

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::{
    Message, MessageData, Role, ToolCall,
    derived::DerivedFrom,
    media::{Accepts, Media, MediaType},
    messages::origin::{Fields, OriginItem, object},
    openai::message::{FILE_NAME, WirePolicy},
};

/// The maximum number of characters of an id.
pub(super) const MAX_ID_LENGTH: usize = 64;

/// The fields with the texts of a message's parts.
const TEXTS: [&str; 2] = ["text", "refusal"];

/// The input items of one message.
#[derive(Clone, Debug, Default)]
pub(super) struct Items {
    pub(super) json: Vec<Box<RawValue>>,
    /// The ids of the items, which are those of the server.
    pub(super) ids: Vec<String>,
}

/// The items of a message without those of its origin, under the stored ids of its calls.
struct Plain<const IMAGES: bool, const PDF: bool>(Items);

/// The items of its origin, under the stored ids of its calls; `None` if the server would refuse them.
struct Exact(Option<Items>);

impl<const IMAGES: bool, const PDF: bool> DerivedFrom<MessageData> for Plain<IMAGES, PDF> {
    fn derive(message: &MessageData) -> Self {
        let accepts = Accepts { images: IMAGES, pdf: PDF, audio: false };
        Self(plain(message, &stored_ids(message), accepts))
    }
}

impl DerivedFrom<MessageData> for Exact {
    fn derive(message: &MessageData) -> Self {
        Self(exact(message, &stored_ids(message), true))
    }
}

fn stored_ids(message: &MessageData) -> Vec<Cow<'_, str>> {
    let ids = if message.role == Role::Tool {
        vec![&message.tool_call_id]
    } else {
        message.tool_calls.iter().map(|call| &call.id).collect()
    };
    ids.into_iter().map(Cow::from).collect()
}

impl Items {
    /// Returns the items of a message, whose calls, or whose call, have these ids. Its images and files are in them if they are
    /// accepted.
    pub(super) fn plain<'a>(message: &'a Message, ids: &[Cow<'_, str>], accepts: Accepts) -> Cow<'a, Self> {
        if *ids != *stored_ids(message) {
            return Cow::Owned(plain(message, ids, accepts));
        }
        let has_media = !message.media.is_empty();
        Cow::Borrowed(match (has_media && accepts.images, has_media && accepts.pdf) {
            (false, false) => &message.derived::<Plain<false, false>>().0,
            (true, false) => &message.derived::<Plain<true, false>>().0,
            (false, true) => &message.derived::<Plain<false, true>>().0,
            (true, true) => &message.derived::<Plain<true, true>>().0,
        })
    }

    /// Returns the items of a message whose origin is valid here. `None` if the server would refuse one of them, which makes the
    /// others invalid too.
    pub(super) fn exact<'a>(
        message: &'a Message,
        ids: &[Cow<'_, str>],
        with_ids: bool,
    ) -> Option<Cow<'a, Self>> {
        if with_ids && *ids == *stored_ids(message) {
            return message.derived::<Exact>().0.as_ref().map(Cow::Borrowed);
        }
        exact(message, ids, with_ids).map(Cow::Owned)
    }

    fn push(&mut self, item: &impl Serialize) {
        self.json.push(to_raw_value(item).expect("what is sent has a JSON form"));
    }
}

fn plain(message: &MessageData, ids: &[Cow<'_, str>], accepts: Accepts) -> Items {
    let accepts = Accepts { audio: false, ..accepts };
    let mut items = Items::default();
    let text = message.content.as_str();
    match message.role {
        Role::System => items.push(&Item::Message { role: "developer", content: Content::Text(text) }),
        Role::User => {
            let content = Content::parts(text, &message.media, accepts);
            items.push(&Item::Message { role: "user", content });
        }
        Role::Assistant => {
            if !text.trim().is_empty() {
                items.push(&said(text));
            }
            for (call, id) in message.tool_calls.iter().zip(ids) {
                items.push(&called(call, id));
            }
        }
        Role::Tool => {
            let is_text = !message.media.iter().any(|media| accepts.takes(media.mime));
            let output =
                if is_text { Content::Text(text) } else { Content::parts(text, &message.media, accepts) };
            items.push(&Item::FunctionCallOutput { call_id: ids.first().map_or("", |id| id), output });
        }
    }
    items
}

fn said(text: &str) -> Item<'_> {
    Item::Message { role: "assistant", content: Content::Parts(vec![Part::OutputText { text }]) }
}

fn called<'a>(call: &'a ToolCall, call_id: &'a str) -> Item<'a> {
    let policy = WirePolicy::Wrap;
    let (name, arguments) = (policy.name(&call.name), policy.arguments(&call.arguments));
    Item::FunctionCall { call_id, name, arguments }
}

fn exact(message: &MessageData, ids: &[Cow<'_, str>], with_ids: bool) -> Option<Items> {
    let origin = message.origin.as_deref()?;
    let mut items = Items::default();
    let (mut text, mut calls) = (message.content.as_str(), message.tool_calls.iter().zip(ids));
    // The number of items up to the last one that is not reasoning.
    let mut end = 0;
    for item in &origin.items {
        let mut fields = match item {
            OriginItem::Opaque(json) => {
                let fields = object(json);
                let is_reasoning = fields.get("type")? == "reasoning";
                match sendable(&fields, is_reasoning, with_ids) {
                    Sendable::Yes => items.json.push(RawValue::from_string(json.clone()).ok()?),
                    Sendable::WithoutId => {
                        items.push(&fields.iter().filter(|(name, _)| *name != "id").collect::<Sorted<'_>>());
                    }
                    Sendable::LeftOut => continue,
                    Sendable::No => return None,
                }
                if let Some(id) = fields.get("id").and_then(Value::as_str) {
                    items.ids.push(id.to_owned());
                }
                end = if is_reasoning { end } else { items.json.len() };
                continue;
            }
            OriginItem::Text { bytes, rest } => {
                let (piece, behind) = text.split_at_checked(*bytes)?;
                text = behind;
                with_texts(object(rest), piece)?
            }
            OriginItem::Call { rest } => {
                let (call, id) = calls.next()?;
                let mut fields = object(rest);
                let id: &str = id;
                for (name, value) in [("call_id", id), ("name", &call.name), ("arguments", &call.arguments)] {
                    fields.insert(name.to_owned(), value.into());
                }
                fields
            }
            OriginItem::Refused => return None,
        };
        let id = fields.remove("id").filter(|_| with_ids);
        if let Some(id) = id {
            items.ids.extend(id.as_str().map(str::to_owned));
            fields.insert("id".to_owned(), id);
        }
        items.push(&fields);
        end = items.json.len();
    }
    // The rest of an interrupted answer.
    if !text.trim().is_empty() {
        items.push(&said(text));
        end = items.json.len();
    }
    for (call, id) in calls {
        items.push(&called(call, id));
        end = items.json.len();
    }
    // Reasoning is refused without the item that it led to.
    items.json.truncate(end);
    items.ids.iter().all(|id| id.len() <= MAX_ID_LENGTH).then_some(items)
}

/// The fields of an item, in the order of their names.
type Sorted<'a> = std::collections::BTreeMap<&'a String, &'a Value>;

/// The treatment of an item that only the server reads.
enum Sendable {
    Yes,
    WithoutId,
    LeftOut,
    /// The server would refuse it, and with it the ids of its neighbours.
    No,
}

fn sendable(fields: &Fields, is_reasoning: bool, with_ids: bool) -> Sendable {
    let has = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    };
    match (has("encrypted_content"), has("content")) {
        (false, false) if is_reasoning && with_ids => Sendable::No,
        _ if with_ids => Sendable::Yes,
        // Without its id, an item is useful only with its content.
        (true, _) => Sendable::WithoutId,
        (false, _) => Sendable::LeftOut,
    }
}

/// Replaces the texts of a message's parts by their numbers of bytes.
pub(super) fn without_texts(fields: &mut Fields) {
    each_text(fields, |text| {
        if let Value::String(said) = text {
            *text = said.len().into();
        }
        Some(())
    });
}

/// Replaces the numbers of bytes by the texts, which are the end of a piece: a separator may precede them.
fn with_texts(mut fields: Fields, piece: &str) -> Option<Fields> {
    let length = |text: &Value| text.as_u64().and_then(|bytes| usize::try_from(bytes).ok());
    let mut sum = 0_usize;
    each_text(&mut fields, |text| {
        sum = sum.checked_add(length(text)?)?;
        Some(())
    })?;
    let mut texts = piece.get(piece.len().checked_sub(sum)?..)?;
    each_text(&mut fields, |text| {
        let (first, behind) = texts.split_at_checked(length(text)?)?;
        (*text, texts) = (first.into(), behind);
        Some(())
    })?;
    Some(fields)
}

fn each_text(fields: &mut Fields, mut change: impl FnMut(&mut Value) -> Option<()>) -> Option<()> {
    let parts = fields.get_mut("content").and_then(Value::as_array_mut);
    for part in parts.into_iter().flatten() {
        for name in TEXTS {
            part.get_mut(name).map_or(Some(()), &mut change)?;
        }
    }
    Some(())
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Parts(Vec<Part<'a>>),
}

impl<'a> Content<'a> {
    fn parts(text: &'a str, media: &'a [Media], accepts: Accepts) -> Self {
        let shown = media.iter().filter(|media| accepts.takes(media.mime)).map(|media| match media.mime {
            MediaType::Pdf => Part::InputFile { filename: FILE_NAME, file_data: media },
            _ => Part::InputImage { detail: "auto", image_url: media },
        });
        let mut parts: Vec<_> = shown.collect();
        if !text.is_empty() || parts.is_empty() {
            parts.insert(0, Part::InputText { text });
        }
        Self::Parts(parts)
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message { role: &'static str, content: Content<'a> },
    FunctionCall { call_id: &'a str, name: Cow<'a, str>, arguments: Cow<'a, str> },
    FunctionCallOutput { call_id: &'a str, output: Content<'a> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText {
        text: &'a str,
    },
    OutputText {
        text: &'a str,
    },
    InputImage {
        detail: &'static str,
        #[serde(serialize_with = "crate::openai::message::data_url")]
        image_url: &'a Media,
    },
    InputFile {
        filename: &'static str,
        #[serde(serialize_with = "crate::openai::message::data_url")]
        file_data: &'a Media,
    },
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::messages::origin::Origin;

    /// Returns the sent items of an answer with this text, two calls and these items; `None` if they are invalid.
    fn sent(text: &str, items: impl IntoIterator<Item = OriginItem>, with_ids: bool) -> Option<Vec<Value>> {
        let calls = ["a", "b"].map(|id| ToolCall::new(id, "add", "{"));
        let message = Message::assistant(text).with_tool_calls(calls).with(|message| {
            let place = [(); 5].map(|()| String::new());
            let [wire, server, model, prefix, shows] = place;
            let items = items.into_iter().collect();
            message.origin = Some(Box::new(Origin { wire, server, model, prefix, shows, items }));
        });
        let ids = stored_ids(&message);
        let items = Items::exact(&message, &ids, with_ids)?;
        Some(items.json.iter().map(|json| serde_json::from_str(json.get()).unwrap()).collect())
    }

    fn opaque(json: &Value) -> OriginItem {
        OriginItem::Opaque(json.to_string())
    }

    fn call(id: &str) -> OriginItem {
        OriginItem::Call { rest: json!({"type": "function_call", "id": id}).to_string() }
    }

    fn text(bytes: usize, lengths: &[usize]) -> OriginItem {
        let parts: Vec<_> =
            lengths.iter().map(|length| json!({"type": "output_text", "text": length})).collect();
        OriginItem::Text { bytes, rest: json!({"id": "msg_1", "content": parts}).to_string() }
    }

    fn types(items: Vec<Value>) -> Vec<String> {
        items.iter().map(|item| item["type"].as_str().unwrap_or("text").to_owned()).collect()
    }

    #[test]
    fn texts_are_replaced_by_their_lengths_and_back() {
        let message = json!({"content": [{"type": "output_text", "text": "é"}, {"type": "refusal", "refusal": "no"}, {"type": "x"}]});
        let mut fields = object(&message.to_string());
        without_texts(&mut fields);
        assert_eq!(fields["content"][0]["text"], 2);
        assert_eq!(Value::Object(with_texts(fields.clone(), "\n\néno").unwrap()), message);
        assert_eq!(with_texts(fields.clone(), "é"), None);
        assert_eq!(with_texts(fields, "xéo"), None);
    }

    #[test]
    fn parts_that_the_items_do_not_have_follow_them() {
        let reasoning = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "E"});
        let all =
            sent("Hello", [opaque(&reasoning), text(5, &[5]), call("fc_1"), call("fc_2")], true).unwrap();
        assert_eq!(
            (&all[0], &all[1]["content"][0]["text"], &all[3]["id"]),
            (&reasoning, &json!("Hello"), &json!("fc_2"))
        );
        // As the model wrote them.
        assert_eq!((&all[2]["arguments"], &all[2]["call_id"]), (&json!("{"), &json!("a")));
        let some = sent("Hello", [opaque(&reasoning), text(2, &[2])], true).unwrap();
        assert_eq!(types(some.clone()), ["reasoning", "text", "message", "function_call", "function_call"]);
        assert_eq!(some[2]["content"][0]["text"], "llo");
    }

    #[test]
    fn items_that_do_not_fit_the_message_are_invalid() {
        let calls = || [call("fc_1"), call("fc_2")];
        assert!(sent("", calls(), true).is_some());
        assert_eq!(sent("", calls().into_iter().chain([call("fc_3")]), true), None);
        assert_eq!(sent("é", [text(1, &[1])], true), None);
        assert_eq!(sent("ab", [text(2, &[3])], true), None);
        assert_eq!(sent("", [call(&"x".repeat(65))], true), None);
        assert_eq!(sent("", [OriginItem::Opaque("{".into())], true), None);
        assert_eq!(sent("", [OriginItem::Refused], true), None);
    }

    #[test]
    fn reasoning_without_content_makes_the_ids_of_its_neighbours_invalid() {
        let reasoning = |field: &str, value: Value| {
            let mut item = json!({"type": "reasoning", "id": "rs_1", "summary": []});
            item[field] = value;
            item
        };
        let of = |item: &Value, with_ids| sent("", [opaque(item), call("fc_1"), call("fc_2")], with_ids);
        for item in [reasoning("encrypted_content", Value::Null), reasoning("content", json!([]))] {
            assert_eq!(of(&item, true), None, "{item}");
            assert_eq!(types(of(&item, false).unwrap()), ["function_call", "function_call"]);
        }
        let clear = reasoning("content", json!([{"type": "reasoning_text", "text": "Hm"}]));
        assert_eq!(of(&clear, true).unwrap()[0], clear);
        let encrypted = reasoning("encrypted_content", json!("E"));
        let bare = of(&encrypted, false).unwrap();
        assert_eq!(bare[0], json!({"type": "reasoning", "summary": [], "encrypted_content": "E"}));
        assert!(bare.iter().all(|item| item.get("id").is_none()), "{bare:?}");
    }

    #[test]
    fn reasoning_at_the_end_is_left_out() {
        let reasoning = opaque(&json!({"type": "reasoning", "encrypted_content": "E"}));
        let items = [call("fc_1"), call("fc_2"), reasoning];
        assert_eq!(types(sent("", items, true).unwrap()), ["function_call", "function_call"]);
    }
}
