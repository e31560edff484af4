//! The content blocks of messages.
//!
//! Start at [`Block`].

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    Message, MessageData, Role, ToolCall,
    derived::DerivedFrom,
    messages::{
        extras::fnv,
        origin::{Fields, OriginItem, object},
    },
    model::assemble::is_json_object,
    openai::message::WirePolicy,
};

/// A content block as it is sent, without a mark for the cache.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) json: Box<RawValue>,
    /// The hash of the JSON.
    pub(super) hash: u64,
    /// `true` for reasoning, which is signed over the blocks before it.
    pub(super) is_thinking: bool,
}

impl Block {
    fn of(block: &impl Serialize) -> Self {
        Self::raw(to_raw_value(block).expect("what is sent has a JSON form"))
    }

    fn raw(json: Box<RawValue>) -> Self {
        let hash = fnv(json.get().bytes());
        Self { json, hash, is_thinking: false }
    }

    pub(super) fn text(text: &str) -> Self {
        // A blank text is refused.
        let text = if text.trim().is_empty() { "(empty)" } else { text };
        Self::of(&Content::Text { text: text.into(), rest: Fields::new() })
    }

    /// Creates a block from the stored JSON of an answer; `None` if it is not valid any more.
    fn opaque(json: &str) -> Option<Self> {
        let kind = object(json).remove("type")?;
        let is_thinking = kind == "thinking" || kind == "redacted_thinking";
        Some(Self { is_thinking, ..Self::raw(RawValue::from_string(json.to_owned()).ok()?) })
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(flatten)]
        rest: Fields,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
    },
    ToolUse {
        id: &'a str,
        name: Cow<'a, str>,
        input: &'a RawValue,
        #[serde(flatten)]
        rest: Fields,
    },
    ToolResult {
        tool_use_id: &'a str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Content<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "base64")]
struct Source<'a> {
    media_type: &'static str,
    data: &'a str,
}

impl<'a> Content<'a> {
    /// Returns the images and files of a message.
    fn shown(message: &'a MessageData) -> impl Iterator<Item = Self> {
        message.media.iter().filter(|media| !media.mime.is_audio()).map(|media| {
            let source = Source { media_type: media.mime.as_str(), data: media.base64() };
            if media.mime.is_image() { Self::Image { source } } else { Self::Document { source } }
        })
    }
}

/// The blocks of a message. Depends on the message alone.
pub(super) struct Blocks<const WITH_ITEMS: bool>(Vec<Block>);

impl<const WITH_ITEMS: bool> DerivedFrom<MessageData> for Blocks<WITH_ITEMS> {
    fn derive(message: &MessageData) -> Self {
        Self(match message.role {
            Role::System => vec![Block::text(&message.content)],
            Role::User => of_user(message),
            Role::Tool => vec![result(message)],
            Role::Assistant if WITH_ITEMS => from_items(message),
            Role::Assistant => plain(message),
        })
    }
}

/// Returns the blocks of a message, with the parts of its origin if that is valid here.
pub(super) fn blocks(message: &Message, is_valid: bool) -> &[Block] {
    if is_valid { &message.derived::<Blocks<true>>().0 } else { &message.derived::<Blocks<false>>().0 }
}

/// The images and files of the user, which are understood best before their text, and the text.
fn of_user(message: &MessageData) -> Vec<Block> {
    let mut blocks: Vec<_> = Content::shown(message).map(|shown| Block::of(&shown)).collect();
    if blocks.is_empty() || !message.content.trim().is_empty() {
        blocks.push(Block::text(&message.content));
    }
    blocks
}

/// The result of a call.
fn result(message: &MessageData) -> Block {
    let text = (!message.content.is_empty())
        .then(|| Content::Text { text: Cow::from(&message.content), rest: Fields::new() });
    let content: Vec<_> = text.into_iter().chain(Content::shown(message)).collect();
    // Servers refuse an error without a text, or with an image.
    let is_error = message.failed && matches!(content[..], [Content::Text { .. }]);
    Block::of(&Content::ToolResult { tool_use_id: &message.tool_call_id, content, is_error })
}

/// The text and the calls of an answer of another provider.
fn plain(message: &MessageData) -> Vec<Block> {
    let text = (!message.content.trim().is_empty()).then(|| Block::text(&message.content));
    let calls = message.tool_calls.iter().map(|call| call_block(call, Fields::new()));
    text.into_iter().chain(calls).collect()
}

/// The blocks of an answer in its order.
fn from_items(message: &MessageData) -> Vec<Block> {
    let Some(origin) = &message.origin else { return plain(message) };
    let (mut text, mut calls) = (message.content.as_str(), message.tool_calls.iter());
    let mut blocks = Vec::with_capacity(origin.items.len());
    for item in &origin.items {
        match item {
            OriginItem::Opaque(json) => blocks.extend(Block::opaque(json)),
            OriginItem::Text { bytes, rest } => {
                let (piece, behind) = text.split_at_checked(*bytes).unwrap_or((text, ""));
                text = behind;
                if !piece.trim().is_empty() {
                    blocks.push(Block::of(&Content::Text { text: piece.into(), rest: object(rest) }));
                }
            }
            OriginItem::Call { rest } => {
                blocks.extend(calls.next().map(|call| call_block(call, object(rest))));
            }
            OriginItem::Refused => return Vec::new(),
        }
    }
    // An interrupted answer ends with parts that are not complete.
    blocks.extend((!text.trim().is_empty()).then(|| Block::text(text)));
    blocks.extend(calls.map(|call| call_block(call, Fields::new())));
    blocks
}

fn call_block(call: &ToolCall, rest: Fields) -> Block {
    let arguments = call.arguments.trim();
    let input = if arguments.is_empty() {
        "{}".to_owned()
    } else if is_json_object(arguments) {
        arguments.to_owned()
    } else {
        serde_json::json!({ "_raw": call.arguments }).to_string()
    };
    let input = RawValue::from_string(input).expect("it is an object");
    Block::of(&Content::ToolUse {
        id: &call.id,
        name: WirePolicy::Wrap.name(&call.name),
        input: &input,
        rest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::origin::Origin;

    fn texts(message: &Message) -> Vec<&str> {
        blocks(message, true).iter().map(|block| block.json.get()).collect()
    }

    fn with_items(message: Message, items: Vec<OriginItem>) -> Message {
        let [wire, server, model, prefix, shows] = [(); 5].map(|()| String::new());
        message.with(|message| {
            message.origin = Some(Box::new(Origin { wire, server, model, prefix, shows, items }));
        })
    }

    #[test]
    fn an_answer_is_sent_back_in_its_order() {
        let message = Message::assistant("one two").with_tool_calls([
            ToolCall::new("c", "add", r#"{"b": 1, "a": 2}"#),
            ToolCall::new("d", "add", "{"),
        ]);
        let thinking = r#"{"type":"thinking","thinking":"é","signature":"S"}"#;
        let message = with_items(
            message,
            vec![
                OriginItem::Text { bytes: 4, rest: "{}".into() },
                OriginItem::Opaque(thinking.into()),
                OriginItem::Call { rest: r#"{"caller":{"type":"direct"}}"#.into() },
                OriginItem::Text { bytes: 3, rest: r#"{"citations":[1]}"#.into() },
            ],
        );
        assert_eq!(
            texts(&message),
            [
                r#"{"type":"text","text":"one "}"#,
                thinking,
                r#"{"type":"tool_use","id":"c","name":"add","input":{"b": 1, "a": 2},"caller":{"type":"direct"}}"#,
                r#"{"type":"text","text":"two","citations":[1]}"#,
                r#"{"type":"tool_use","id":"d","name":"add","input":{"_raw":"{"}}"#,
            ]
        );
        let other: Vec<_> = blocks(&message, false).iter().map(|block| block.json.get()).collect();
        assert_eq!(other.len(), 3);
        assert!(blocks(&message, true)[1].is_thinking && !blocks(&message, true)[0].is_thinking);
    }

    #[test]
    fn a_refusal_is_not_sent_back_and_damaged_items_are_left_out() {
        let refused = with_items(Message::assistant("I can"), vec![OriginItem::Refused]);
        assert_eq!(texts(&refused), [""; 0]);
        let damaged = vec![OriginItem::Opaque("{".into()), OriginItem::Text { bytes: 99, rest: "7".into() }];
        assert_eq!(texts(&with_items(Message::assistant("a"), damaged)), [r#"{"type":"text","text":"a"}"#]);
    }

    #[test]
    fn a_failed_result_is_an_error_if_it_has_a_text() {
        let failed = |text: &str| Message::tool("c", text).with(|message| message.failed = true);
        assert_eq!(texts(&failed("")), [r#"{"type":"tool_result","tool_use_id":"c"}"#]);
        let text = r#"{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"no"}],"is_error":true}"#;
        assert_eq!(texts(&failed("no")), [text]);
    }

    #[test]
    fn blank_texts_are_named() {
        assert_eq!(texts(&Message::user(" \n")), [r#"{"type":"text","text":"(empty)"}"#]);
        assert_eq!(texts(&Message::assistant("")), [""; 0]);
        assert_eq!(texts(&Message::tool("c", "")), [r#"{"type":"tool_result","tool_use_id":"c"}"#]);
    }
}
