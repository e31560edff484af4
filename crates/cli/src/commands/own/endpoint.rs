//! `worker` on a Restate cluster: a service that runs the graphs.

use std::future::ready;

use superstep::{
    ThreadId,
    restate::{Endpoint, EndpointBuilder, listen},
};
use superstep_session::{
    config::{encryption::seal_threads, location::Location, place::Db, restate::Cluster},
    error::{ErrorKind, SessionError},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    args::{
        jobs::{RunsArgs, WorkerArgs},
        service::EndpointArgs,
    },
    graphs::graph_set::GraphSet,
    output::{exit::Exit, note::print_note},
    session::signals,
};

/// Serves the graphs until a signal.
pub(crate) async fn worker(args: WorkerArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let location = Location::new(&graphs.program, args.endpoint.db(args.location.db), None)?;
    let Db::Cluster(cluster) = location.db() else { unreachable!("the name is that of a cluster") };
    if !args.limit.is_empty() || args.runs.once {
        return Err(only_jobs());
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
    let endpoint = builder(cluster, &location, &args.runs).options(graphs.options.clone());
    let endpoint = endpoint.admit(|_: ThreadId| ready(Ok(())));
    let endpoint = chosen.into_iter().fold(endpoint, |endpoint, graph| endpoint.graph(graph));
    let what = format!("running {} for `{}`", names.join(", "), location.db());
    serve(endpoint, cluster, &args.endpoint, &what, args.quiet).await
}

/// Returns the failure of a worker on Restate with flags for jobs.
pub(crate) fn only_jobs() -> SessionError {
    SessionError::usage("`--limit` and `--once` are for jobs on PostgreSQL")
}

/// Begins the endpoint of a worker.
pub(crate) fn builder(cluster: &Cluster, location: &Location, runs: &RunsArgs) -> EndpointBuilder {
    let sealing = location.sealing().clone();
    Endpoint::builder()
        .namespace(&cluster.namespace)
        .concurrency(runs.concurrency.into())
        .layer(move |store| seal_threads(store, &sealing))
}

/// Registers an endpoint, and serves it until a signal.
pub(crate) async fn serve(
    endpoint: EndpointBuilder,
    cluster: &Cluster,
    args: &EndpointArgs,
    what: &str,
    quiet: bool,
) -> Result<Exit, SessionError> {
    let endpoint = endpoint.build().map_err(|error| SessionError::usage(error.to_string()))?;
    let listener = listen(args.listen).map_err(|cause| {
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
    if !quiet {
        print_note(&format!("{what} at {url}; Ctrl-C stops"));
    }
    let served = serving.await.map_err(|cause| SessionError::new(ErrorKind::Failed, cause.to_string()))?;
    served.map(|()| Exit::Ok).map_err(|cause| SessionError::new(ErrorKind::Failed, cause.to_string()))
}
