//! The spans and events of a run: on stderr for `--log` and `RUST_LOG`, and to a collector for the variables of OpenTelemetry.

use std::{env, fmt, io, str::FromStr};

use superstep::llm::text::printable_line;
use tracing::{
    Span,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{
    Layer as _,
    field::RecordFields,
    filter::{LevelFilter, Targets},
    fmt::{
        FormatFields, FormattedFields,
        format::{FmtSpan, Writer},
    },
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use super::{
    note::print_note,
    telemetry::{Telemetry, continue_trace_of},
};

/// The variable that selects what is logged without `--log`.
const VARIABLE: &str = "RUST_LOG";

/// A selection of spans and events: a level for superstep, or levels for single targets.
#[derive(Clone, Debug)]
pub(crate) struct LogFilter(Targets);

impl FromStr for LogFilter {
    type Err = String;

    /// Parses a level, which applies to superstep alone, or a list such as `superstep=debug,rmcp=info`.
    fn from_str(text: &str) -> Result<Self, String> {
        // An empty text would be the level `error`.
        if let Ok(level) = LevelFilter::from_str(text)
            && !text.is_empty()
        {
            return Ok(Self(Targets::new().with_target("superstep", level)));
        }
        // Without a level, a target would have all of them.
        let is_whole = text.split(',').all(|entry| entry.contains('='));
        let targets = is_whole.then(|| Targets::from_str(text).ok()).flatten();
        targets.map(Self).ok_or_else(|| {
            "it is a level (error, warn, info, debug, trace), or a list of targets with their levels such as \
             `superstep=debug,rmcp=info`"
                .to_owned()
        })
    }
}

/// The log and the export of a program.
pub(crate) struct Observed {
    telemetry: Option<Telemetry>,
}

impl Observed {
    /// Returns the span of a command, which continues the trace of the environment; without a name if nothing is exported.
    pub(crate) fn command(&self, program: &str, command: &str) -> Span {
        let Some(telemetry) = &self.telemetry else { return Span::none() };
        let span = tracing::info_span!("command", program, otel.name = %format_args!("{program} {command}"));
        telemetry.continue_trace(&span);
        span
    }
}

/// Returns the span of a client's request, which continues the trace of its `traceparent`; without a name if there is none.
pub(crate) fn request(traceparent: Option<&str>) -> Span {
    let Some(traceparent) = traceparent else { return Span::none() };
    let span = tracing::info_span!("request");
    continue_trace_of(&span, traceparent);
    span
}

/// Logs what `filter` selects, or the variable `RUST_LOG`, and exports traces and metrics if the variables of OpenTelemetry name a
/// collector. Otherwise it does nothing.
pub(crate) fn begin(filter: Option<LogFilter>, program: &str) -> Observed {
    let filter = filter.or_else(of_environment);
    let telemetry = (!tracing::dispatcher::has_been_set()).then(|| Telemetry::start(program)).flatten();
    if filter.is_none() && telemetry.is_none() {
        return Observed { telemetry };
    }
    let lines = filter.map(|filter| {
        let lines =
            tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false).with_target(false);
        lines.with_span_events(FmtSpan::CLOSE).fmt_fields(Fields).with_filter(filter.0)
    });
    let exported = telemetry.as_ref().and_then(Telemetry::layer);
    if tracing_subscriber::registry().with(lines).with(exported).try_init().is_err() {
        print_note("`--log` has no effect: the program has a subscriber of its own for `tracing`");
    }
    Observed { telemetry }
}

/// Returns the filter of the environment. Other programs read that variable too, so an unknown form is only reported.
fn of_environment() -> Option<LogFilter> {
    if tracing::dispatcher::has_been_set() {
        return None;
    }
    let text = env::var(VARIABLE).ok().filter(|text| !text.trim().is_empty())?;
    let filter = text.parse();
    if let Err(reason) = &filter {
        print_note(&format!("`{VARIABLE}` is ignored: {reason}"));
    }
    filter.ok()
}

/// The fields of a span or an event on one line, without those that repeat others for OpenTelemetry.
struct Fields;

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut line = Line(String::new());
        fields.record(&mut line);
        writer.write_str(&line.0)
    }

    fn add_fields(&self, current: &'w mut FormattedFields<Self>, fields: &span::Record<'_>) -> fmt::Result {
        let mut line = Line(std::mem::take(&mut current.fields));
        fields.record(&mut line);
        current.fields = line.0;
        Ok(())
    }
}

/// The fields that were formatted.
struct Line(String);

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name().starts_with("otel.") {
            return;
        }
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        if field.name() != "message" {
            self.0 += field.name();
            self.0.push('=');
        }
        self.0 += &printable_line(&format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_applies_to_superstep_only() {
        let shown = |text: &str| text.parse::<LogFilter>().map(|filter| filter.0.to_string());
        assert_eq!(shown("debug"), Ok("superstep=debug".to_owned()));
        assert_eq!(shown("superstep=info"), Ok("superstep=info".to_owned()));
        for wrong in ["debug,rmcp=info", "loud=very", "loud", ""] {
            assert!(shown(wrong).unwrap_err().starts_with("it is a level"), "{wrong}");
        }
    }
}
