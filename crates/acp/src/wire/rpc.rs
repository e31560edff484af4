//! Ids and errors of JSON-RPC.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The codes of errors.
pub mod code {
    /// The line is not JSON.
    pub const PARSE_ERROR: i32 = -32700;
    /// The line is not a message, or arrives at the wrong time.
    pub const INVALID_REQUEST: i32 = -32600;
    /// The method is unknown.
    pub const METHOD_NOT_FOUND: i32 = -32601;
    /// The parameters are invalid.
    pub const INVALID_PARAMS: i32 = -32602;
    /// The request failed.
    pub const INTERNAL_ERROR: i32 = -32603;
    /// The client cancelled the request.
    pub const REQUEST_CANCELLED: i32 = -32800;
    /// The session is unknown.
    pub const RESOURCE_NOT_FOUND: i32 = -32002;
}

/// The id of a request, which its response repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestId {
    /// `null`.
    Null,
    /// An integer.
    Integer(i64),
    /// A text.
    Text(String),
}

/// The error of a request.
#[derive(Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// One of [`code`].
    pub code: i32,
    /// The message for the user.
    pub message: String,
    /// Details for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl fmt::Debug for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl RpcError {
    /// Creates an error without details.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Creates the error of invalid parameters.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// Creates the error of an unknown session.
    pub fn unknown_session(id: &str) -> Self {
        let error = Self::new(code::RESOURCE_NOT_FOUND, format!("unknown session `{id}`"));
        Self { data: Some(json!({ "uri": id })), ..error }
    }

    /// Creates the error of a failed request with a reason for programs, such as `thread_busy` or `database`.
    pub fn internal(reason: &str, message: impl Into<String>) -> Self {
        Self { data: Some(json!({ "reason": reason })), ..Self::new(code::INTERNAL_ERROR, message) }
    }
}
