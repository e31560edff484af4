//! The messages of a chat-completions request.
//!
//! Start at [`Item`].

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    Message, MessageData, Role,
    derived::DerivedFrom,
    messages::{
        media::{Accepts, Media, MediaType},
        origin::{Fields, Origin},
    },
    model::assemble::is_json_object,
    tools::tool::{MAX_TOOL_NAME_LENGTH, is_tool_name},
};

/// The treatment of an invalid call that is sent back to the provider: argument text that is not a JSON
/// object, or a name that no tool can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WirePolicy {
    /// Wrapped as `{"_raw":"…"}`, with `_` for invalid characters of a name: many servers reject a whole
    /// conversation because of one broken call.
    #[default]
    Wrap,
    /// Unchanged.
    Verbatim,
}

/// A part of a conversation.
pub(crate) enum Item<'a> {
    /// A message, with or without its reasoning and the fields of its origin.
    Message { message: &'a Message, reasoning: bool, origin: bool },
    /// The media of a round, or a message of the user with its media.
    Media(WireMessage<'a>),
}

/// A message as it is sent.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Sent<'a> {
    /// JSON that is stored with the message.
    Encoded(&'a RawValue),
    /// A message that is encoded for this body only.
    Built(WireMessage<'a>),
}

impl<'a> Item<'a> {
    /// Converts the item to a message of its own.
    pub(crate) fn sent(self, policy: WirePolicy) -> Sent<'a> {
        match self.encoded() {
            Some(json) => Sent::Encoded(json),
            None => Sent::Built(self.built(policy)),
        }
    }

    /// Returns the JSON that is stored with the message, if it is the same for every configuration.
    fn encoded(&self) -> Option<&'a RawValue> {
        let Self::Message { message, reasoning, origin } = *self else { return None };
        let (reasoning, origin) =
            (reasoning && !message.reasoning.is_empty(), origin && message.origin.is_some());
        let encoded = match (reasoning, origin) {
            (false, false) => &message.derived::<Encoded<false, false>>().0,
            (true, false) => &message.derived::<Encoded<true, false>>().0,
            (false, true) => &message.derived::<Encoded<false, true>>().0,
            (true, true) => &message.derived::<Encoded<true, true>>().0,
        };
        encoded.as_deref()
    }

    fn built(self, policy: WirePolicy) -> WireMessage<'a> {
        match self {
            Self::Message { message, reasoning, origin } => {
                WireMessage::of(message, reasoning, origin, policy)
            }
            Self::Media(message) => message,
        }
    }

    /// Returns whether the next item is of the same side, so that both can be merged. A call and its results
    /// are not merged.
    pub(crate) fn is_joined_by(&self, next: &Self) -> bool {
        let calls = matches!(self, Self::Message { message, .. } if !message.tool_calls.is_empty());
        matches!(next.role(), Role::User | Role::Assistant) && self.role() == next.role() && !calls
    }

    fn role(&self) -> Role {
        match self {
            Self::Message { message, .. } => message.role,
            Self::Media(message) => message.role,
        }
    }
}

/// Merges consecutive items of one side.
pub(crate) fn joined(turn: Vec<Item<'_>>, policy: WirePolicy) -> Sent<'_> {
    let mut items = turn.into_iter();
    let first = items.next().expect("a turn has an item");
    if items.len() == 0 {
        return first.sent(policy);
    }
    let mut joined = first.built(policy);
    items.for_each(|item| joined.join(item.built(policy)));
    Sent::Built(joined)
}

/// The JSON of a message, with or without its reasoning and the fields of its origin; `None` if it depends on the [`WirePolicy`].
struct Encoded<const REASONING: bool, const ORIGIN: bool>(Option<Box<RawValue>>);

impl<const REASONING: bool, const ORIGIN: bool> DerivedFrom<MessageData> for Encoded<REASONING, ORIGIN> {
    fn derive(message: &MessageData) -> Self {
        let sent = WireMessage::of(message, REASONING, ORIGIN, WirePolicy::Wrap);
        let verbatim =
            message.tool_calls.iter().zip(&sent.tool_calls).all(|(call, sent)| {
                call.name == sent.function.name && call.arguments == sent.function.arguments
            });
        Self(verbatim.then(|| to_raw_value(&sent).expect("texts have a JSON form")))
    }
}

/// A message in the form of the protocol.
#[derive(Serialize)]
pub(crate) struct WireMessage<'a> {
    role: Role,
    content: Option<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    #[serde(flatten)]
    fields: Fields,
}

impl<'a> WireMessage<'a> {
    fn of(message: &'a MessageData, reasoning: bool, origin: bool, policy: WirePolicy) -> Self {
        let is_assistant = message.role == Role::Assistant;
        let only_calls = is_assistant && !message.tool_calls.is_empty() && message.content.is_empty();
        let origin = message.origin.as_deref().filter(|_| origin && is_assistant);
        let (fields, of_calls) = origin.map(Origin::fields).unwrap_or_default();
        let of_calls = of_calls.into_iter().chain(std::iter::repeat_with(Fields::new));
        let calls = message.tool_calls.iter().zip(of_calls).map(|(call, mut fields)| {
            let of_function = fields.remove("function").and_then(|fields| fields.as_object().cloned());
            WireCall {
                id: &call.id,
                kind: "function",
                function: WireFunction {
                    name: policy.name(&call.name),
                    arguments: policy.arguments(&call.arguments),
                    fields: of_function.unwrap_or_default(),
                },
                fields,
            }
        });
        Self {
            role: message.role,
            content: (!only_calls).then_some(Content::Text(Cow::Borrowed(message.content.as_str()))),
            reasoning_content: Some(message.reasoning.as_str())
                .filter(|text| is_assistant && reasoning && !text.is_empty()),
            tool_calls: calls.collect(),
            tool_call_id: Some(message.tool_call_id.as_str()).filter(|_| message.role == Role::Tool),
            fields,
        }
    }

    fn of_user(parts: Vec<Part<'a>>) -> Self {
        Self {
            role: Role::User,
            content: Some(Content::Parts(parts)),
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            fields: Fields::new(),
        }
    }

    fn join(&mut self, next: Self) {
        let said = |content: Option<Content<'a>>| content.filter(|content| !content.is_empty());
        self.content = match (said(self.content.take()), said(next.content)) {
            (Some(first), Some(next)) => Some(first.and(next)),
            (first, next) => first.or(next),
        };
        self.reasoning_content = next.reasoning_content.or(self.reasoning_content);
        self.tool_calls = next.tool_calls;
        self.fields = next.fields;
    }
}

/// Returns a message of the user with its media; `None` if none of them is accepted.
pub(crate) fn with_media(message: &Message, accepts: Accepts) -> Option<WireMessage<'_>> {
    let media = message.media.iter().filter(|media| accepts.takes(media.mime));
    let media: Vec<_> = media.map(Part::of).collect();
    if message.role != Role::User || media.is_empty() {
        return None;
    }
    let text = Some(message.content.as_str()).filter(|text| !text.trim().is_empty());
    let text = text.map(|text| Part::Text { text: text.into() });
    Some(WireMessage::of_user(text.into_iter().chain(media).collect()))
}

/// Returns a message with the media of a round, after its last result.
pub(crate) fn media_behind(messages: &[Message], at: usize, accepts: Accepts) -> Option<WireMessage<'_>> {
    let is_result = |message: &Message| message.role == Role::Tool;
    if !is_result(&messages[at]) || messages.get(at + 1).is_some_and(is_result) {
        return None;
    }
    let first = messages[..at].iter().rposition(|message| !is_result(message)).map_or(0, |before| before + 1);
    let mut parts = Vec::new();
    for result in &messages[first..=at] {
        let mut media = result.media.iter().filter(|media| accepts.takes(media.mime)).peekable();
        if media.peek().is_some() {
            let text = format!(
                "[This is from a tool, not from the user: the images, audio and files of the result of call {}]",
                result.tool_call_id
            );
            parts.push(Part::Text { text: text.into() });
            parts.extend(media.map(Part::of));
        }
    }
    (!parts.is_empty()).then(|| WireMessage::of_user(parts))
}

impl WirePolicy {
    /// Replaces a name that is not valid for a tool, since providers may reject it.
    pub(crate) fn name(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::Wrap if !is_tool_name(name) => {
                let fits = |char: char| if is_tool_name(char.encode_utf8(&mut [0; 4])) { char } else { '_' };
                let name: String = name.chars().map(fits).take(MAX_TOOL_NAME_LENGTH).collect();
                Cow::Owned(if name.is_empty() { "_".to_owned() } else { name })
            }
            Self::Wrap | Self::Verbatim => Cow::Borrowed(name),
        }
    }

    /// Wraps an argument text that is not an object, since providers may reject it.
    pub(crate) fn arguments(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::Wrap if text.trim().is_empty() => Cow::Borrowed("{}"),
            Self::Wrap if !is_json_object(text) => {
                Cow::Owned(serde_json::json!({ "_raw": text }).to_string())
            }
            Self::Wrap | Self::Verbatim => Cow::Borrowed(text),
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
    InputAudio { input_audio: InputAudio<'a> },
    File { file: File<'a> },
}

/// The name of a file, which the protocols of OpenAI require.
pub(crate) const FILE_NAME: &str = "file.pdf";

#[derive(Serialize)]
struct File<'a> {
    filename: &'static str,
    #[serde(serialize_with = "data_url")]
    file_data: &'a Media,
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    #[serde(serialize_with = "data_url")]
    url: &'a Media,
}

#[derive(Serialize)]
struct InputAudio<'a> {
    data: &'a str,
    format: &'static str,
}

pub(crate) fn data_url<S: Serializer>(media: &Media, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("data:{};base64,{}", media.mime.as_str(), media.base64()))
}

impl<'a> Part<'a> {
    fn of(media: &'a Media) -> Self {
        let sound = |format| Self::InputAudio { input_audio: InputAudio { data: media.base64(), format } };
        match media.mime {
            MediaType::Wav => sound("wav"),
            MediaType::Mp3 => sound("mp3"),
            MediaType::Pdf => Self::File { file: File { filename: FILE_NAME, file_data: media } },
            MediaType::Png | MediaType::Jpeg | MediaType::Gif | MediaType::Webp => {
                Self::ImageUrl { image_url: ImageUrl { url: media } }
            }
        }
    }
}

impl<'a> Content<'a> {
    /// Merges two consecutive messages of one side.
    fn and(self, next: Self) -> Self {
        match (self, next) {
            (Self::Text(first), Self::Text(next)) => Self::Text(Cow::Owned(format!("{first}\n\n{next}"))),
            (first, next) => Self::Parts(first.parts().into_iter().chain(next.parts()).collect()),
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }

    fn parts(self) -> Vec<Part<'a>> {
        match self {
            Self::Text(text) => vec![Part::Text { text }],
            Self::Parts(parts) => parts,
        }
    }
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: WireFunction<'a>,
    #[serde(flatten)]
    fields: Fields,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
    #[serde(flatten)]
    fields: Fields,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolCall;

    fn encoded(message: &Message, reasoning: bool) -> Option<&RawValue> {
        Item::Message { message, reasoning, origin: false }.encoded()
    }

    #[test]
    fn a_message_is_encoded_once_for_all_requests_that_have_it() {
        let said = Message::assistant("a").with(|message| message.reasoning = "because".to_owned());
        let later = said.clone();
        for reasoning in [false, true] {
            let (first, next) = (encoded(&said, reasoning).unwrap(), encoded(&later, reasoning).unwrap());
            assert!(std::ptr::eq(first, next), "{reasoning}");
        }
        assert_eq!(encoded(&said, false).unwrap().get(), r#"{"role":"assistant","content":"a"}"#);
        let changed = later.with(|message| message.content.push('b'));
        assert_eq!(encoded(&changed, false).unwrap().get(), r#"{"role":"assistant","content":"ab"}"#);
        assert_eq!(encoded(&said, false).unwrap().get(), r#"{"role":"assistant","content":"a"}"#);
    }

    #[test]
    fn only_valid_calls_are_stored_because_the_others_depend_on_the_policy() {
        let calls =
            |arguments| Message::assistant("").with_tool_calls([ToolCall::new("c1", "add", arguments)]);
        assert!(encoded(&calls("{}"), false).is_some());
        assert!(encoded(&calls("{"), false).is_none());
    }
}
