//! `jobs schedule`: jobs at recurring times.
//!
//! Start at [`add`].

use serde::Serialize;
use serde_json::json;
use superstep::{
    ThreadId,
    worker::{Jobs, Schedule, ScheduleError, ScheduleInfo},
};
use superstep_session::{
    config::{location::Location, names::new_thread_name},
    error::{ErrorKind, SessionError},
    text::printable_line,
};

use crate::{
    args::{
        jobs::{ScheduleArgs, StoredSchedules, TimesArgs},
        shared::{DatabaseArgs, DbArgs, Locate},
    },
    output::{
        exit::Exit,
        table::{formatted, lines, new_table, print, time},
    },
};

/// Stores a schedule whose jobs run a graph on an input.
pub(crate) async fn add(
    times: TimesArgs,
    graph: &str,
    input: &impl Serialize,
    location: &Location,
) -> Result<Exit, SessionError> {
    let TimesArgs { name, times, zone, thread, database } = times;
    let options = location.queue_of_inputs()?;
    let wrong = |error: ScheduleError| SessionError::usage(error.to_string());
    let thread = thread.unwrap_or_else(|| default_thread(&name));
    new_thread_name(&at_a_time(&thread)).map_err(SessionError::usage)?;
    let schedule = Schedule::new(&name, &times, &zone).map_err(wrong)?.run(graph, thread, input);
    let jobs = Jobs::open(options).await?;
    if !jobs.store_schedule(&schedule.map_err(wrong)?).await? {
        return Err(SessionError::new(
            ErrorKind::Thread,
            format!("there is a schedule `{name}`; remove it first with `jobs schedule remove`"),
        ));
    }
    report(&jobs, &name, database.json).await
}

/// Returns the name of the thread of a schedule's time.
pub(crate) fn thread_of(times: &TimesArgs) -> ThreadId {
    let thread = times.thread.clone().unwrap_or_else(|| default_thread(&times.name));
    at_a_time(&thread).into()
}

fn default_thread(name: &str) -> String {
    format!("{name}-{{time}}")
}

fn at_a_time(thread: &str) -> String {
    thread.replace("{time}", "2000-01-01T00:00Z")
}

pub(crate) async fn change(command: StoredSchedules, program: &str) -> Result<Exit, SessionError> {
    let open = async |location: DbArgs| -> Result<Jobs, SessionError> {
        Ok(Jobs::open(location.locate(program)?.queue()?).await?)
    };
    match command {
        StoredSchedules::List(DatabaseArgs { location, json }) => {
            show(&open(location).await?.schedules().await?, json)
        }
        StoredSchedules::Remove(ScheduleArgs { name, database }) => {
            let jobs = open(database.location).await?;
            known(&name, jobs.remove_schedule(&name).await?)?;
            print(&if database.json {
                lines([json!({"removed": name})])
            } else {
                format!("schedule {} is removed\n", printable_line(&name))
            })
        }
        StoredSchedules::Pause(ScheduleArgs { name, database }) => {
            let jobs = open(database.location).await?;
            known(&name, jobs.pause_schedule(&name).await?)?;
            report(&jobs, &name, database.json).await
        }
        StoredSchedules::Resume(ScheduleArgs { name, database }) => {
            let jobs = open(database.location).await?;
            known(&name, jobs.resume_schedule(&name).await?)?;
            report(&jobs, &name, database.json).await
        }
    }
}

/// Rejects a schedule that is not stored.
fn known(name: &str, is_known: bool) -> Result<(), SessionError> {
    if is_known {
        return Ok(());
    }
    let message = format!("unknown schedule `{name}`; `jobs schedule list` lists the schedules");
    Err(SessionError::new(ErrorKind::Thread, message))
}

/// Prints a schedule that was changed.
async fn report(jobs: &Jobs, name: &str, json: bool) -> Result<Exit, SessionError> {
    let all = jobs.schedules().await?;
    // Another program may have removed it.
    show(&all.into_iter().filter(|schedule| schedule.name == name).collect::<Vec<_>>(), json)
}

fn show(schedules: &[ScheduleInfo], json: bool) -> Result<Exit, SessionError> {
    if json {
        return print(&lines(schedules));
    }
    if schedules.is_empty() {
        return print("no schedules\n");
    }
    let mut table = new_table(&["SCHEDULE", "TIMES", "ZONE", "GRAPH", "THREAD", "LAST", "NEXT"]);
    for schedule in schedules {
        let ScheduleInfo { name, times, zone, graph, thread, paused, last_ms, next_ms, problem, .. } =
            schedule;
        let next = match (paused, problem, next_ms) {
            (true, _, _) => "paused".to_owned(),
            (false, Some(problem), _) => printable_line(problem),
            (false, None, next) => next.map_or_else(|| "never".to_owned(), time),
        };
        let texts = [name, times, zone, graph, thread].map(|text| printable_line(text));
        table.add_row(texts.into_iter().chain([last_ms.map_or_else(|| "-".to_owned(), time), next]));
    }
    print(&formatted(table))
}
