//! Metrics, computed from spans when they close.
//!
//! Start at [`Metrics`].

use std::{collections::BTreeMap, fmt};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, MeterProvider as _},
};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use tokio::time::Instant;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use crate::{SCOPE, names};

/// The limits of the buckets of durations, in seconds.
const SECONDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// The limits of the buckets of tokens.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// The limits of the buckets of sizes, in bytes.
const BYTES: [f64; 8] = [256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 16_777_216.0];

/// A layer that records the metrics of [`names`].
pub(crate) struct Metrics {
    operations: Histogram<f64>,
    tokens: Histogram<u64>,
    token_parts: Counter<u64>,
    runs: Histogram<f64>,
    nodes: Histogram<f64>,
    tools: Histogram<f64>,
    checkpoints: Histogram<u64>,
    repeated: Counter<u64>,
    cost: Counter<f64>,
}

impl Metrics {
    pub(crate) fn new(provider: &SdkMeterProvider) -> Self {
        let meter = provider.meter(SCOPE);
        let seconds = |name, description| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(description);
            histogram.with_boundaries(SECONDS.to_vec()).build()
        };
        let amounts = |name, unit, description, limits: &[f64]| {
            let histogram = meter.u64_histogram(name).with_unit(unit).with_description(description);
            histogram.with_boundaries(limits.to_vec()).build()
        };
        Self {
            operations: seconds(names::OPERATION_DURATION, "The duration of requests to models"),
            tokens: amounts(names::TOKEN_USAGE, "{token}", "The tokens of requests to models", &TOKENS),
            token_parts: meter
                .u64_counter(names::TOKEN_PARTS)
                .with_unit("{token}")
                .with_description("The tokens of requests that were cached or spent on reasoning")
                .build(),
            runs: seconds(names::RUN_DURATION, "The duration of runs"),
            nodes: seconds(names::NODE_DURATION, "The duration of attempts of nodes"),
            tools: seconds(names::TOOL_DURATION, "The duration of calls of tools and sub-agents"),
            checkpoints: amounts(names::CHECKPOINT_SIZE, "By", "The updates of stored checkpoints", &BYTES),
            repeated: meter
                .u64_counter(names::REPEATED)
                .with_unit("{attempt}")
                .with_description("Failed attempts and requests that are repeated")
                .build(),
            cost: meter
                .f64_counter(names::COST)
                .with_description("The cost of calls of models, in the currency of the configured prices")
                .build(),
        }
    }

    /// Records a closed span.
    fn closed(&self, span: &str, fields: &Fields, seconds: f64) {
        match span {
            "chat" => {
                let mut labels = fields.labels(&[names::OPERATION, names::MODEL, names::ERROR]);
                self.operations.record(seconds, &labels);
                labels.retain(|label| label.key.as_str() != names::ERROR);
                let of_kind = |field, kind| {
                    let kind = KeyValue::new(names::TOKEN_TYPE, kind);
                    let tokens = fields.numbers.get(field)?;
                    Some((*tokens, [&labels[..], &[kind]].concat()))
                };
                for (field, kind) in [(names::INPUT_TOKENS, "input"), (names::OUTPUT_TOKENS, "output")] {
                    if let Some((tokens, labels)) = of_kind(field, kind) {
                        self.tokens.record(tokens, &labels);
                    }
                }
                for (field, kind) in [
                    (names::CACHE_READ_TOKENS, "cache_read"),
                    (names::CACHE_WRITE_TOKENS, "cache_write"),
                    (names::REASONING_TOKENS, "reasoning"),
                ] {
                    if let Some((tokens, labels)) = of_kind(field, kind) {
                        self.token_parts.add(tokens, &labels);
                    }
                }
            }
            "run" => self.runs.record(seconds, &fields.labels(&[names::GRAPH, names::STATUS, names::ERROR])),
            "node" => self.nodes.record(seconds, &fields.labels(&[names::NODE, names::STATUS, names::ERROR])),
            "execute_tool" | "invoke_agent" => {
                let labels = [names::OPERATION, names::TOOL, names::AGENT, names::ERROR];
                self.tools.record(seconds, &fields.labels(&labels));
            }
            _ => {}
        }
    }
}

/// The fields of a span that metrics have as values or as labels.
#[derive(Default)]
struct Fields {
    texts: BTreeMap<&'static str, String>,
    numbers: BTreeMap<&'static str, u64>,
    cost: Option<f64>,
}

impl Fields {
    /// Returns those of the fields that are there. None has a value with many different values, such as a thread's name.
    fn labels(&self, names: &[&'static str]) -> Vec<KeyValue> {
        let found = names.iter().filter_map(|name| Some((*name, self.texts.get(name)?.clone())));
        found.map(|(name, value)| KeyValue::new(name, value)).collect()
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.texts.insert(field.name(), value.to_owned());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.numbers.insert(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        if let Ok(value) = u64::try_from(value) {
            self.record_u64(field, value);
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // A counter takes no other values; infinite without a price.
        if field.name() == "cost" && value.is_finite() && value >= 0.0 {
            self.cost = Some(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// An open span.
struct Open {
    since: Instant,
    fields: Fields,
}

#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a duration of a metric decides nothing"
)]
impl<S> Layer<S> for Metrics
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let Some(span) = cx.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(Open { since: Instant::now(), fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: Context<'_, S>) {
        let Some(span) = cx.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            values.record(&mut open.fields);
        }
    }

    fn on_close(&self, id: Id, cx: Context<'_, S>) {
        let Some(span) = cx.span(&id) else { return };
        let open = span.extensions_mut().remove::<Open>();
        if let Some(Open { since, fields }) = open {
            self.closed(span.name(), &fields, since.elapsed().as_secs_f64());
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if let Some(cost) = fields.cost {
            self.cost.add(cost, &fields.labels(&[names::MODEL]));
        } else if fields.numbers.contains_key("checkpoint") {
            self.checkpoints.record(fields.numbers.get("bytes").copied().unwrap_or(0), &[]);
        } else if fields.numbers.contains_key("delay_ms") {
            self.repeated.add(1, &fields.labels(&[names::NODE]));
        }
    }
}
