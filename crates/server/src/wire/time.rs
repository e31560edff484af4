//! Times: UTC with microseconds and an offset, which every client parses.

use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

/// Returns the present in UTC microseconds.
pub(crate) fn now_us() -> i64 {
    Timestamp::now().as_microsecond()
}

/// Returns a time in UTC microseconds as text, such as `2026-11-21T20:33:49.611478+00:00`.
pub(crate) fn text(us: i64) -> String {
    let time = Timestamp::from_microsecond(us).unwrap_or(Timestamp::MAX);
    time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
}

/// Returns a time in UTC milliseconds as JSON text.
pub(crate) fn of_ms(ms: i64) -> Value {
    text(ms.saturating_mul(1_000)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_microseconds_and_an_offset() {
        assert_eq!(text(1_795_293_229_611_478), "2026-11-21T20:33:49.611478+00:00");
        assert_eq!(of_ms(0), "1970-01-01T00:00:00.000000+00:00");
    }
}
