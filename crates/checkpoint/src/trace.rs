//! The spans of requests to databases, for `tracing`. No field has a stored value.
//!
//! # Source
//! OpenTelemetry, Semantic Conventions for database client spans.

use futures::future::BoxFuture;
use tracing::Instrument as _;

use crate::ThreadId;

/// Runs a request of a checkpointer to its database in a span: `commit`, `record`, `load` or `prune`. `request` receives the thread.
pub fn in_span<'a, F: Future + Send + 'a>(
    system: &'static str,
    operation: &'static str,
    thread: &ThreadId,
    request: impl FnOnce(ThreadId) -> F,
) -> BoxFuture<'a, F::Output> {
    let span = tracing::debug_span!(
        "database",
        db.system.name = system,
        db.operation.name = operation,
        thread = thread.root().as_str(),
        otel.name = %format_args!("{operation} {system}"),
        otel.kind = "client",
    );
    let request = request(thread.clone());
    if span.is_disabled() { Box::pin(request) } else { Box::pin(request.instrument(span)) }
}
