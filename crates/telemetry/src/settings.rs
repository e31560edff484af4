//! The variables of OpenTelemetry that its SDK does not read itself.

use std::env;

use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;
use superstep_llm::variables::is_secret;

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

/// Returns the values of variables that may be secret, and the parts of them that are secret by themselves.
pub(crate) fn secrets() -> Vec<String> {
    let variables = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let secret = variables.filter(|(name, value)| name == "SUPERSTEP_DB" || is_secret(name, value));
    secret.flat_map(|(name, value)| parts(&name, value)).collect()
}

/// Returns a secret value with the password of a URL and the values of headers, which can occur without the rest.
fn parts(name: &str, value: String) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some((_, address)) = value.split_once("://") {
        let user = address.split_once('@').and_then(|(user, _)| user.split_once(':'));
        let query = address.split_once('?').map_or("", |(_, query)| query);
        let set = query.split('&').filter_map(|pair| pair.strip_prefix("password="));
        parts.extend(user.map(|(_, password)| password).into_iter().chain(set).map(str::to_owned));
    }
    if name.to_ascii_uppercase().contains("HEADERS") {
        for header in value.split(',') {
            let content = header.split_once('=').map_or(header, |(_, content)| content).trim();
            parts.push(content.to_owned());
            // A token follows its kind, such as `Bearer`.
            let decoded = decoded(content);
            parts.extend(decoded.rsplit(' ').next().map(str::to_owned));
        }
    }
    if name == "SUPERSTEP_OLD_KEY" {
        parts.extend(value.split(',').map(|key| key.trim().to_owned()));
    }
    let decoded: Vec<_> = parts.iter().map(|part| decoded(part)).collect();
    parts.extend(decoded);
    parts.push(value);
    parts
}

/// Decodes the `%` codes of a part of a URL or of a header.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let digit = |at: usize| others.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        let byte = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
            _ => None,
        };
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &others[2..] } else { others };
    }
    String::from_utf8_lossy(&bytes).into_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_tokens_are_secrets_by_themselves() {
        let has = |name: &str, value: &str, wanted: &[&str]| {
            let parts = parts(name, value.to_owned());
            for part in wanted.iter().chain([&value]) {
                assert!(parts.iter().any(|found| found == part), "{part}: {parts:?}");
            }
        };
        has("SUPERSTEP_DB", "postgres://me:p%40ss/word@db:5432/x?a=b", &["p%40ss/word", "p@ss/word"]);
        has("SUPERSTEP_DB", "postgres://me@db/x?sslmode=require&password=pa%25ss", &["pa%25ss", "pa%ss"]);
        has("SUPERSTEP_DB", "local.db", &[]);
        has("SUPERSTEP_OLD_KEY", "YwEB=, ZwEB=", &["YwEB=", "ZwEB="]);
        has(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "x-key=abc==, authorization=Bearer%20token%2B1,authorization=Basic dTpw",
            &["abc==", "Bearer%20token%2B1", "Bearer token+1", "token+1", "Basic dTpw", "dTpw"],
        );
        assert_eq!(parts("KEY", "100%".to_owned()), ["100%"]);
        assert_eq!(decoded("%é%4%zz%41"), "%é%4%zzA");
    }
}
