//! The messages between a user, a model and its tools.

use std::{fmt, ops::Deref, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    derived::{Derived, DerivedFrom},
    messages::{
        media::{Accepts, Media},
        origin::Origin,
    },
};

/// The author of a [`Message`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions before the conversation.
    System,
    /// The user, or a program acting as one.
    User,
    /// The model.
    Assistant,
    /// The result of one tool call.
    Tool,
}

impl Role {
    /// Returns the name that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One message of a conversation. Immutable and shared: a clone of any length costs a reference count.
///
/// Create it with [`Message::user`] and the other constructors, which fill the fields of the role. It reads like
/// its [`MessageData`]. [`with`](Self::with) and [`to_mut`](Self::to_mut) change one owner's message and never the
/// clones of it.
///
/// ```
/// # use superstep_llm::Message;
/// let message = Message::assistant("hello");
/// let interrupted = message.clone().with(|message| message.interrupted = true);
/// assert_eq!(message.content, interrupted.content);
/// assert!(!message.interrupted);
/// ```
#[derive(Clone)]
pub struct Message(Arc<Shared>);

struct Shared {
    data: MessageData,
    derived: Derived,
}

/// The content of a [`Message`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageData {
    /// The id, unique within the thread; empty until the message is stored.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The author.
    pub role: Role,
    /// The text; empty when an assistant only calls tools.
    #[serde(default)]
    pub content: String,
    /// The model's reasoning, separate from its text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The calls of an assistant, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The id of the call that a tool message answers; empty for the other roles.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool_call_id: String,
    /// `true` if a tool message has no result: the tool failed, or was not run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub failed: bool,
    /// The images and audio of a tool result, which its text describes, or of the user's message. Models that
    /// accept them receive them, in some protocols after the results of the round, see
    /// [`ChatModel::accepts`](crate::ChatModel::accepts).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Media>,
    /// `true` if the agent wrote it on behalf of the user. It is not sent to providers, and user interfaces
    /// may hide the message.
    #[serde(default, skip_serializing_if = "is_false")]
    pub synthetic: bool,
    /// `true` if the assistant was interrupted before the end. It is not sent to providers.
    #[serde(default, skip_serializing_if = "is_false")]
    pub interrupted: bool,
    /// The fields that a server added to its answer, which goes back to it with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Message {
    fn new(role: Role, content: String) -> Self {
        Self::from(MessageData {
            id: String::new(),
            role,
            content,
            reasoning: String::new(),
            tool_calls: Vec::new(),
            tool_call_id: String::new(),
            failed: false,
            media: Vec::new(),
            synthetic: false,
            interrupted: false,
            origin: None,
        })
    }

    /// Creates instructions for the model.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content.into())
    }

    /// Creates a message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content.into())
    }

    /// Creates a message of the agent on behalf of the user.
    pub fn synthetic(content: impl Into<String>) -> Self {
        Self::user(content).with(|message| message.synthetic = true)
    }

    /// Creates a message of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content.into())
    }

    /// Creates the result of the tool call `call_id`.
    pub fn tool(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self::new(Role::Tool, content.into()).with(|message| message.tool_call_id = call_id.into())
    }

    /// Sets the tool calls.
    #[must_use]
    pub fn with_tool_calls(self, calls: impl IntoIterator<Item = ToolCall>) -> Self {
        self.with(|message| message.tool_calls = calls.into_iter().collect())
    }

    /// Sets the images and audio.
    #[must_use]
    pub fn with_media(self, media: impl IntoIterator<Item = Media>) -> Self {
        self.with(|message| message.media = media.into_iter().collect())
    }

    /// Leaves out the media that a model does not accept. A message of the user describes them instead, as results do anyway.
    #[inline]
    pub fn fit_media(&mut self, accepts: Accepts) {
        if !self.media.is_empty() {
            self.leave_out(accepts);
        }
    }

    fn leave_out(&mut self, accepts: Accepts) {
        let is_left_out = |media: &Media| !accepts.takes(media.mime);
        if !self.media.iter().any(is_left_out) {
            return;
        }
        let message = self.to_mut();
        if message.role == Role::User {
            for media in message.media.iter().filter(|media| is_left_out(media)) {
                message.content += &format!("\n{media}");
            }
        }
        message.media.retain(|media| !is_left_out(media));
    }

    /// Sets the id.
    #[must_use]
    pub fn with_id(self, id: impl Into<String>) -> Self {
        self.with(|message| message.id = id.into())
    }

    /// Changes the message. Copies its content if it is shared.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut MessageData)) -> Self {
        change(self.to_mut());
        self
    }

    /// Returns its content for a change, after a copy if it is shared. Its derived values are dropped.
    pub fn to_mut(&mut self) -> &mut MessageData {
        if Arc::get_mut(&mut self.0).is_none() {
            *self = Self::from(self.0.data.clone());
        }
        let shared = Arc::get_mut(&mut self.0).expect("a new message has one owner");
        shared.derived = Derived::default();
        &mut shared.data
    }

    /// Returns its content, copied if it is shared.
    pub fn into_data(self) -> MessageData {
        Arc::try_unwrap(self.0).map_or_else(|shared| shared.data.clone(), |shared| shared.data)
    }

    /// Returns the value of type `D` for this message. The first call computes it; its clones have it too.
    pub fn derived<D: DerivedFrom<MessageData>>(&self) -> &D {
        self.0.derived.get(&self.0.data)
    }

    /// Returns whether both are clones of one message, and therefore equal.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl From<MessageData> for Message {
    fn from(data: MessageData) -> Self {
        Self(Arc::new(Shared { data, derived: Derived::default() }))
    }
}

impl Deref for Message {
    type Target = MessageData;

    fn deref(&self) -> &MessageData {
        &self.0.data
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.0.data == other.0.data
    }
}

impl Eq for Message {}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.data.fmt(f)
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.data.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        MessageData::deserialize(deserializer).map(Self::from)
    }
}

/// A tool call as the model wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id of the call; its result has the same.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The argument text byte for byte, valid JSON or not.
    pub arguments: String,
}

impl ToolCall {
    /// Creates a call of `name` with `arguments`, a JSON text.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Length(usize);

    impl DerivedFrom<MessageData> for Length {
        fn derive(message: &MessageData) -> Self {
            Self(message.content.len())
        }
    }

    struct Upper(String);

    impl DerivedFrom<MessageData> for Upper {
        fn derive(message: &MessageData) -> Self {
            Self(message.content.to_uppercase())
        }
    }

    #[test]
    fn clones_share_the_content_and_the_derived_values() {
        let message = Message::user("hello");
        let clone = message.clone();
        assert!(message.is_same(&clone) && std::ptr::eq(&*message, &*clone));
        assert!(std::ptr::eq(message.derived::<Length>(), clone.derived::<Length>()));
        assert_eq!((clone.derived::<Upper>().0.as_str(), clone.derived::<Length>().0), ("HELLO", 5));
    }

    #[test]
    fn a_change_affects_neither_clones_nor_derived_values() {
        let mut message = Message::user("hello");
        let clone = message.clone();
        assert_eq!(message.derived::<Length>().0, 5);
        message.to_mut().content.push('!');
        assert_eq!((message.derived::<Length>().0, clone.derived::<Length>().0), (6, 5));
        assert_eq!((message.content.as_str(), clone.content.as_str()), ("hello!", "hello"));
        // The only owner changes in place.
        let place = std::ptr::from_ref(&*message);
        message.to_mut().content.push('!');
        assert_eq!((std::ptr::from_ref(&*message), message.derived::<Length>().0), (place, 7));
    }

    #[test]
    fn a_role_is_shown_by_its_stored_name() {
        for role in [Role::System, Role::User, Role::Assistant, Role::Tool] {
            assert_eq!(serde_json::to_value(role).unwrap(), role.to_string());
        }
    }

    #[test]
    fn the_stored_form_is_that_of_the_content() {
        let message = Message::tool("c1", "x").with_id("m1");
        let json = serde_json::to_string(&message).unwrap();
        assert_eq!(json, r#"{"id":"m1","role":"tool","content":"x","tool_call_id":"c1"}"#);
        assert_eq!(serde_json::from_str::<Message>(&json).unwrap(), message);
        assert_eq!(serde_json::from_str::<MessageData>(&json).unwrap(), message.into_data());
    }
}
