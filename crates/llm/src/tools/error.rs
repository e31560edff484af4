//! The error of a tool call.

use std::borrow::Cow;

/// The error of a failed tool call: the model reads the text.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The arguments are valid JSON but do not fit the tool.
    #[error("{0}")]
    InvalidArguments(String),
    /// A rule or a person forbids the call.
    #[error("{0}")]
    Denied(String),
    /// The tool failed.
    #[error("{0}")]
    Failed(String),
}

crate::debug_by_chain!(ToolError);

impl ToolError {
    /// Creates a failure with any message.
    pub fn failed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Failed(message.into().into_owned())
    }
}
