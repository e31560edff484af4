//! Export of the traces and metrics of superstep by OpenTelemetry.
//!
//! superstep describes runs as spans and events of `tracing`. This crate converts them into traces and metrics and sends them to a
//! collector by OTLP over HTTP. Start at [`Telemetry`].

mod metrics;
pub mod names;
mod settings;

use opentelemetry::{
    global,
    propagation::Extractor,
    trace::{TraceContextExt as _, TracerProvider as _},
};
use opentelemetry_otlp::{ExporterBuildError, MetricExporter, SpanExporter};
use opentelemetry_sdk::{
    error::OTelSdkError, metrics::SdkMeterProvider, propagation::TraceContextPropagator,
    trace::SdkTracerProvider,
};
use superstep_llm::telemetry::{ContentCapture, capture_content};
use tracing::{Level, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};

pub use settings::is_requested;

use self::metrics::Metrics;

/// The maximum size of a captured attribute, in bytes.
const MAX_CONTENT_BYTES: usize = 32 << 10;

/// The name of the instrumentation.
const SCOPE: &str = "superstep";

/// The export of traces and metrics to a collector.
///
/// Reads the standard variables of OpenTelemetry: `OTEL_EXPORTER_OTLP_ENDPOINT` (`http://localhost:4318` by default) and
/// `OTEL_EXPORTER_OTLP_HEADERS`, those for `TRACES` and `METRICS` alone, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
/// `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_EXPORTER=none`, `OTEL_METRICS_EXPORTER=none`, `OTEL_METRIC_EXPORT_INTERVAL` and those of
/// batches. The protocol is `http/protobuf`.
///
/// Prompts, replies, arguments and results are exported only if `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` is `SPAN_ONLY` or
/// `true`: at most 32 KiB for each attribute, and without the values of variables whose names say that they are secret.
///
/// An OS thread exports in the background. What a collector does not take in time is dropped; no run waits for it.
///
/// ```no_run
/// use superstep_telemetry::Telemetry;
/// use tracing_subscriber::layer::SubscriberExt as _;
/// use tracing_subscriber::util::SubscriberInitExt as _;
///
/// let telemetry = Telemetry::start("support-bot")?;
/// tracing_subscriber::registry().with(telemetry.layer()).init();
/// // Runs of graphs and agents ..
/// telemetry.end()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
/// OpenTelemetry, Environment Variable Specification.
#[derive(Debug)]
#[must_use = "dropping it ends the export"]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
}

/// A failure to export.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// A variable of OpenTelemetry has a value that is not supported.
    #[error("`{variable}` is `{value}`, and the only supported value is `{supported}`")]
    Unsupported {
        /// The name of the variable.
        variable: &'static str,
        /// The value of the variable.
        value: String,
        /// The supported value.
        supported: &'static str,
    },
    /// The exporter rejects its settings.
    #[error(
        "the exporter of OpenTelemetry rejects its settings; check the variables that begin with `OTEL_`"
    )]
    Settings(#[source] ExporterBuildError),
    /// The last spans or metrics were not exported.
    #[error("the last traces or metrics could not be exported; check the collector and its address")]
    Export(#[source] OTelSdkError),
}

superstep_llm::debug_by_chain!(TelemetryError);

impl Telemetry {
    /// Starts the export, and makes the W3C Trace Context the form in which [`trace_headers`](superstep_llm::telemetry::trace_headers) pass the
    /// current span to other programs. `service` is the service's name if the environment has none.
    ///
    /// # Errors
    /// [`TelemetryError`] if a variable has a value that is not supported.
    pub fn start(service: &str) -> Result<Self, TelemetryError> {
        settings::check_protocol()?;
        if settings::captures_content()? {
            // In a process that captures already, its first limits apply.
            capture_content(ContentCapture { limit: MAX_CONTENT_BYTES, secrets: settings::secrets() });
        }
        let resource = settings::resource(service);
        let traces =
            settings::exports("OTEL_TRACES_EXPORTER")?.then(|| SpanExporter::builder().with_http().build());
        let traces = traces.transpose().map_err(TelemetryError::Settings)?.map(|exporter| {
            SdkTracerProvider::builder().with_resource(resource.clone()).with_batch_exporter(exporter).build()
        });
        let metrics = settings::exports("OTEL_METRICS_EXPORTER")?
            .then(|| MetricExporter::builder().with_http().build());
        let metrics = metrics.transpose().map_err(TelemetryError::Settings)?.map(|exporter| {
            SdkMeterProvider::builder().with_resource(resource).with_periodic_exporter(exporter).build()
        });
        global::set_text_map_propagator(TraceContextPropagator::new());
        Ok(Self { traces, metrics })
    }

    /// Returns the layer that observes the spans and events of superstep. Spans of other libraries may have contents and are not
    /// exported; add a layer of `tracing-opentelemetry` for those of your own program.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let traces = self.traces.as_ref().map(|provider| {
            tracing_opentelemetry::layer()
                .with_tracer(provider.tracer(SCOPE))
                .with_location(false)
                .with_threads(false)
                .with_tracked_inactivity(false)
        });
        let metrics = self.metrics.as_ref().map(Metrics::new);
        let layers: Vec<_> = traces.map(Layer::boxed).into_iter().chain(metrics.map(Layer::boxed)).collect();
        layers.with_filter(Targets::new().with_target(SCOPE, Level::DEBUG))
    }

    /// Exports what is left and ends. Blocks the calling thread for at most 5 s each for traces and metrics.
    ///
    /// # Errors
    /// [`TelemetryError::Export`] if the collector does not take it.
    pub fn end(self) -> Result<(), TelemetryError> {
        let traces = self.traces.map_or(Ok(()), |provider| provider.shutdown());
        let metrics = self.metrics.map_or(Ok(()), |provider| provider.shutdown());
        traces.and(metrics).map_err(TelemetryError::Export)
    }
}

/// Makes a span part of the trace of another program, by the headers of its request: `header` returns the value of `traceparent`
/// or `tracestate`. Returns `false` if there is no valid `traceparent`, or the span is not exported.
///
/// Call it before the span is entered.
pub fn continue_trace(span: &Span, header: impl Fn(&str) -> Option<String>) -> bool {
    let headers = Headers(["traceparent", "tracestate"].map(|name| (name, header(name))));
    let parent = global::get_text_map_propagator(|propagator| propagator.extract(&headers));
    parent.span().span_context().is_valid() && span.set_parent(parent).is_ok()
}

/// The headers of the W3C Trace Context.
struct Headers([(&'static str, Option<String>); 2]);

impl Extractor for Headers {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == key)?.1.as_deref()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }
}
