//! The spans and events of requests to models, for `tracing`. No field has a text of the conversation; see `content` for attributes that
//! may have one.
//!
//! The span `chat` and its fields have the names of OpenTelemetry's conventions for generative AI, which are in development; those
//! that begin with `otel.` are read by `tracing-opentelemetry`.
//!
//! # Source
//! OpenTelemetry, Semantic Conventions for GenAI client spans.

use serde::Serialize;
use serde_json::Value;
use tracing::{Span, field::Empty};

use crate::{Delta, ModelError, Request};

pub(crate) fn chat(model: &str, request: &Request, attempt: u32) -> Span {
    tracing::info_span!(
        "chat",
        gen_ai.operation.name = "chat",
        gen_ai.request.model = model,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        gen_ai.usage.cache_write.input_tokens = Empty,
        gen_ai.usage.reasoning.output_tokens = Empty,
        gen_ai.response.finish_reasons = Empty,
        attempt,
        messages = request.messages.len(),
        http.response.status_code = Empty,
        "error.type" = Empty,
        otel.name = %format_args!("chat {model}"),
        otel.kind = "client",
        otel.status_code = Empty,
    )
}

/// Records what a part of the answer says about the request.
pub(crate) fn streamed(span: &Span, delta: &Delta) {
    if span.is_disabled() {
        return;
    }
    match delta {
        Delta::Usage(usage) => {
            span.record("gen_ai.usage.input_tokens", usage.input_tokens);
            span.record("gen_ai.usage.output_tokens", usage.output_tokens);
            for (name, tokens) in [
                ("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens),
                ("gen_ai.usage.cache_write.input_tokens", usage.cache_write_tokens),
                ("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens),
            ] {
                if tokens > 0 {
                    span.record(name, tokens);
                }
            }
        }
        Delta::Finish(reason) => {
            span.record("gen_ai.response.finish_reasons", name(reason));
        }
        _ => {}
    }
}

/// Records the failure of a request.
pub(crate) fn failed(span: &Span, error: &ModelError) {
    if span.is_disabled() {
        return;
    }
    span.record("error.type", name(error.kind)).record("otel.status_code", "ERROR");
    if let Some(status) = error.status {
        span.record("http.response.status_code", status);
    }
}

/// Emits that a failed request is repeated, or sent to another model.
pub(crate) fn continued(model: &str, delta: &Delta) {
    match delta {
        Delta::Retry { attempt, delay_ms, status, reason } => {
            tracing::warn!(
                model,
                attempt,
                delay_ms,
                status,
                reason,
                "a failed request to a model is repeated"
            );
        }
        Delta::Fallback { to, status, reason, .. } => {
            tracing::warn!(model, to, status, reason, "another model is called");
        }
        _ => {}
    }
}

/// Returns the headers with which a request to another program continues the trace of the current span: `traceparent`, and
/// `tracestate` if there is one, in the form of the process-wide propagator of OpenTelemetry. Empty without the feature
/// `opentelemetry`, and for a span that is not exported.
///
/// Models and MCP servers receive them by themselves. Add them to the requests of your own tools:
///
/// ```
/// let headers: Vec<(String, String)> = superstep_llm::telemetry::trace_headers();
/// assert!(headers.is_empty()); // nothing is exported here
/// ```
///
/// # Source
/// W3C, Trace Context.
pub fn trace_headers() -> Vec<(String, String)> {
    #[cfg(feature = "opentelemetry")]
    {
        use tracing_opentelemetry::OpenTelemetrySpanExt as _;
        let mut headers = Headers(Vec::new());
        let context = Span::current().context();
        opentelemetry::global::get_text_map_propagator(|propagator| {
            propagator.inject_context(&context, &mut headers);
        });
        headers.0
    }
    #[cfg(not(feature = "opentelemetry"))]
    Vec::new()
}

/// The headers that a propagator writes.
#[cfg(feature = "opentelemetry")]
struct Headers(Vec<(String, String)>);

#[cfg(feature = "opentelemetry")]
impl opentelemetry::propagation::Injector for Headers {
    fn set(&mut self, key: &str, value: String) {
        if !value.is_empty() {
            self.0.push((key.to_owned(), value));
        }
    }
}

/// Returns the stored name of a value without fields.
fn name(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        _ => "other".to_owned(),
    }
}
