//! Numbers for Prometheus, at `/metrics`.
//!
//! Start at [`Metrics`].

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    http::{HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::StreamExt as _;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::{Registry, Unit},
};
use tokio::time::Instant;

use crate::{error::ApiError, runs::hub::Hub};

/// The upper bounds of durations in seconds: of requests, and of runs of models.
const SECONDS: [f64; 11] = [0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0, 300.0, 1_800.0, 7_200.0];

/// The numbers of a server since its start.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram, Seconds>,
    streams: Gauge,
    runs: Family<RunLabels, Counter>,
    run_seconds: Family<GraphLabels, Histogram, Seconds>,
    queued: Gauge,
    running: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunLabels {
    graph: String,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GraphLabels {
    graph: String,
}

#[derive(Clone)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(SECONDS)
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("superstep");
        let requests = Family::default();
        registry.register("requests", "Answered requests", requests.clone());
        let request_seconds = Family::new_with_constructor(Seconds);
        let help = "Time until the head of an answer";
        registry.register_with_unit("request_duration", help, Unit::Seconds, request_seconds.clone());
        let streams = Gauge::default();
        registry.register("streams", "Open streams of events", streams.clone());
        let runs = Family::default();
        registry.register("runs", "Ended runs", runs.clone());
        let run_seconds = Family::new_with_constructor(Seconds);
        let help = "Time from the beginning to the end of a run";
        registry.register_with_unit("run_duration", help, Unit::Seconds, run_seconds.clone());
        let (queued, running) = (Gauge::default(), Gauge::default());
        registry.register("runs_queued", "Runs that wait for their turn", queued.clone());
        registry.register("runs_running", "Runs under way", running.clone());
        Self { registry, requests, request_seconds, streams, runs, run_seconds, queued, running }
    }

    /// Counts a run that has ended.
    pub(crate) fn ended(&self, graph: &str, status: &'static str, took: Duration) {
        let graph = graph.to_owned();
        self.run_seconds.get_or_create(&GraphLabels { graph: graph.clone() }).observe(took.as_secs_f64());
        self.runs.get_or_create(&RunLabels { graph, status }).inc();
    }
}

/// An open stream.
struct OpenStream(Gauge);

impl OpenStream {
    fn new(streams: &Gauge) -> Self {
        streams.inc();
        Self(streams.clone())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts a request, and its stream while that is open.
pub(crate) async fn count(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Response {
    let method = match *request.method() {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    };
    let route = request.extensions().get().map_or("unknown", MatchedPath::as_str).to_owned();
    let begin = Instant::now();
    let response = next.run(request).await;
    let Metrics { requests, request_seconds, streams, .. } = &hub.metrics;
    request_seconds
        .get_or_create(&RouteLabels { route: route.clone() })
        .observe(begin.elapsed().as_secs_f64());
    requests.get_or_create(&RequestLabels { method, route, status: response.status().as_u16() }).inc();
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
        return response;
    }
    let open = OpenStream::new(streams);
    response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |chunk| {
            let _open = &open;
            chunk
        }))
    })
}

/// The endpoint `/metrics`.
pub(crate) async fn show(State(hub): State<Arc<Hub>>) -> Result<Response, ApiError> {
    let (queued, running) = hub.queued_and_running();
    hub.metrics.queued.set(gauge(queued));
    hub.metrics.running.set(gauge(running));
    let mut text = String::new();
    encode(&mut text, &hub.metrics.registry).map_err(|error| ApiError::internal(error.to_string()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn gauge(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
