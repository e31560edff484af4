//! `superstep worker`: takes jobs and runs turns of the agent.

use superstep::worker::{Jobs, Worker};
use superstep_session::{
    config::{defaults::Defaults, encryption::REQUIRED},
    error::SessionError,
    turn::hosted::Hosted,
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{
        jobs::{AgentWorkerArgs, RunsArgs},
        shared::{AGENT, Locate},
    },
    output::{exit::Exit, note::print_note},
    session::signals,
};

/// Runs jobs with the agent of the command line until a signal, or until none is due.
pub(crate) async fn worker(args: AgentWorkerArgs) -> Result<Exit, SessionError> {
    let location = args.location.clone().locate(AGENT)?;
    let options = location.queue()?;
    let required = location.sealing().required;
    let what = format!("taking jobs from `{}`", location.db());
    // The settings of the threads are ignored, also those that narrow: any sender could set and remove them. The
    // command line of the worker is the one place to read.
    let given = args.agent.clone().given(Some(&location.cwd))?;
    let (stop, watch) = signals::watching();
    let hosted =
        Hosted::new(location, &given, &Defaults::default(), args.rules(), args.trust_answers, &stop).await?;
    drop(watch);
    hosted.notes.iter().for_each(|note| print_note(note));
    let jobs = Jobs::open(options).await?;
    let mut worker = hosted.add_to(new_worker(&jobs, required).await?)?;
    if let Some(limit) = args.limit {
        worker = worker.limit_of_all(hosted.agent.graph(), limit.into());
    }
    let what = format!("{what} with model {}", hosted.model());
    let exit = work(worker, &args.runs, &what, false).await;
    hosted.close().await;
    exit
}

/// Creates a worker. If encryption is required, it has no stored schedules, whose inputs would be readable in its jobs.
pub(crate) async fn new_worker(jobs: &Jobs, required: bool) -> Result<Worker, SessionError> {
    if required && jobs.schedules().await?.iter().any(|schedule| !schedule.paused) {
        print_note(&format!(
            "this worker does not run stored schedules: their inputs are not encrypted, and `{REQUIRED}` is set"
        ));
    }
    Ok(Worker::new(jobs).stored_schedules(!required))
}

/// Runs a worker until a signal, or until no job is due.
pub(crate) async fn work(
    worker: Worker,
    runs: &RunsArgs,
    what: &str,
    quiet: bool,
) -> Result<Exit, SessionError> {
    let worker = worker.concurrency(runs.concurrency.into()).grace(runs.grace);
    let stop = CancellationToken::new();
    let signals = signals::watch(stop.clone());
    if !quiet && !runs.once {
        print_note(&format!("{what}; Ctrl-C stops"));
    }
    let signals = tokio::spawn(signals);
    let ran = if runs.once {
        worker.run_due_until(stop.cancelled()).await.map(Some)
    } else {
        worker.run_until(stop.cancelled()).await.map(|()| None)
    };
    signals.abort();
    if let Some(number) = ran?.filter(|_| !quiet) {
        let plural = if number == 1 { "" } else { "s" };
        print_note(&if stop.is_cancelled() {
            format!("stopped after {number} run{plural}")
        } else {
            format!("{number} job{plural} ran")
        });
    }
    Ok(Exit::Ok)
}
