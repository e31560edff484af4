//! The variables of OpenTelemetry that its SDK does not read itself.

use std::env;

use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;

use crate::TelemetryError;

const SUPPORTED_PROTOCOL: &str = "http/protobuf";

/// Returns whether the environment requests an export: it has the address of a collector, and `OTEL_SDK_DISABLED` is not `true`.
pub fn is_requested() -> bool {
    let is_disabled = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let addresses = [
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    ];
    !is_disabled && addresses.iter().any(|name| variable(name).is_some())
}

/// Returns the value of a variable. An empty one is not set, as OpenTelemetry specifies.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Rejects protocols that this build does not have.
pub(crate) fn check_protocol() -> Result<(), TelemetryError> {
    let variables = [
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
    ];
    for name in variables {
        if let Some(value) = variable(name).filter(|value| value != SUPPORTED_PROTOCOL) {
            return Err(TelemetryError::Unsupported { variable: name, value, supported: SUPPORTED_PROTOCOL });
        }
    }
    Ok(())
}

/// The variable of OpenTelemetry's instrumentations of generative AI that selects whether content is captured.
const CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// Returns whether the content of spans is captured: `SPAN_ONLY`, or `true` as in its earlier form; by default not.
pub(crate) fn captures_content() -> Result<bool, TelemetryError> {
    let value = variable(CONTENT);
    match value.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("false" | "no_content") => Ok(false),
        Some("true" | "span_only") => Ok(true),
        // Content is not exported as events.
        Some(_) => Err(TelemetryError::Unsupported {
            variable: CONTENT,
            value: value.unwrap_or_default(),
            supported: "SPAN_ONLY` or `NO_CONTENT",
        }),
    }
}

/// Returns the values of variables whose names say that they are secret.
pub(crate) fn secrets() -> Vec<String> {
    const WORDS: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "HEADERS", "SUPERSTEP_DB"];
    let is_secret = |name: &str| WORDS.iter().any(|word| name.to_ascii_uppercase().contains(word));
    let variables = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    variables.filter(|(name, _)| is_secret(name)).map(|(_, value)| value).collect()
}

/// Returns whether the exporter that a variable selects is that of OTLP, the default, and not `none`.
pub(crate) fn exports(name: &'static str) -> Result<bool, TelemetryError> {
    match variable(name).as_deref() {
        None | Some("otlp") => Ok(true),
        Some("none") => Ok(false),
        Some(value) => {
            let value = value.to_owned();
            Err(TelemetryError::Unsupported { variable: name, value, supported: "otlp` or `none" })
        }
    }
}

/// Returns the description of this program, with `service` as its name if the environment has none.
pub(crate) fn resource(service: &str) -> Resource {
    let found = Resource::builder().build();
    let name = found.get(&Key::from_static_str("service.name"));
    let is_named = name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let own = (!is_named).then(|| KeyValue::new("service.name", service.to_owned()));
    Resource::builder().with_attributes(own).build()
}
