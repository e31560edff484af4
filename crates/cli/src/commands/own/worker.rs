//! `worker`: takes jobs and runs them.

use std::{future::ready, sync::Arc};

use superstep::{ThreadId, worker::Jobs};
use superstep_session::error::SessionError;

use crate::{
    args::{jobs::WorkerArgs, shared::Locate},
    commands::worker::{new_worker, work},
    graphs::graph_set::GraphSet,
    output::exit::Exit,
};

/// Runs jobs until a signal, or until none is due.
pub(crate) async fn worker(args: WorkerArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let WorkerArgs { graphs: named, limit, runs, trust, quiet, location, .. } = args;
    let location = Arc::new(location.locate(&graphs.program)?);
    let options = location.queue()?;
    let chosen = if named.is_empty() {
        graphs.all().to_vec()
    } else {
        named.iter().map(|name| graphs.named(Some(name)).cloned()).collect::<Result<_, _>>()?
    };
    let mut limits = Vec::new();
    for (graph, runs) in limit {
        let name = graphs.named(Some(&graph))?.name();
        if !chosen.iter().any(|chosen| chosen.name() == name) {
            return Err(SessionError::usage(format!(
                "`--limit {name}`: this worker does not take jobs of that graph"
            )));
        }
        limits.push((name.to_owned(), runs));
    }
    let store = location.open_to_work(trust).await?;
    let jobs = Jobs::open(options).await?;
    let worker = new_worker(&jobs, location.sealing().required).await?.options(graphs.options.clone());
    let mut worker =
        chosen.iter().fold(worker, |worker, graph| worker.graph(graph.with_checkpointer(store.clone())));
    for (graph, runs) in limits {
        worker = worker.limit_of_all(&graph, runs.into());
    }
    // A thread may have been imported since its job was sent.
    let here = location.clone();
    let worker = worker
        .admit(move |thread: ThreadId| ready(here.check_job(&thread).map_err(|failure| failure.message)));
    let names: Vec<_> = chosen.iter().map(|graph| format!("`{}`", graph.name())).collect();
    let what = format!("taking jobs for {} from `{}`", names.join(", "), location.db());
    work(worker, &runs, &what, quiet).await
}
