//! Numbers for Prometheus.
//!
//! Start at [`Metrics`].

use std::{fmt, time::Duration};

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

    /// Counts a request of a route that was answered.
    pub(crate) fn answered(&self, method: &'static str, route: String, status: u16, took: Duration) {
        let labels = RouteLabels { route: route.clone() };
        self.request_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        self.requests.get_or_create(&RequestLabels { method, route, status }).inc();
    }

    /// Counts a stream until the result is dropped.
    pub(crate) fn open_stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream(self.streams.clone())
    }

    /// Returns all numbers as text, with those of the runs that wait and are under way.
    pub(crate) fn text(&self, queued: usize, running: usize) -> Result<String, fmt::Error> {
        let number = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.queued.set(number(queued));
        self.running.set(number(running));
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// An open stream.
pub(crate) struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}
