//! Updates of a session, for the client.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use super::{ConfigOption, ContentBlock};

/// A change of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "sessionUpdate", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum SessionUpdate {
    /// A piece of a message of the user: of an earlier turn, or sent by another program.
    UserMessageChunk(Chunk),
    AgentMessageChunk(Chunk),
    AgentThoughtChunk(Chunk),
    /// A new tool call. [`ToolCall::title`] is present.
    ToolCall(ToolCall),
    /// The changed fields of a tool call.
    ToolCallUpdate(ToolCall),
    /// The plan, as a whole.
    Plan {
        entries: Vec<PlanEntry>,
    },
    AvailableCommandsUpdate {
        available_commands: Vec<AvailableCommand>,
    },
    CurrentModeUpdate {
        current_mode_id: String,
    },
    ConfigOptionUpdate {
        config_options: Vec<ConfigOption>,
    },
    SessionInfoUpdate {
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The time of the last change, ISO 8601 in UTC.
        #[serde(skip_serializing_if = "Option::is_none")]
        updated_at: Option<String>,
    },
    /// The size of the context, in tokens. Not sent if the limit is unknown.
    UsageUpdate {
        used: u64,
        size: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        cost: Option<Cost>,
    },
    /// A note for the user. Only for clients with the capability `notices`.
    Notice {
        severity: Severity,
        /// The note, which is not empty.
        title: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    /// The conversation was compacted. Only for clients with the capability `compaction`.
    CompactionUpdate {
        /// An id, unique in the session.
        compaction_id: String,
        status: CompactionStatus,
    },
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Chunk {
    pub content: ContentBlock,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

impl Chunk {
    pub fn text(message: impl Into<String>, text: impl Into<String>) -> Self {
        Self { content: ContentBlock::text(text), message_id: Some(message.into()) }
    }

    /// Creates an image of a message, from Base64.
    pub fn image(message: impl Into<String>, mime_type: &str, data: &str) -> Self {
        let (data, mime_type) = (data.to_owned(), mime_type.to_owned());
        Self { content: ContentBlock::Image { data, mime_type, uri: None }, message_id: Some(message.into()) }
    }

    /// Creates audio of a message, from Base64.
    pub fn audio(message: impl Into<String>, mime_type: &str, data: &str) -> Self {
        let (data, mime_type) = (data.to_owned(), mime_type.to_owned());
        Self { content: ContentBlock::Audio { data, mime_type }, message_id: Some(message.into()) }
    }
}

/// A tool call, or its changed fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The id, unique in the session.
    pub tool_call_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ToolKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ToolStatus>,
    /// The output, which replaces the previous one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Vec<ToolContent>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locations: Option<Vec<Location>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_input: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_output: Option<Value>,
}

impl ToolCall {
    /// Creates a call without any of the optional fields.
    pub fn new(id: impl Into<String>) -> Self {
        Self { tool_call_id: id.into(), ..Self::default() }
    }
}

/// The kind of a tool. Clients choose icons by it, and some allow `read` and `search` without a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    Read,
    Edit,
    Search,
    Execute,
    Think,
    Fetch,
    Other,
}

/// The state of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Pending,
    InProgress,
    Completed,
    /// The tool failed, or was not run.
    Failed,
}

/// A part of a call's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ToolContent {
    Content {
        content: ContentBlock,
    },
    Diff {
        path: PathBuf,
        /// The text before; `None` for a new file.
        old_text: Option<String>,
        new_text: String,
    },
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Location {
    pub path: PathBuf,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// An entry of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanEntry {
    pub content: String,
    pub priority: PlanPriority,
    pub status: PlanStatus,
}

/// The importance of an entry. The tool `todo` has no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanPriority {
    Medium,
}

/// The state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    Pending,
    InProgress,
    Completed,
}

/// A command that begins a prompt, after a slash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AvailableCommand {
    /// The name, without the slash.
    pub name: &'static str,
    pub description: &'static str,
}

/// An amount of money.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    pub amount: f64,
    /// The currency, such as `USD`.
    pub currency: String,
}

/// The importance of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Info,
    Warning,
    Error,
}

/// The state of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionStatus {
    Completed,
    Failed,
}
