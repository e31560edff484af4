//! Answers of JSON-RPC 2.0.
//!
//! Start at [`reply`].

use serde_json::{Value, json};

use crate::error::ApiError;

/// An error of JSON-RPC.
pub(super) struct Failure {
    code: i64,
    message: String,
}

impl Failure {
    /// Creates the error of parameters that are not valid.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { code: -32602, message: message.into() }
    }

    /// Creates an error of the server.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self { code: -32603, message: message.into() }
    }

    /// Creates the error of A2A for a task that does not exist.
    pub(super) fn unknown_task(id: &str) -> Self {
        Self { code: -32001, message: format!("task `{id}` not found") }
    }

    /// Creates the error of A2A for a task that has ended, or waits for an answer, and cannot be cancelled.
    pub(super) fn ended_task(id: &str) -> Self {
        Self { code: -32002, message: format!("task `{id}` does not run") }
    }

    /// Creates the error of a method that is not supported.
    pub(super) fn unknown_method(method: &str) -> Self {
        Self { code: -32601, message: format!("method `{method}` is not supported") }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        if error.status.is_server_error() {
            Self::internal(error.detail)
        } else {
            Self::invalid(error.detail)
        }
    }
}

/// Returns the answer to the request of this id.
pub(super) fn reply(id: &Value, answer: Result<Value, Failure>) -> Value {
    match answer {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(Failure { code, message }) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
        }
    }
}
