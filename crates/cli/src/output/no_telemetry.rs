//! A build that exports no traces and metrics.

use std::env;

use tracing::{Span, Subscriber};
use tracing_subscriber::{Layer, layer::Identity, registry::LookupSpan};

use superstep_session::error::how_to_add;

use super::note::print_note;

/// The variables that name a collector.
const REQUESTS: [&str; 3] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
];

/// The export of a program, which this build never starts.
pub(crate) enum Telemetry {}

impl Telemetry {
    /// Reports that nothing is exported, if the environment names a collector.
    pub(crate) fn start(_: &str) -> Option<Self> {
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        if let Some(name) = REQUESTS.into_iter().find(|name| is_set(name)) {
            let how = how_to_add("telemetry");
            print_note(&format!(
                "no traces and metrics are exported to `{name}`, which needs a build with the feature `telemetry`; {how}"
            ));
        }
        None
    }

    pub(crate) fn layer<S>(&self) -> Option<impl Layer<S> + Send + Sync + use<S>>
    where
        S: Subscriber + for<'s> LookupSpan<'s> + Send + Sync,
    {
        None::<Identity>
    }

    pub(crate) fn continue_trace(&self, _: &Span) {
        match *self {}
    }
}

pub(super) fn continue_trace_of(_: &Span, _: &str) {}
