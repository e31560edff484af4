//! Schedules: jobs at recurring times.
//!
//! Start at [`Schedule`].

use croner::{
    Cron,
    errors::CronError,
    parser::{CronParser, Seconds, Year},
};
use jiff::{Timestamp, Zoned, tz::TimeZone};
use serde::Serialize;
use serde_json::Value;

use crate::{
    GraphName, ScheduleError,
    new_job::ATTEMPTS,
    payload::{Payload, Work},
    queue::{MAX_INPUT_BYTES, MAX_TEXT_LENGTH, ScheduleRow, Stored, When},
};

/// The names of the fields of a pattern, in their order.
const FIELDS: [&str; 5] = ["minute", "hour", "day of the month", "month", "day of the week"];

/// A thread that is run at recurring times of a time zone.
///
/// A time makes one job, however many [workers](crate::Worker::schedule) have the schedule. If no worker was there at that time, the latest
/// time since then makes one when a worker is back. A schedule begins when a worker has it for the first time, or when it is
/// [stored](crate::Jobs::store_schedule).
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
    pub(crate) times: Times,
    /// The name of the schedule among the schedules that the database knows.
    pub(crate) identifier: String,
    pub(crate) graph: String,
    pub(crate) thread: String,
    pub(crate) input: Value,
}

/// A schedule without its job: recurring times of a time zone.
#[derive(Clone, Debug)]
#[must_use = "a schedule needs a job: see `run`"]
pub struct Times {
    pub(crate) name: String,
    /// The pattern.
    pub(crate) pattern: String,
    /// The name of the time zone.
    pub(crate) zone_name: String,
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    /// Creates the times of a schedule: minute, hour, day of the month, month, day of the week, in a time zone of the IANA database. The
    /// name is that of the schedule in the database; schedules of the same name are one.
    ///
    /// # Errors
    /// The pattern is not valid or fits no time, the time zone is unknown, or a text is too long.
    #[allow(clippy::new_ret_no_self, reason = "the times are the first half of a schedule")]
    pub fn new(name: impl Into<String>, times: &str, zone: &str) -> Result<Times, ScheduleError> {
        let name = name.into();
        check_length(&name, [("name", &*name, MAX_NAME)])?;
        Self::times(name, times, zone)
    }

    fn times(name: String, times: &str, zone: &str) -> Result<Times, ScheduleError> {
        let texts = [("name", &*name), ("times", times), ("zone", zone)];
        check_length(&name, texts.map(|(part, text)| (part, text, MAX_TEXT_LENGTH)))?;
        let cron = read_times(times).map_err(|reason| ScheduleError::Times {
            schedule: name.clone(),
            times: times.to_owned(),
            reason,
        })?;
        let (pattern, zone_name) = (times.to_owned(), zone.to_owned());
        let zone = TimeZone::get(zone)
            .map_err(|_| ScheduleError::Zone { schedule: name.clone(), zone: zone.to_owned() })?;
        Ok(Times { name, pattern, zone_name, cron, zone })
    }

    /// Reads a stored schedule, with `null` for an input that was not read.
    pub(crate) fn of_row(row: ScheduleRow) -> Result<Self, ScheduleError> {
        let ScheduleRow { identifier, name, times, zone, graph, thread, input, is_long, .. } = row;
        if is_long {
            return Err(ScheduleError::LongInput { schedule: name });
        }
        let read = Self::times(name, &times, &zone)?.run(&graph, thread, input)?;
        Ok(Self { identifier, ..read })
    }

    /// Returns the latest time up to now, with its job.
    pub(crate) fn latest(&self, now_ms: i64) -> Option<(i64, Stored)> {
        let time = self.times.latest(now_ms)?;
        let text = time.strftime("%Y-%m-%dT%H:%MZ").to_string();
        let id = format!("schedule {} {text}", self.identifier);
        let work = Work::Run { input: self.input.clone() };
        let payload = Payload::new(self.thread.replace(TIME, &text), id.clone(), work);
        let payload = serde_json::to_value(payload).ok()?;
        let (graph, when) = (self.graph.clone(), When::At { unix_ms: time.as_millisecond() });
        Some((
            time.as_millisecond(),
            Stored { graph, payload, id, key: None, priority: 0, attempts: ATTEMPTS, when },
        ))
    }

    /// Returns the next time after now.
    pub(crate) fn next(&self, now_ms: i64) -> Option<i64> {
        self.times.next_ms(now_ms)
    }
}

/// Rejects long texts.
fn check_length<'t>(
    schedule: &str,
    texts: impl IntoIterator<Item = (&'static str, &'t str, usize)>,
) -> Result<(), ScheduleError> {
    match texts.into_iter().find(|(_, text, limit)| text.chars().nth(*limit).is_some()) {
        Some((part, _, limit)) => {
            Err(ScheduleError::LongText { schedule: schedule.chars().take(SHOWN).collect(), part, limit })
        }
        None => Ok(()),
    }
}

/// The maximum length of a new schedule's name in characters. The key of a job, of at most 512 characters, has it between
/// "schedule " and the time.
const MAX_NAME: usize = 485;

/// The maximum length of a graph's name in characters, as that of jobs.
const MAX_GRAPH: usize = 128;

/// The number of characters of a long name that an error shows.
const SHOWN: usize = 100;

/// Stands for the time in the name of a thread.
const TIME: &str = "{time}";

/// Reads a pattern, and finds the field that is not valid.
fn read_times(times: &str) -> Result<Cron, String> {
    let fields: Vec<&str> = times.split_whitespace().collect();
    let is_nickname = fields.len() == 1 && times.trim().starts_with('@');
    if fields.len() != FIELDS.len() && !is_nickname {
        let number = fields.len();
        return Err(format!("it has {number} field{}, not five", if number == 1 { "" } else { "s" }));
    }
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let cron = parser.parse(times).map_err(|error| {
        // The parser does not report the field, so each is tried by itself.
        let wrong = fields.iter().zip(FIELDS).enumerate().find(|(place, (field, _))| {
            let mut alone = ["*"; FIELDS.len()];
            alone[*place] = field;
            !is_nickname && parser.parse(&alone.join(" ")).is_err()
        });
        match wrong {
            Some((place, (field, name))) => {
                format!("field {}, the {name}, is `{field}`: {}", place + 1, plain(&error))
            }
            None => plain(&error),
        }
    })?;
    // A leap year lies within the search, which begins at a fixed time: the result depends on the pattern alone.
    let begin = Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
    match cron.find_next_occurrence(&begin, false) {
        Ok(_) => Ok(cron),
        Err(_) => Err("no date fits it".to_owned()),
    }
}

/// Returns the text of an error without the names of the parser's types.
fn plain(error: &CronError) -> String {
    let text = match error {
        CronError::InvalidPattern(text)
        | CronError::IllegalCharacters(text)
        | CronError::ComponentError(text) => text.clone(),
        other => other.to_string(),
    };
    text.trim_end_matches('.').to_owned()
}

impl Times {
    /// Returns the next time after this one, both in UTC milliseconds; `None` if there is none.
    pub fn next_ms(&self, unix_ms: i64) -> Option<i64> {
        let next = self.cron.find_next_occurrence(&self.zoned(unix_ms)?, false).ok()?;
        Some(next.timestamp().as_millisecond())
    }

    fn latest(&self, unix_ms: i64) -> Option<Timestamp> {
        Some(self.cron.find_previous_occurrence(&self.zoned(unix_ms)?, true).ok()?.timestamp())
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
    /// [`ScheduleError::Input`], [`ScheduleError::LongInput`] and [`ScheduleError::LongText`].
    pub fn run(
        self,
        graph: &(impl GraphName + ?Sized),
        thread: impl Into<String>,
        input: impl Serialize,
    ) -> Result<Schedule, ScheduleError> {
        let input = serde_json::to_value(input)
            .map_err(|source| ScheduleError::Input { schedule: self.name.clone(), source })?;
        if input.to_string().len() > MAX_INPUT_BYTES {
            return Err(ScheduleError::LongInput { schedule: self.name });
        }
        let (graph, thread) = (graph.graph_name().to_owned(), thread.into());
        check_length(&self.name, [("graph", &*graph, MAX_GRAPH), ("thread", &*thread, MAX_TEXT_LENGTH)])?;
        Ok(Schedule { identifier: self.name.clone(), times: self, graph, thread, input })
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
    fn the_input_of_a_schedule_has_at_most_1_mib() {
        let run = |bytes: usize| {
            let times = Schedule::new("s", "@daily", "UTC").unwrap();
            // With its quotes.
            times.run("g", "t", "x".repeat(bytes - 2))
        };
        drop(run(MAX_INPUT_BYTES).unwrap());
        let error = run(MAX_INPUT_BYTES + 1).unwrap_err().to_string();
        assert_eq!(error, "SS401: schedule `s`: its input is longer than 1 MiB");
    }

    #[test]
    fn the_texts_of_a_schedule_fit_the_tables() {
        let text = |length: usize| "é".repeat(length);
        let (fits, long) = (text(MAX_TEXT_LENGTH), text(MAX_TEXT_LENGTH + 1));
        let made = |name: &str, zone: &str, graph: &str, thread: &str| {
            Schedule::new(name, "@daily", zone)?.run(graph, thread, ())
        };
        let longest = made(&text(MAX_NAME), "UTC", &text(MAX_GRAPH), &fits).unwrap();
        let (_, job) = longest.latest(ms("2026-10-24T12:00:00Z")).unwrap();
        assert_eq!(job.id.chars().count(), 512);
        let shown = text(SHOWN);
        for (name, zone, graph, thread, error) in [
            (
                &*text(MAX_NAME + 1),
                "UTC",
                "g",
                "t",
                format!("SS401: schedule `{shown}`: its name is longer than 485"),
            ),
            ("s", &*long, "g", "t", "SS401: schedule `s`: its zone is longer than 1024".to_owned()),
            (
                "s",
                "UTC",
                &*text(MAX_GRAPH + 1),
                "t",
                "SS401: schedule `s`: its graph is longer than 128".to_owned(),
            ),
            ("s", "UTC", "g", &*long, "SS401: schedule `s`: its thread is longer than 1024".to_owned()),
        ] {
            let found = made(name, zone, graph, thread).unwrap_err().to_string();
            assert_eq!(found, format!("{error} characters"));
        }
        let times = Schedule::new("s", &long, "UTC").unwrap_err().to_string();
        assert_eq!(times, "SS401: schedule `s`: its times is longer than 1024 characters");
    }

    /// The keys of jobs of stored schedules are short, and a program without the limit may have stored such a name.
    #[test]
    fn a_stored_schedule_may_have_a_longer_name() {
        let row = ScheduleRow {
            identifier: "stored #1".to_owned(),
            name: "é".repeat(MAX_TEXT_LENGTH),
            times: "@daily".to_owned(),
            zone: "UTC".to_owned(),
            graph: "g".to_owned(),
            thread: "t".to_owned(),
            input: None,
            is_long: false,
            is_paused: false,
            last_ms: None,
        };
        let (_, job) = Schedule::of_row(row).unwrap().latest(ms("2026-10-24T12:00:00Z")).unwrap();
        assert_eq!(job.id, "schedule stored #1 2026-10-24T00:00Z");
    }

    #[test]
    fn an_error_of_times_names_the_field() {
        let error = |times, zone| Schedule::new("s", times, zone).unwrap_err().to_string();
        for (times, reason) in [
            ("0 25 * * *", "field 2, the hour, is `25`: "),
            ("0 9 * * mon-8", "field 5, the day of the week, is `mon-8`: "),
            ("x 9 * * *", "field 1, the minute, is `x`: "),
            ("0 9 * 13 *", "field 4, the month, is `13`: "),
            ("0 0 9 * * 1", "it has 6 fields, not five"),
            ("every morning", "it has 2 fields, not five"),
            ("", "it has 0 fields, not five"),
            ("@sometimes", ""),
            ("0 0 30 2 *", "no date fits it"),
        ] {
            let error = error(times, "UTC");
            let begin = format!("SS401: schedule `s`: invalid times `{times}`: {reason}");
            assert!(error.starts_with(&begin), "{error}");
        }
        assert!(
            error("0 9 * * *", "Europe/Bonn")
                .starts_with("SS401: schedule `s`: unknown time zone `Europe/Bonn`")
        );
        for times in ["@daily", "0 0 29 2 *", "*/5 * * * MON-FRI"] {
            drop(Schedule::new("s", times, "UTC").unwrap());
        }
    }
}
