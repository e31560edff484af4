//! A program's check of each tool call, and its listener for failed tools.
//!
//! Start at [`ToolCheck`].

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use superstep_llm::Tool;

use super::around::ToolFailure;

/// Decides whether a call may run; the model receives the reason of an `Err`.
pub type OnToolCheck = Arc<dyn Fn(ToolCheck) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Receives the failures of tools.
pub type OnToolError = Arc<dyn Fn(&ToolFailure) + Send + Sync>;

/// The argument of a permission check, made for every call of a known tool with valid arguments,
/// regardless of its source.
#[derive(Clone)]
pub struct ToolCheck {
    /// The tool's name.
    pub name: String,
    /// The tool.
    pub tool: Arc<dyn Tool>,
    /// The arguments.
    pub args: Value,
}
