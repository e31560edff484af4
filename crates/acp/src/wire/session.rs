//! Sessions, their modes and options, and their prompts.

use std::{fmt, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{ContentBlock, Meta, lenient, or_default};

/// The id of a session: the name of its thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub Arc<str>);

impl SessionId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T: Into<Arc<str>>> From<T> for SessionId {
    fn from(id: T) -> Self {
        Self(id.into())
    }
}

/// The parameters of `session/new`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSessionRequest {
    pub cwd: PathBuf,
    /// The MCP servers that the user configured in the client.
    #[serde(default, deserialize_with = "or_default")]
    pub mcp_servers: Vec<McpServer>,
    #[serde(rename = "_meta", default, deserialize_with = "lenient")]
    pub meta: Meta,
}

/// The parameters of `session/load`, `session/resume` and `session/fork`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenSessionRequest {
    pub session_id: SessionId,
    pub cwd: PathBuf,
    /// The MCP servers that the user configured in the client.
    #[serde(default, deserialize_with = "or_default")]
    pub mcp_servers: Vec<McpServer>,
    #[serde(rename = "_meta", default, deserialize_with = "lenient")]
    pub meta: Meta,
}

/// An MCP server of the client. Its arguments, address and values may be secret, so that `Debug` writes only its name.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "AnyServer")]
pub enum McpServer {
    Stdio {
        /// The name, which may contain spaces.
        name: String,
        command: String,
        args: Vec<String>,
        /// Environment variables, in addition to the inherited ones.
        env: Vec<NameValue>,
    },
    Http {
        /// The name, which may contain spaces.
        name: String,
        url: String,
        headers: Vec<NameValue>,
    },
}

/// A variable or a header.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct NameValue {
    pub name: String,
    /// The value, which may be secret.
    pub value: String,
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Stdio { name, .. } | Self::Http { name, .. }) = self;
        f.debug_struct("McpServer").field("name", name).finish_non_exhaustive()
    }
}

impl fmt::Debug for NameValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameValue").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The fields of all kinds of servers.
#[derive(Deserialize)]
struct AnyServer {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: String,
    command: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    args: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    env: Vec<NameValue>,
    url: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    headers: Vec<NameValue>,
}

impl TryFrom<AnyServer> for McpServer {
    type Error = String;

    fn try_from(any: AnyServer) -> Result<Self, String> {
        let AnyServer { kind, name, command, args, env, url, headers } = any;
        match (kind.as_deref(), command, url) {
            (None | Some("stdio"), Some(command), _) => Ok(Self::Stdio { name, command, args, env }),
            (None | Some("stdio"), None, _) => Err(format!("MCP server `{name}` has no `command`")),
            (Some("http"), _, Some(url)) => Ok(Self::Http { name, url, headers }),
            (Some("http"), _, None) => Err(format!("MCP server `{name}` has no `url`")),
            (Some(kind), ..) => {
                Err(format!("MCP server `{name}` has type `{kind}`; supported are `stdio` and `http`"))
            }
        }
    }
}

/// A new session, by `session/new` or `session/fork`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSessionResponse {
    pub session_id: SessionId,
    #[serde(flatten)]
    pub state: SessionState,
}

/// The modes and options of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<ModeState>,
    /// All options, in their order.
    pub config_options: Vec<ConfigOption>,
}

/// The modes of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeState {
    pub current_mode_id: String,
    pub available_modes: Vec<Mode>,
}

/// A mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mode {
    pub id: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// An option with a list of values.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename = "select", rename_all = "camelCase")]
pub struct ConfigOption {
    pub id: String,
    pub name: String,
    /// `mode` or `model`, if the client may show it as such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<&'static str>,
    pub current_value: String,
    pub options: Vec<ConfigValue>,
}

/// A value of an option.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConfigValue {
    pub value: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The parameters of `session/set_mode`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetModeRequest {
    pub session_id: SessionId,
    pub mode_id: String,
}

/// The parameters of `session/set_config_option`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetConfigOptionRequest {
    pub session_id: SessionId,
    pub config_id: String,
    pub value: ConfigChoice,
}

/// The new value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum ConfigChoice {
    Text(String),
    Flag(bool),
}

/// The parameters of `session/list`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ListSessionsRequest {
    /// The folder of the sessions, or all folders.
    pub cwd: Option<PathBuf>,
    /// [`ListSessionsResponse::next_cursor`] of the page before.
    pub cursor: Option<String>,
}

/// A page of sessions, newest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListSessionsResponse {
    pub sessions: Vec<SessionInfo>,
    /// The cursor of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    pub session_id: SessionId,
    pub cwd: PathBuf,
    /// The first line of the first prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The time of the last change, ISO 8601 in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<String>,
}

/// The parameters of `session/close`, `session/delete` and `session/cancel`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRef {
    pub session_id: SessionId,
}

/// The parameters of `session/prompt` and `_session/steering`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptRequest {
    pub session_id: SessionId,
    pub prompt: Vec<ContentBlock>,
    #[serde(rename = "_meta", default, deserialize_with = "lenient")]
    pub meta: Meta,
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptResponse {
    pub stop_reason: StopReason,
    #[serde(rename = "_meta", skip_serializing_if = "Meta::is_empty")]
    pub meta: Meta,
}

/// The reason why a turn ended. `refusal` is never sent, because it promises that the prompt leaves the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    MaxTokens,
    /// The turn reached a limit of steps or its budget.
    MaxTurnRequests,
    Cancelled,
}

/// The effect of a message that was sent while a turn runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "outcome")]
pub enum SteerOutcome {
    Injected,
    /// There was no running turn; the message began one.
    StartedNewTurn,
    Failed,
}
