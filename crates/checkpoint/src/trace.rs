//! The spans of requests to databases, for `tracing`. No field has a stored value.
//!
//! # Source
//! OpenTelemetry, Semantic Conventions for database client spans.

use tracing::Span;

use crate::ThreadId;

/// Returns the span of a request of a checkpointer to its database: `commit`, `record`, `load` or `prune`.
pub fn request(system: &'static str, operation: &'static str, thread: &ThreadId) -> Span {
    tracing::debug_span!(
        "database",
        db.system.name = system,
        db.operation.name = operation,
        thread = thread.root().as_str(),
        otel.name = %format_args!("{operation} {system}"),
        otel.kind = "client",
    )
}
