//! The spans of calls of tools and sub-agents, and the cost of models, for `tracing`. No field has an argument or a result.
//!
//! Their names and fields are those of OpenTelemetry's conventions for generative AI.
//!
//! # Source
//! OpenTelemetry, Semantic Conventions for GenAI agent spans.

use tracing::{Span, field::Empty};

/// The attribute with the arguments of a call, if content is captured.
pub(crate) const ARGUMENTS: &str = "gen_ai.tool.call.arguments";

/// The attribute with the result of a call, if content is captured.
pub(crate) const RESULT: &str = "gen_ai.tool.call.result";

/// Returns the span of a call of a tool.
pub(crate) fn execute_tool(tool: &str, call: &str) -> Span {
    tracing::info_span!(
        "execute_tool",
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool,
        gen_ai.tool.call.id = call,
        "error.type" = Empty,
        otel.name = %format_args!("execute_tool {tool}"),
        otel.status_code = Empty,
    )
}

/// Returns the span of a call of a sub-agent.
pub(crate) fn invoke_agent(agent: &str, call: &str) -> Span {
    tracing::info_span!(
        "invoke_agent",
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = agent,
        gen_ai.tool.call.id = call,
        "error.type" = Empty,
        otel.name = %format_args!("invoke_agent {agent}"),
        otel.status_code = Empty,
    )
}

pub(crate) fn failed(span: &Span) {
    span.record("error.type", "tool_error").record("otel.status_code", "ERROR");
}

/// Emits the cost of a model call, if the prices are configured.
pub(crate) fn paid(model: &str, cost: Option<f64>) {
    if let Some(cost) = cost {
        tracing::debug!(gen_ai.request.model = model, cost, "a model call was paid");
    }
}
