//! Helpers shared by the tests of the tools.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use serde_json::Value;
use superstep_llm::{Tool, ToolCx, ToolError};

pub(crate) fn cx() -> ToolCx {
    ToolCx::new("c1")
}

/// Calls a tool and returns the result that the model receives.
pub(crate) async fn call(tool: &impl Tool, args: Value) -> String {
    tool.call(args, cx()).await.unwrap().text
}

/// Calls a tool and returns the error that the model receives.
pub(crate) async fn refusal(tool: &impl Tool, args: Value) -> String {
    tool.call(args, cx()).await.unwrap_err().to_string()
}

/// Calls a tool that is cancelled before it starts.
pub(crate) async fn cancelled(tool: &impl Tool, args: Value) -> Result<String, ToolError> {
    let cx = cx();
    cx.cancel.cancel();
    tool.call(args, cx).await.map(|reply| reply.text)
}
