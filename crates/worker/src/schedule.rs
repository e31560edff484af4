//! Schedules: jobs at recurring times.
//!
//! Start at [`Schedule`].

use std::str::FromStr as _;

use croner::Cron;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use serde::Serialize;

use crate::{
    GraphName, ScheduleError,
    new_job::ATTEMPTS,
    payload::{Payload, Work},
    queue::{Stored, When},
};

/// A thread that is run at recurring times of a time zone.
///
/// A time makes one job, however many [workers](crate::Worker::schedule) have the schedule. If no worker was there at that time, the latest
/// time since then makes one when a worker is back. A schedule begins when a worker has it for the first time.
///
/// ```
/// use superstep_worker::Schedule;
///
/// let input = serde_json::json!({"days": 1});
/// let digest = Schedule::new("digest", "0 9 * * 1-5", "Europe/Berlin")?.run("digest", "digest-{time}", input)?;
/// # let _ = digest;
/// # Ok::<(), superstep_worker::ScheduleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Schedule {
    pub(crate) name: String,
    cron: Cron,
    zone: TimeZone,
    graph: String,
    thread: String,
    work: Work,
}

/// A schedule without its job.
#[derive(Clone, Debug)]
#[must_use = "a schedule needs a job: see `run`"]
pub struct Times {
    name: String,
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    /// Creates the times of a schedule: minute, hour, day of the month, month, day of the week, in a time zone of the IANA database. The
    /// name is that of the schedule in the database; schedules of the same name are one.
    ///
    /// # Errors
    /// The pattern is not valid, or the time zone is unknown.
    #[allow(clippy::new_ret_no_self, reason = "the times are the first half of a schedule")]
    pub fn new(name: impl Into<String>, times: &str, zone: &str) -> Result<Times, ScheduleError> {
        let name = name.into();
        let cron = Cron::from_str(times).map_err(|error| ScheduleError::Times {
            schedule: name.clone(),
            times: times.to_owned(),
            reason: error.to_string(),
        })?;
        let zone = TimeZone::get(zone)
            .map_err(|_| ScheduleError::Zone { schedule: name.clone(), zone: zone.to_owned() })?;
        Ok(Times { name, cron, zone })
    }

    /// Returns the latest time up to now, with its job.
    pub(crate) fn latest(&self, now_ms: i64) -> Option<(i64, Stored)> {
        let time = self.cron.find_previous_occurrence(&self.zoned(now_ms)?, true).ok()?.timestamp();
        let text = time.strftime("%Y-%m-%dT%H:%MZ").to_string();
        let id = format!("schedule {} {text}", self.name);
        let payload = Payload::new(self.thread.replace("{time}", &text), id.clone(), self.work.clone());
        let payload = serde_json::to_value(payload).ok()?;
        let (graph, when) = (self.graph.clone(), When::At { unix_ms: time.as_millisecond() });
        Some((
            time.as_millisecond(),
            Stored { graph, payload, id, key: None, priority: 0, attempts: ATTEMPTS, when },
        ))
    }

    /// Returns the next time after now.
    pub(crate) fn next(&self, now_ms: i64) -> Option<i64> {
        let next = self.cron.find_next_occurrence(&self.zoned(now_ms)?, false).ok()?;
        Some(next.timestamp().as_millisecond())
    }

    fn zoned(&self, unix_ms: i64) -> Option<Zoned> {
        Some(Timestamp::from_millisecond(unix_ms).ok()?.to_zoned(self.zone.clone()))
    }
}

impl Times {
    /// Completes the schedule: at each time, a thread of the graph is run on the input. `{time}` in its name stands for the time in UTC, such
    /// as `2026-11-24T08:00Z`, so that each time has a thread of its own.
    ///
    /// # Errors
    /// [`ScheduleError::Input`].
    pub fn run(
        self,
        graph: &(impl GraphName + ?Sized),
        thread: impl Into<String>,
        input: impl Serialize,
    ) -> Result<Schedule, ScheduleError> {
        let Self { name, cron, zone } = self;
        let input = serde_json::to_value(input)
            .map_err(|source| ScheduleError::Input { schedule: name.clone(), source })?;
        let (graph, thread) = (graph.graph_name().to_owned(), thread.into());
        Ok(Schedule { name, cron, zone, graph, thread, work: Work::Run { input } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    /// 9 o'clock in Berlin is 7 o'clock UTC in summer and 8 o'clock in winter.
    #[test]
    fn the_times_are_those_of_the_zone() {
        let digest = Schedule::new("digest", "0 9 * * *", "Europe/Berlin").unwrap();
        let digest = digest.run("digest", "d-{time}", ()).unwrap();
        let (latest, job) = digest.latest(ms("2026-10-24T12:00:00Z")).unwrap();
        assert_eq!(latest, ms("2026-10-24T07:00:00Z"));
        assert_eq!(job.payload["thread"], "d-2026-10-24T07:00Z");
        assert_eq!(digest.next(ms("2026-10-24T12:00:00Z")), Some(ms("2026-10-25T08:00:00Z")));
        assert_eq!(digest.latest(latest).unwrap().0, latest);
        assert!(digest.next(latest).unwrap() > latest);
    }

    #[test]
    fn wrong_times_and_zones_are_refused() {
        let error = |times, zone| Schedule::new("s", times, zone).unwrap_err().to_string();
        assert!(error("0 25 * * *", "UTC").starts_with("SS401: schedule `s`: invalid times `0 25 * * *`: "));
        assert!(
            error("0 9 * * *", "Europe/Bonn")
                .starts_with("SS401: schedule `s`: unknown time zone `Europe/Bonn`")
        );
    }
}
