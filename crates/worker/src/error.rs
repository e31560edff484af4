//! The errors of workers that are not those of the database or of a run.

/// The error of a schedule that is not valid.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The times are not a cron pattern.
    #[error(
        "SS401: schedule `{schedule}`: invalid times `{times}`: {reason}; write five fields, such as `0 9 * * 1-5`"
    )]
    Times {
        /// The name of the schedule.
        schedule: String,
        /// The pattern.
        times: String,
        /// The reason.
        reason: String,
    },
    /// The time zone is unknown.
    #[error(
        "SS401: schedule `{schedule}`: unknown time zone `{zone}`; use a name of the IANA database, such as `Europe/Berlin`"
    )]
    Zone {
        /// The name of the schedule.
        schedule: String,
        /// The name of the zone.
        zone: String,
    },
    /// The input has no JSON form.
    #[error("SS401: schedule `{schedule}`: its input has no JSON form")]
    Input {
        /// The name of the schedule.
        schedule: String,
        /// The error of the input.
        #[source]
        source: serde_json::Error,
    },
    /// The input is too long.
    #[error("SS401: schedule `{schedule}`: its input is longer than 1 MiB")]
    LongInput {
        /// The name of the schedule.
        schedule: String,
    },
    /// Another text is too long.
    #[error("SS401: schedule `{schedule}`: its {part} is longer than {limit} characters")]
    LongText {
        /// The beginning of its name.
        schedule: String,
        /// The text: `name`, `times`, `zone`, `graph` or `thread`.
        part: &'static str,
        /// The maximum number of its characters.
        limit: usize,
    },
}

superstep_graph::__private::debug_by_chain!(ScheduleError);
