//! What a model may call.

use std::{borrow::Cow, future::Future, pin::Pin};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// What a model is told of a [`Tool`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name it is called by.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub parameters: Value,
}

/// What a [`Tool`] gets beside its arguments.
#[derive(Clone, Debug)]
pub struct ToolCx {
    /// The id of the call it answers.
    pub call_id: String,
    /// Equal for every attempt of the same call, different for any other call: hand it to services that take one.
    pub idempotency_key: String,
    /// Fires when the run is cancelled or the tool's time is up; a tool that honours it returns soon after.
    pub cancel: CancellationToken,
}

/// What became of a tool call that failed: the text is what the model reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The arguments are valid JSON but not what the tool takes.
    #[error("{0}")]
    InvalidArguments(String),
    /// A rule or a person forbids the call.
    #[error("{0}")]
    Denied(String),
    /// The tool tried and failed.
    #[error("{0}")]
    Failed(String),
}

impl ToolError {
    /// A failure with any message.
    pub fn failed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Failed(message.into().into_owned())
    }
}

/// The future of one tool call: the text the model reads, or why there is none.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<String, ToolError>> + Send + 'a>>;

/// Something a model may call.
pub trait Tool: Send + Sync {
    /// Name, description and argument schema.
    fn spec(&self) -> &ToolSpec;

    /// What a person is asked before this call runs, a few lines of text; `None` if nobody needs to be asked.
    ///
    /// Asked only for arguments that pass the schema. The executor asks; the tool does not.
    fn approval(&self, args: &Value) -> Option<String> {
        let _ = args;
        None
    }

    /// Runs one call. `args` has been checked against the schema of [`Tool::spec`].
    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_>;
}
