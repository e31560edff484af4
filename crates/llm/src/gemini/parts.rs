//! The parts of messages.
//!
//! Start at [`parts`].

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

use crate::{
    Message, MessageData, Role, ToolCall,
    derived::DerivedFrom,
    media::{Media, MediaType},
    messages::origin::{Fields, OriginItem, object},
    openai::message::WirePolicy,
};

/// The field with a signature.
pub(super) const SIGNATURE: &str = "thoughtSignature";

/// The signature of a call that another model made, which the provider accepts.
///
/// # Source
/// Google, "Thought signatures": conversations of other models.
pub(super) const FOREIGN: &str = "skip_thought_signature_validator";

/// A part as it is sent.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) json: Box<RawValue>,
    pub(super) call: Option<SentCall>,
}

/// A call within a message.
#[derive(Debug)]
pub(super) struct SentCall {
    /// The server gave it an id, which its result must have too.
    pub(super) has_id: bool,
    is_signed: bool,
}

impl Part {
    fn of(part: &impl Serialize) -> Self {
        Self { json: to_raw_value(part).expect("what is sent has a JSON form"), call: None }
    }

    pub(super) fn text(text: &str) -> Self {
        // A blank text may be refused.
        let text = if text.trim().is_empty() { "(empty)" } else { text };
        Self::of(&json!({ "text": text }))
    }

    /// Returns the part with the signature of a call of another model, if it is a call without a signature.
    pub(super) fn signed(&self) -> Cow<'_, RawValue> {
        if self.call.as_ref().is_none_or(|call| call.is_signed) {
            return Cow::Borrowed(&self.json);
        }
        let inner = self.json.get().strip_suffix('}').expect("a part is an object");
        let json = format!("{inner},\"{SIGNATURE}\":\"{FOREIGN}\"}}");
        Cow::Owned(RawValue::from_string(json).expect("the fields of an object and one more"))
    }
}

/// The parts of a message of the user or the model. Depends on the message alone.
pub(super) struct Parts<const WITH_ITEMS: bool>(Vec<Part>);

impl<const WITH_ITEMS: bool> DerivedFrom<MessageData> for Parts<WITH_ITEMS> {
    fn derive(message: &MessageData) -> Self {
        Self(match message.role {
            Role::Assistant if WITH_ITEMS => from_items(message),
            Role::Assistant => plain(message),
            Role::User if !message.media.is_empty() => of_user(message),
            Role::System | Role::User | Role::Tool => vec![Part::text(&message.content)],
        })
    }
}

/// Returns the parts of a message, with those of its origin if that is valid here.
pub(super) fn parts(message: &Message, is_valid: bool) -> &[Part] {
    if is_valid { &message.derived::<Parts<true>>().0 } else { &message.derived::<Parts<false>>().0 }
}

/// The text and the calls of an answer of another model.
fn plain(message: &MessageData) -> Vec<Part> {
    let text = (!message.content.trim().is_empty()).then(|| Part::text(&message.content));
    let calls = message.tool_calls.iter().map(|call| call_part(call, Fields::new()));
    text.into_iter().chain(calls).collect()
}

/// The parts of an answer in its order.
fn from_items(message: &MessageData) -> Vec<Part> {
    let Some(origin) = &message.origin else { return plain(message) };
    let (mut text, mut calls) = (message.content.as_str(), message.tool_calls.iter());
    let mut parts = Vec::with_capacity(origin.items.len());
    for item in &origin.items {
        match item {
            OriginItem::Opaque(json) => {
                let json = RawValue::from_string(json.clone()).ok();
                parts.extend(json.map(|json| Part { json, call: None }));
            }
            OriginItem::Text { bytes, rest } => {
                let (piece, behind) = text.split_at_checked(*bytes).unwrap_or((text, ""));
                text = behind;
                let mut part = object(rest);
                // A signature may have a part of its own, without a text.
                if !part.is_empty() || !piece.trim().is_empty() {
                    part.insert("text".to_owned(), piece.into());
                    parts.push(Part::of(&part));
                }
            }
            OriginItem::Call { rest } => {
                parts.extend(calls.next().map(|call| call_part(call, object(rest))));
            }
            OriginItem::Refused => return Vec::new(),
        }
    }
    // An interrupted answer ends with parts that are not complete.
    parts.extend((!text.trim().is_empty()).then(|| Part::text(text)));
    parts.extend(calls.map(|call| call_part(call, Fields::new())));
    parts
}

/// Builds the part of a call with the other fields of the part, which have those of the call under its name.
fn call_part(call: &ToolCall, mut rest: Fields) -> Part {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Outer<'a> {
        function_call: Inner<'a>,
        #[serde(flatten)]
        rest: Fields,
    }
    #[derive(Serialize)]
    struct Inner<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        name: Cow<'a, str>,
        args: &'a RawValue,
        #[serde(flatten)]
        rest: Fields,
    }
    let mut inner = match rest.remove(CALL) {
        Some(serde_json::Value::Object(inner)) => inner,
        _ => Fields::new(),
    };
    let has_id = inner.remove("id").is_some();
    let name = WirePolicy::Wrap.name(&call.name);
    let args = WirePolicy::Wrap.arguments(&call.arguments).into_owned();
    let args = RawValue::from_string(args).expect("it is an object");
    let id = has_id.then_some(&*call.id);
    let call = SentCall { has_id, is_signed: rest.contains_key(SIGNATURE) };
    let part = Outer { function_call: Inner { id, name, args: &args, rest: inner }, rest };
    Part { call: Some(call), ..Part::of(&part) }
}

/// The field of a part with a call.
pub(super) const CALL: &str = "functionCall";

/// The result of a call. Depends on the message alone.
pub(super) struct CallResult {
    /// The text of its `response`.
    response: String,
    /// The images, as parts.
    images: Vec<Box<RawValue>>,
}

/// Returns the parts of the images and files that the provider accepts.
fn shown(message: &MessageData) -> impl Iterator<Item = Part> {
    let is_accepted = |media: &&Media| !media.mime.is_audio() && media.mime != MediaType::Gif;
    message.media.iter().filter(is_accepted).map(|media| {
        Part::of(&json!({"inlineData": {"mimeType": media.mime.as_str(), "data": media.base64()}}))
    })
}

/// The images and files of the user, the descriptions of media that the provider refuses, and the text.
fn of_user(message: &MessageData) -> Vec<Part> {
    let is_refused = |media: &&Media| media.mime.is_audio() || media.mime == MediaType::Gif;
    let described = message.media.iter().filter(is_refused).map(|media| Part::text(&media.to_string()));
    let text = (!message.content.trim().is_empty()).then(|| Part::text(&message.content));
    shown(message).chain(described).chain(text).collect()
}

impl DerivedFrom<MessageData> for CallResult {
    fn derive(message: &MessageData) -> Self {
        let images = shown(message).map(|part| part.json).collect();
        let field = if message.failed { "error" } else { "output" };
        Self { response: json!({ field: message.content }).to_string(), images }
    }
}

impl CallResult {
    /// Returns the part of the result of a call, and the images that follow it: those of a model that does not accept them within.
    pub(super) fn sent(
        &self,
        name: &str,
        id: Option<&str>,
        within: bool,
    ) -> (Box<RawValue>, &[Box<RawValue>]) {
        let mut json = String::from(r#"{"functionResponse":{"#);
        let field = |text: &str| serde_json::to_string(text).expect("a text has a JSON form");
        if let Some(id) = id {
            json += &format!(r#""id":{},"#, field(id));
        }
        json += &format!(r#""name":{},"response":{}"#, field(name), self.response);
        if within && !self.images.is_empty() {
            let images: Vec<_> = self.images.iter().map(|image| image.get()).collect();
            json += &format!(r#","parts":[{}]"#, images.join(","));
        }
        json.push_str("}}");
        let result = RawValue::from_string(json).expect("its fields are JSON");
        (result, if within { &[] } else { &self.images })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::origin::Origin;

    fn texts(message: &Message) -> Vec<&str> {
        parts(message, true).iter().map(|part| part.json.get()).collect()
    }

    fn with_items(message: Message, items: Vec<OriginItem>) -> Message {
        let [wire, server, model, prefix, shows] = [(); 5].map(|()| String::new());
        message.with(|message| {
            message.origin = Some(Box::new(Origin { wire, server, model, prefix, shows, items }));
        })
    }

    #[test]
    fn an_answer_is_sent_back_in_its_parts() {
        let message = Message::assistant("one two").with_tool_calls([
            ToolCall::new("c", "add", r#"{"b": 1, "a": 2}"#),
            ToolCall::new("d", "add", "{"),
            ToolCall::new("e", "now", ""),
        ]);
        let thought = r#"{"thought":true,"text":"hm"}"#;
        let message = with_items(
            message,
            vec![
                OriginItem::Opaque(thought.into()),
                OriginItem::Text { bytes: 4, rest: "{}".into() },
                OriginItem::Text { bytes: 3, rest: r#"{"thoughtSignature":"S"}"#.into() },
                OriginItem::Text { bytes: 0, rest: r#"{"thoughtSignature":"T"}"#.into() },
                OriginItem::Call {
                    rest: r#"{"thoughtSignature":"U","functionCall":{"id":"c","x":1}}"#.into(),
                },
                OriginItem::Call { rest: "{}".into() },
            ],
        );
        assert_eq!(
            texts(&message),
            [
                thought,
                r#"{"text":"one "}"#,
                r#"{"text":"two","thoughtSignature":"S"}"#,
                r#"{"text":"","thoughtSignature":"T"}"#,
                r#"{"functionCall":{"id":"c","name":"add","args":{"b": 1, "a": 2},"x":1},"thoughtSignature":"U"}"#,
                r#"{"functionCall":{"name":"add","args":{"_raw":"{"}}}"#,
                r#"{"functionCall":{"name":"now","args":{}}}"#,
            ]
        );
        let foreign = &parts(&message, false)[1];
        assert_eq!(
            foreign.signed().get(),
            r#"{"functionCall":{"name":"add","args":{"b": 1, "a": 2}},"thoughtSignature":"skip_thought_signature_validator"}"#
        );
        let signed = &parts(&message, true)[4];
        assert_eq!(signed.signed().get(), signed.json.get());
    }

    #[test]
    fn a_result_has_its_images_within_or_behind_it() {
        let [png, gif] = [("image/png", "iVBORw0KGgo="), ("image/gif", "R0lGODlh")]
            .map(|(mime, data)| Media::new(mime, data).unwrap());
        let message = Message::tool("c", "a \"b\"").with(|message| message.media = vec![png, gif]);
        let result = message.derived::<CallResult>();
        let sent = |id, within| {
            let (part, behind) = result.sent("look", id, within);
            [&part].into_iter().chain(behind).map(|part| part.get().to_owned()).collect::<Vec<_>>()
        };
        let image = r#"{"inlineData":{"data":"iVBORw0KGgo=","mimeType":"image/png"}}"#;
        let within = format!(
            r#"{{"functionResponse":{{"id":"c","name":"look","response":{{"output":"a \"b\""}},"parts":[{image}]}}}}"#
        );
        assert_eq!(sent(Some("c"), true), [within]);
        let plain = r#"{"functionResponse":{"name":"look","response":{"output":"a \"b\""}}}"#;
        assert_eq!(sent(None, false), [plain, image]);
        let failed = Message::tool("c", "no").with(|message| message.failed = true);
        let (part, _) = failed.derived::<CallResult>().sent("look", None, true);
        assert_eq!(part.get(), r#"{"functionResponse":{"name":"look","response":{"error":"no"}}}"#);
    }
}
