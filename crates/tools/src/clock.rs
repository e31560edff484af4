//! `current_time`: returns the current time.

use jiff::{Timestamp, tz::TimeZone};
use schemars::JsonSchema;
use serde::Deserialize;
use superstep_llm::{FnTool, Tool, ToolCx, ToolError, ToolSpec, tool_fn};

use crate::call::REPEATABLE;

#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
struct CurrentTime {}

/// The tool `current_time{}`: the time in UTC as RFC 3339, and, if the machine's zone is known, the local time.
///
/// # Units
/// `clock` gives UTC milliseconds since 1970; the answer is in whole seconds.
pub fn current_time(clock: impl Fn() -> i64 + Send + Sync + 'static) -> impl Tool {
    in_zone(clock, TimeZone::try_system().ok())
}

fn in_zone(clock: impl Fn() -> i64 + Send + Sync + 'static, zone: Option<TimeZone>) -> impl Tool {
    let spec = ToolSpec::of::<CurrentTime>(
        "current_time",
        "Tells the current date and time, in UTC and, if known, in the local time zone.",
    );
    let tool: FnTool<CurrentTime, _> = tool_fn(spec, move |_: CurrentTime, _: ToolCx| {
        let now = format_time(clock(), zone.as_ref());
        async { now }
    });
    tool.with_behaviour(REPEATABLE).with_changes_files(false)
}

fn format_time(now_ms: i64, zone: Option<&TimeZone>) -> Result<String, ToolError> {
    let now = Timestamp::from_second(now_ms.div_euclid(1_000))
        .map_err(|error| ToolError::Failed(format!("the clock shows an impossible time: {error}")))?;
    let mut text = format!("{now} (UTC)");
    if let Some(zone) = zone {
        let local = now.to_zoned(zone.clone());
        let offset = now.display_with_offset(local.offset());
        let name = zone.iana_name().map(|name| format!(", {name}")).unwrap_or_default();
        text.push_str(&format!("\n{offset} (local, {}{name})", local.strftime("%A")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{call, refusal};

    #[tokio::test]
    async fn reports_utc_only_if_the_zone_is_unknown() {
        let tool = in_zone(|| 1_767_225_599_999, None);
        assert_eq!(call(&tool, json!({})).await, "2025-12-31T23:59:59Z (UTC)");
    }

    #[tokio::test]
    async fn reports_the_local_time_with_its_offset() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let winter = in_zone(|| 1_767_225_600_000, Some(berlin.clone()));
        assert_eq!(
            call(&winter, json!({})).await,
            "2026-01-01T00:00:00Z (UTC)\n2026-01-01T01:00:00+01:00 (local, Thursday)"
        );
        let summer = in_zone(|| 1_782_864_000_000, Some(berlin));
        assert_eq!(
            call(&summer, json!({})).await,
            "2026-07-01T00:00:00Z (UTC)\n2026-07-01T02:00:00+02:00 (local, Wednesday)"
        );
    }

    #[tokio::test]
    async fn reads_the_clock_in_each_call() {
        let now = std::sync::Arc::new(std::sync::atomic::AtomicI64::new(-1));
        let tool = in_zone(
            {
                let now = now.clone();
                move || now.load(std::sync::atomic::Ordering::Relaxed)
            },
            None,
        );
        assert_eq!(call(&tool, json!({})).await, "1969-12-31T23:59:59Z (UTC)");
        now.store(0, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(call(&tool, json!({})).await, "1970-01-01T00:00:00Z (UTC)");
    }

    #[tokio::test]
    async fn an_impossible_time_is_an_error() {
        let text = refusal(&in_zone(|| i64::MAX, None), json!({})).await;
        assert!(text.starts_with("the clock shows an impossible time: "), "{text}");
    }

    #[tokio::test]
    async fn starts_with_utc_in_any_zone() {
        let text = call(&current_time(|| 0), json!({})).await;
        assert!(text.starts_with("1970-01-01T00:00:00Z (UTC)"), "{text}");
    }
}
