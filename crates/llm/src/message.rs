//! The messages between a user, a model and its tools.

use serde::{Deserialize, Serialize};

use crate::Media;

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

/// One message of a conversation.
///
/// Create it with [`Message::user`] and the other constructors, which fill the fields of the role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
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
    /// The images and audio of a tool result, which its text describes. Models that accept them receive them
    /// after the results of the round, see [`ChatModel::accepts`](crate::ChatModel::accepts).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Media>,
    /// `true` if the agent wrote it on behalf of the user. It is not sent to providers, and user interfaces
    /// may hide the message.
    #[serde(default, skip_serializing_if = "is_false")]
    pub synthetic: bool,
    /// `true` if the assistant was interrupted before the end. It is not sent to providers.
    #[serde(default, skip_serializing_if = "is_false")]
    pub interrupted: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Message {
    fn new(role: Role, content: String) -> Self {
        Self {
            id: String::new(),
            role,
            content,
            reasoning: String::new(),
            tool_calls: Vec::new(),
            tool_call_id: String::new(),
            media: Vec::new(),
            synthetic: false,
            interrupted: false,
        }
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
        Self { synthetic: true, ..Self::user(content) }
    }

    /// Creates a message of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content.into())
    }

    /// Creates the result of the tool call `call_id`.
    pub fn tool(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self { tool_call_id: call_id.into(), ..Self::new(Role::Tool, content.into()) }
    }

    /// Sets the tool calls.
    #[must_use]
    pub fn with_tool_calls(mut self, calls: impl IntoIterator<Item = ToolCall>) -> Self {
        self.tool_calls = calls.into_iter().collect();
        self
    }

    /// Sets the id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
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
