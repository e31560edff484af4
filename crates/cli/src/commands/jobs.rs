//! `jobs list | retry | cancel`: the jobs of a database, and jobs that are sent.

use superstep::{
    ThreadId,
    worker::{Cancelled, JobId, JobInfo, JobState, Jobs, Listed, NewJob},
};
use superstep_session::{
    error::{ErrorKind, SessionError},
    text::{brief, printable_line},
};

use crate::{
    args::{
        jobs::{DueArgs, JobIdsArgs, JobListArgs, OrderArgs},
        shared::Locate,
    },
    output::{
        exit::Exit,
        table::{formatted, lines, new_table, print, time},
    },
};

/// The number of characters of an error in a table.
const ERROR: usize = 60;

pub(crate) async fn send(
    job: NewJob<'_>,
    thread: &ThreadId,
    order: &OrderArgs,
) -> Result<Exit, SessionError> {
    let mut job = due(job, &order.due);
    if let Some(id) = &order.id {
        job = job.id(id);
    }
    let number = job.send().await?;
    sent(&[number], thread, order.database.json)
}

/// Sets the order and the time of a job.
pub(crate) fn due<'a>(job: NewJob<'a>, args: &DueArgs) -> NewJob<'a> {
    let job = job.priority(args.priority).attempts(args.attempts).delay(args.delay.unwrap_or_default());
    match &args.key {
        Some(key) => job.key(key),
        None => job,
    }
}

pub(crate) fn sent(numbers: &[JobId], thread: &ThreadId, json: bool) -> Result<Exit, SessionError> {
    if json {
        return print(&lines(numbers.iter().map(|job| serde_json::json!({"job": job, "thread": thread}))));
    }
    print(&numbers.iter().map(|job| format!("job {job} for thread {thread}\n")).collect::<String>())
}

pub(crate) async fn list(args: JobListArgs, program: &str) -> Result<Exit, SessionError> {
    let JobListArgs { thread, dead, database } = args;
    let jobs = Jobs::open(database.location.locate(program)?.queue()?).await?;
    let which = match thread {
        Some(thread) => Listed::Of(ThreadId::from(thread)),
        None if dead => Listed::In(JobState::Dead),
        None => Listed::All,
    };
    let found = jobs.list(which).await?;
    if database.json {
        return print(&lines(found));
    }
    if found.is_empty() {
        return print("no jobs\n");
    }
    let mut table =
        new_table(&["JOB", "GRAPH", "THREAD", "WORK", "STATE", "PRIORITY", "DUE", "ATTEMPTS", "ERROR"]);
    for job in &found {
        let JobInfo {
            id,
            graph,
            thread,
            work,
            state,
            priority,
            run_at_ms,
            attempts,
            max_attempts,
            last_error,
            ..
        } = job;
        let or_none = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), printable_line);
        table.add_row([
            id.to_string(),
            printable_line(graph),
            or_none(thread),
            or_none(work),
            state.to_string(),
            priority.to_string(),
            time(*run_at_ms),
            format!("{attempts}/{max_attempts}"),
            last_error.as_deref().map_or_else(|| "-".to_owned(), |error| brief(error, ERROR)),
        ]);
    }
    print(&formatted(table))
}

/// Makes jobs due now.
pub(crate) async fn retry(args: JobIdsArgs, program: &str) -> Result<Exit, SessionError> {
    each(
        args,
        program,
        "cannot be retried: it is running, is finished, or never existed",
        async |jobs, id| Ok(jobs.retry(id).await?.then_some("due now")),
    )
    .await
}

/// Removes jobs, or requests the end of those that run.
pub(crate) async fn cancel(args: JobIdsArgs, program: &str) -> Result<Exit, SessionError> {
    each(args, program, "is unknown: it is finished or never existed", async |jobs, id| {
        Ok(match jobs.cancel(id).await? {
            Cancelled::Removed => Some("removed"),
            Cancelled::Requested => Some("stopping"),
            _ => None,
        })
    })
    .await
}

/// Changes jobs one after the other, until one is not there, and reports what each of them does now.
async fn each(
    args: JobIdsArgs,
    program: &str,
    why_not: &str,
    change: impl AsyncFn(&Jobs, JobId) -> Result<Option<&'static str>, SessionError>,
) -> Result<Exit, SessionError> {
    let jobs = Jobs::open(args.database.location.locate(program)?.queue()?).await?;
    let (mut done, mut failed) = (Vec::new(), None);
    for id in args.jobs {
        match change(&jobs, id).await.and_then(|now| now.ok_or_else(|| unknown(id, why_not))) {
            Ok(now) => done.push((id, now)),
            Err(failure) => {
                failed = Some(failure);
                break;
            }
        }
    }
    let reported = report(&done, args.database.json);
    failed.map_or(reported, Err)
}

fn unknown(id: JobId, why: &str) -> SessionError {
    SessionError::new(ErrorKind::Thread, format!("job {id} {why}; `jobs list` lists the jobs"))
}

fn report(done: &[(JobId, &str)], json: bool) -> Result<Exit, SessionError> {
    print(&if json {
        lines(done.iter().map(|(id, what)| serde_json::json!({"job": id, "now": what})))
    } else {
        done.iter().map(|(id, what)| format!("job {id}: {what}\n")).collect()
    })
}
