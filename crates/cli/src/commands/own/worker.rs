//! `worker`: takes jobs and runs them.

use std::sync::Arc;

use superstep::{
    ThreadId,
    worker::{Jobs, Worker},
};

use crate::{
    args::jobs::WorkerArgs,
    commands::worker::work,
    config::location::Location,
    graphs::graph_set::GraphSet,
    output::exit::{Exit, Failure},
};

/// Runs jobs until a signal, or until none is due.
pub(crate) async fn worker(args: WorkerArgs, program: &str, graphs: &GraphSet) -> Result<Exit, Failure> {
    let WorkerArgs { graphs: named, limit, runs, trust, database } = args;
    let location = Arc::new(Location::of_program(program, database.db)?);
    let options = location.queue()?;
    let chosen = match named.is_empty() {
        true => graphs.all().to_vec(),
        false => named.iter().map(|name| graphs.named(Some(name)).cloned()).collect::<Result<_, _>>()?,
    };
    let store = location.open_to_work(trust).await?;
    let jobs = Jobs::open(options).await?;
    let worker = Worker::new(&jobs).options(graphs.options.clone());
    let mut worker = chosen.iter().fold(worker, |worker, graph| graph.add_to(worker, store.clone()));
    for (graph, runs) in limit {
        worker = worker.limit_of_all(graphs.named(Some(&graph))?.name(), runs.into());
    }
    // A thread may have been imported since its job was sent, or by a job of another machine.
    let (here, store) = (location.clone(), store.clone());
    let worker = worker.admit(move |thread: ThreadId| {
        let (here, store) = (here.clone(), store.clone());
        async move { here.check_own(&*store, &thread, false).await.map_err(|failure| failure.message) }
    });
    let names: Vec<_> = chosen.iter().map(|graph| format!("`{}`", graph.name())).collect();
    let what = format!("taking jobs for {} from `{}`", names.join(", "), location.db());
    work(worker, &runs, &what, database.json).await
}
