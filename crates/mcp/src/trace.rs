//! The spans of calls of MCP servers, for `tracing`. No field has an argument or a result.
//!
//! Their names and fields are those of OpenTelemetry's conventions for MCP.
//!
//! # Source
//! OpenTelemetry, Semantic Conventions for the Model Context Protocol; the trace context in `_meta` is proposal SEP-414 of the
//! protocol.

use rmcp::model::{MetaObject, RequestMetaObject};
use superstep_llm::telemetry::trace_headers;
use tracing::{Span, field::Empty};

/// Returns the span of a call of a server's tool.
pub(crate) fn call(server: &str, tool: &str) -> Span {
    tracing::info_span!(
        "tools/call",
        mcp.method.name = "tools/call",
        mcp.server = server,
        gen_ai.tool.name = tool,
        "error.type" = Empty,
        otel.name = %format_args!("tools/call {tool}"),
        otel.kind = "client",
        otel.status_code = Empty,
    )
}

/// Records that a call had no result.
pub(crate) fn failed(span: &Span, kind: &str) {
    span.record("error.type", kind).record("otel.status_code", "ERROR");
}

/// Returns the metadata of a request that continues the trace of the current span; `None` if it is not exported.
pub(crate) fn context() -> Option<RequestMetaObject> {
    let headers = trace_headers();
    let mut meta = MetaObject::new();
    for (name, value) in &headers {
        meta.0.insert(name.clone(), value.clone().into());
    }
    (!headers.is_empty()).then_some(RequestMetaObject(meta))
}
