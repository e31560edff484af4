//! `worker` on a Restate cluster: a service that runs the graphs.

use std::future::ready;

use superstep::{ThreadId, restate::Endpoint};
use superstep_session::{
    config::{encryption::seal_threads, names::DbName, place::Db},
    error::{ErrorKind, SessionError},
};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    args::{jobs::WorkerArgs, shared::Locate},
    graphs::graph_set::GraphSet,
    output::{exit::Exit, note::print_note},
    session::signals,
};

/// Returns whether a worker is one of a cluster.
pub(crate) fn is_for(args: &WorkerArgs) -> bool {
    args.location.db.as_ref().is_some_and(DbName::is_cluster)
}

/// Serves the graphs until a signal.
pub(crate) async fn worker(args: WorkerArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let location = args.location.clone().locate(&graphs.program)?;
    let Db::Cluster(cluster) = location.db() else { unreachable!("the name is that of a cluster") };
    if !args.limit.is_empty() || args.runs.once {
        return Err(SessionError::usage("`--limit` and `--once` are for jobs on PostgreSQL"));
    }
    if !args.trust {
        return Err(SessionError::usage(format!(
            "the runs and threads of `{}` may come from someone else; repeat the command with `--trust` to run them",
            location.db()
        )));
    }
    let chosen = if args.graphs.is_empty() {
        graphs.all().to_vec()
    } else {
        let named = args.graphs.iter().map(|name| graphs.named(Some(name)).cloned());
        named.collect::<Result<_, _>>()?
    };
    let names: Vec<_> = chosen.iter().map(|graph| format!("`{}`", graph.name())).collect();
    let sealing = location.sealing().clone();
    let endpoint = Endpoint::builder()
        .namespace(&cluster.namespace)
        .concurrency(args.runs.concurrency.into())
        .options(graphs.options.clone())
        .layer(move |store| seal_threads(store, &sealing))
        .admit(|_: ThreadId| ready(Ok(())));
    let endpoint = chosen.into_iter().fold(endpoint, |endpoint, graph| endpoint.graph(graph)).build();
    let endpoint = endpoint.map_err(|error| SessionError::usage(error.to_string()))?;
    let listener = TcpListener::bind(args.listen).await.map_err(|cause| {
        SessionError::new(
            ErrorKind::Failed,
            format!("cannot listen on {}: {cause}; name another address with `--listen`", args.listen),
        )
    })?;
    let address =
        listener.local_addr().map_err(|cause| SessionError::new(ErrorKind::Failed, cause.to_string()))?;
    let url = args.advertise.clone().unwrap_or_else(|| format!("http://{address}"));
    let stop = CancellationToken::new();
    let _signals = AbortOnDropHandle::new(tokio::spawn(signals::watch(stop.clone())));
    let serving = tokio::spawn(endpoint.serve_on(listener, stop));
    // Restate asks the endpoint for its objects, so that it must be served.
    cluster.restate.register(&url).await?;
    if !args.quiet {
        print_note(&format!("running {} for `{}` at {url}; Ctrl-C stops", names.join(", "), location.db()));
    }
    let served = serving.await.map_err(|cause| SessionError::new(ErrorKind::Failed, cause.to_string()))?;
    served.map(|()| Exit::Ok).map_err(|cause| SessionError::new(ErrorKind::Failed, cause.to_string()))
}
