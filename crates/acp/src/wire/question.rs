//! Questions for the user of the client.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Meta, SessionId, ToolCall, lenient};

/// A request to allow a tool call.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionRequest {
    pub session_id: SessionId,
    pub tool_call: ToolCall,
    pub options: Vec<PermissionOption>,
}

/// A possible answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption {
    pub option_id: String,
    pub name: String,
    pub kind: PermissionKind,
}

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionKind {
    AllowOnce,
    /// Allows this and later calls of the tool.
    AllowAlways,
    RejectOnce,
}

/// The answer to a permission request.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PermissionResponse {
    pub outcome: PermissionOutcome,
    /// The extension field, whose `superstep.decision` has edited arguments, a result or a reason.
    #[serde(rename = "_meta", default, deserialize_with = "lenient")]
    pub meta: Meta,
}

/// The answer of the user.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum PermissionOutcome {
    Selected {
        option_id: String,
    },
    /// The turn was cancelled.
    Cancelled,
}

/// A form for the user, or an address to open.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ElicitationRequest {
    pub session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    pub message: String,
    #[serde(flatten)]
    pub mode: ElicitationMode,
}

/// A form or an address. The client has to have the [capability](super::ElicitationCapabilities).
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "mode", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ElicitationMode {
    Form {
        /// The form's JSON Schema: an object with plain fields.
        requested_schema: Value,
    },
    Url {
        url: String,
        /// An id, which [`Client::elicitation_complete`](crate::Client::elicitation_complete) names.
        elicitation_id: String,
    },
}

/// The answer to a form or address.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum ElicitationResponse {
    Accept {
        /// The values of the form, not validated.
        #[serde(default)]
        content: Option<Map<String, Value>>,
    },
    Decline,
    /// The user dismissed the question.
    Cancel,
}
