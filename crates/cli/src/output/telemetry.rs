//! The export of traces and metrics.

use std::env;

use superstep::{
    error::chain,
    telemetry::{self, continue_trace, is_requested},
};
use tracing::{Span, Subscriber};
use tracing_subscriber::{Layer, registry::LookupSpan};

use super::note::print_note;

/// The export of a program. Dropping it exports what is left.
pub(crate) struct Telemetry(Option<telemetry::Telemetry>);

impl Telemetry {
    /// Starts the export that the environment requests. Its variables are those of other programs too, so that what is wrong with
    /// them is only reported.
    pub(crate) fn start(program: &str) -> Option<Self> {
        if !is_requested() {
            return None;
        }
        let started = telemetry::Telemetry::start(program);
        if let Err(error) = &started {
            print_note(&format!("traces and metrics are not exported: {}", chain(error)));
        }
        started.ok().map(|started| Self(Some(started)))
    }

    /// Returns the layer that exports spans.
    pub(crate) fn layer<S>(&self) -> Option<impl Layer<S> + Send + Sync + use<S>>
    where
        S: Subscriber + for<'s> LookupSpan<'s> + Send + Sync,
    {
        self.0.as_ref().map(telemetry::Telemetry::layer)
    }

    /// Makes `span` a part of the trace of the environment.
    pub(crate) fn continue_trace(&self, span: &Span) {
        continue_trace(span, |header| env::var(header.to_ascii_uppercase()).ok());
    }
}

/// Makes `span` a part of the trace that a client names, as the header `traceparent`.
pub(super) fn continue_trace_of(span: &Span, traceparent: &str) {
    continue_trace(span, |header| (header == "traceparent").then(|| traceparent.to_owned()));
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        let ended = self.0.take().map_or(Ok(()), telemetry::Telemetry::end);
        if let Err(error) = ended {
            print_note(&chain(&error));
        }
    }
}
