//! `worker`: takes jobs and runs them.

use superstep::worker::{Jobs, Worker};
use tokio_util::sync::CancellationToken;

use crate::{
    args::jobs::WorkerArgs,
    config::location::Location,
    graphs::graph_set::GraphSet,
    output::{
        exit::{Exit, Failure},
        text::print_note,
    },
    session::signals,
};

/// Runs jobs until a signal, or until none is due.
pub(crate) async fn worker(args: WorkerArgs, program: &str, graphs: &GraphSet) -> Result<Exit, Failure> {
    let WorkerArgs { graphs: named, concurrency, grace, once, trust, database } = args;
    let location = Location::of_program(program, database.db)?;
    let options = location.queue()?;
    let chosen = match named.is_empty() {
        true => graphs.all().to_vec(),
        false => named.iter().map(|name| graphs.named(Some(name)).cloned()).collect::<Result<_, _>>()?,
    };
    let store = location.open_to_work(trust).await?;
    let jobs = Jobs::open(options).await?;
    let worker =
        Worker::new(&jobs).concurrency(concurrency.into()).grace(grace).options(graphs.options.clone());
    let worker = chosen.iter().fold(worker, |worker, graph| graph.add_to(worker, store.clone()));
    if once {
        let number = worker.run_due().await?;
        if !database.json {
            print_note(&format!("{number} job{} ran", if number == 1 { "" } else { "s" }));
        }
        return Ok(Exit::Ok);
    }
    let stop = CancellationToken::new();
    let signals = signals::watch(stop.clone());
    if !database.json {
        let names: Vec<_> = chosen.iter().map(|graph| format!("`{}`", graph.name())).collect();
        print_note(&format!("taking jobs for {} from `{}`; Ctrl-C stops", names.join(", "), location.db()));
    }
    tokio::spawn(signals);
    worker.run_until(stop.cancelled()).await?;
    Ok(Exit::Ok)
}
