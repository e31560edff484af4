//! `superstep worker`: takes jobs and runs turns of the agent.

use superstep::worker::{Jobs, Worker};
use tokio_util::sync::CancellationToken;

use crate::{
    args::jobs::{AgentWorkerArgs, RunsArgs},
    config::location::Location,
    output::{
        exit::{Exit, Failure},
        text::print_note,
    },
    session::{hosted::Hosted, signals},
};

/// Runs jobs with the agent of the command line until a signal, or until none is due.
pub(crate) async fn worker(args: AgentWorkerArgs) -> Result<Exit, Failure> {
    let location = Location::new(args.location.clone())?;
    let options = location.queue()?;
    let what = format!("taking jobs from `{}`", location.db());
    let hosted = Hosted::new(location, &args).await?;
    let jobs = Jobs::open(options).await?;
    let mut worker = hosted.add_to(Worker::new(&jobs))?;
    if let Some(limit) = args.limit {
        worker = worker.limit_of_all(hosted.agent.graph(), limit.into());
    }
    let what = format!("{what} with model {}", hosted.model());
    let exit = work(worker, &args.runs, &what, false).await;
    hosted.close().await;
    exit
}

/// Runs a worker until a signal, or until no job is due.
pub(crate) async fn work(worker: Worker, runs: &RunsArgs, what: &str, quiet: bool) -> Result<Exit, Failure> {
    let worker = worker.concurrency(runs.concurrency.into()).grace(runs.grace);
    if runs.once {
        let number = worker.run_due().await?;
        if !quiet {
            print_note(&format!("{number} job{} ran", if number == 1 { "" } else { "s" }));
        }
        return Ok(Exit::Ok);
    }
    let stop = CancellationToken::new();
    let signals = signals::watch(stop.clone());
    if !quiet {
        print_note(&format!("{what}; Ctrl-C stops"));
    }
    let signals = tokio::spawn(signals);
    worker.run_until(stop.cancelled()).await?;
    signals.abort();
    Ok(Exit::Ok)
}
