//! The service of a process.
//!
//! Start at [`Endpoint`].

use std::{collections::BTreeMap, fmt, future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{server::conn::http2, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use restate_sdk::{discovery::ServiceName, endpoint};
use serde::de::DeserializeOwned;
use superstep_checkpoint::{Checkpointer, IntoShared, ThreadId};
use superstep_graph::{
    CompiledGraph, RunOptions, State,
    erased::{JsonGraph, of_inputs},
    thread::Drain,
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    identity,
    names::Names,
    service::{Admit, Host, Kind, Layer},
};

/// The namespace of threads, unless another is set.
pub(crate) const NAMESPACE: &str = "superstep";

/// The number of runs at a time, unless another is set.
const CONCURRENCY: usize = 256;

/// The requests of one connection at a time: runs, those that wait for their turn, and others.
const STREAMS: u32 = 10_000;

/// The time after which a silent connection is probed, and the time for its answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The maximum wait for the nodes at work of a worker that stops, unless another is set.
const GRACE: Duration = Duration::from_secs(5);

/// The maximum wait for the end of connections after that.
const PATIENCE: Duration = Duration::from_secs(25);

/// The graphs of a process as a service of Restate.
///
/// The threads of a namespace are virtual objects, whose entries are the checkpoints. A run is an invocation: if this process ends, the
/// run continues in another one, from the last request that its checkpointer has made.
pub struct Endpoint {
    host: Arc<Host>,
    served: endpoint::Endpoint,
    grace: Duration,
}

/// A problem of the settings of an [`Endpoint`].
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// There is no graph.
    #[error("the endpoint has no graph; add one with `graph`")]
    NoGraph,
    /// Two graphs have one name.
    #[error("two graphs have the name `{0}`; rename one of them")]
    SameName(String),
    /// The namespace is not the beginning of a name of Restate.
    #[error("`{0}` is not a namespace; use letters, digits, `.`, `-` and `_`, and begin with a letter")]
    Namespace(String),
    /// The identity key is not a key.
    #[error("the identity key is not a key of Restate ({0}); it begins with `publickeyv1_`")]
    IdentityKey(String),
}

superstep_state::debug_by_chain!(EndpointError);

/// The settings of an [`Endpoint`].
#[must_use = "settings do nothing until an endpoint is built"]
pub struct EndpointBuilder {
    namespace: String,
    graphs: Vec<Arc<dyn JsonGraph>>,
    options: RunOptions,
    layer: Option<Layer>,
    admit: Option<Admit>,
    concurrency: usize,
    grace: Duration,
    identity_keys: Vec<String>,
}

impl Endpoint {
    /// Begins the settings of an endpoint.
    pub fn builder() -> EndpointBuilder {
        EndpointBuilder {
            namespace: NAMESPACE.to_owned(),
            graphs: Vec::new(),
            options: RunOptions::new(),
            layer: None,
            admit: None,
            concurrency: CONCURRENCY,
            grace: GRACE,
            identity_keys: Vec::new(),
        }
    }

    /// Listens on an address until `stop`, then drains all runs: they end after their superstep, and continue on another worker. A node at
    /// work has [`grace`](EndpointBuilder::grace) to end.
    ///
    /// Several processes may listen on one address; the system distributes the connections of Restate among them.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub async fn serve(self, address: SocketAddr, stop: CancellationToken) -> io::Result<()> {
        self.serve_on(listen(address)?, stop).await
    }

    /// Like [`serve`](Self::serve), on an open listener.
    ///
    /// # Errors
    /// If the listener fails.
    pub async fn serve_on(self, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        let connections = GracefulShutdown::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => self.accept(stream, &connections),
                    // A connection that ended before it was accepted, or too many open files.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                },
                () = stop.cancelled() => break,
            }
        }
        // New connections reach other processes.
        drop(listener);
        self.host.drain.request("the worker stops");
        // Restate ends all streams of a connection that goes away with its next request, so the runs end first.
        self.host.runs.close();
        let _ = tokio::time::timeout(self.grace, self.host.runs.wait()).await;
        self.host.leaves.cancel();
        let _ = tokio::time::timeout(PATIENCE, connections.shutdown()).await;
        Ok(())
    }

    fn accept(&self, stream: TcpStream, connections: &GracefulShutdown) {
        // The messages of a journal are small, and each is waited for.
        let _ = stream.set_nodelay(true);
        let served = self.served.clone();
        let service = service_fn(move |request| {
            std::future::ready(Ok::<_, std::convert::Infallible>(served.handle(request)))
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .max_concurrent_streams(STREAMS)
            .serve_connection(TokioIo::new(stream), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            // Restate repeats what a broken connection has lost.
            let _ = connection.await;
        });
    }
}

/// Opens a listener at an address, beside those of other processes.
///
/// # Errors
/// If the address cannot be used.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

impl EndpointBuilder {
    /// Adds a graph without a checkpointer, whose inputs are updates of its state.
    pub fn graph(mut self, graph: impl Into<Arc<dyn JsonGraph>>) -> Self {
        self.graphs.push(graph.into());
        self
    }

    /// Adds a graph whose runs have inputs of the type `I`, which `convert` turns into updates of the state. A run can then set nothing
    /// else of the state.
    pub fn graph_of_inputs<S: State, I: DeserializeOwned>(
        self,
        graph: CompiledGraph<S>,
        convert: impl Fn(I) -> S::Update + Send + Sync + 'static,
    ) -> Self {
        self.graph(of_inputs(graph, convert))
    }

    /// Sets the options of all runs, such as their step limit. Those that name a thread or stop a run have no effect.
    pub fn options(mut self, options: RunOptions) -> Self {
        self.options = options;
        self
    }

    /// Wraps the checkpointer of each run, for example to encrypt what is stored.
    pub fn layer<C: IntoShared<dyn Checkpointer>>(
        mut self,
        layer: impl Fn(Arc<dyn Checkpointer>) -> C + Send + Sync + 'static,
    ) -> Self {
        self.layer = Some(Arc::new(move |threads| layer(threads).into_shared()));
        self
    }

    /// Decides which threads may run; the error is the reason why one may not, which ends its run.
    pub fn admit<F: Future<Output = Result<(), String>> + Send + 'static>(
        mut self,
        admit: impl Fn(ThreadId) -> F + Send + Sync + 'static,
    ) -> Self {
        self.admit = Some(Arc::new(move |thread| Box::pin(admit(thread))));
        self
    }

    /// Sets the number of runs of this process at a time; at least 1, by default 256. The sum of all workers must be below
    /// `concurrent-invocations-limit` of the Restate nodes, because runs call other objects.
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = runs.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the maximum wait for the nodes at work when the process stops, by default 5 s. A node that takes longer may run again on another
    /// worker, under the same keys. Runs that ended before it, and new ones, may wait as long for another worker.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the namespace of the threads, by default `superstep`. Graphs of one namespace share the names of their threads.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Accepts only requests that Restate has signed with this key, or another one that is added.
    pub fn identity_key(mut self, key: impl Into<String>) -> Self {
        self.identity_keys.push(key.into());
        self
    }

    /// Builds the endpoint.
    ///
    /// # Errors
    /// Those of [`EndpointError`].
    pub fn build(self) -> Result<Endpoint, EndpointError> {
        let Self { namespace, graphs, options, layer, admit, concurrency, grace, identity_keys } = self;
        let names = Names::new(&namespace);
        if ServiceName::try_from(&*names.thread).is_err() {
            return Err(EndpointError::Namespace(namespace));
        }
        let mut by_name = BTreeMap::new();
        for graph in graphs {
            let name = graph.name().to_owned();
            if by_name.insert(name.clone(), graph).is_some() {
                return Err(EndpointError::SameName(name));
            }
        }
        if by_name.is_empty() {
            return Err(EndpointError::NoGraph);
        }
        let host = Arc::new(Host {
            names,
            graphs: by_name,
            options,
            layer,
            admit,
            slots: Semaphore::new(concurrency),
            drain: Drain::new(),
            runs: TaskTracker::new(),
            leaves: CancellationToken::new(),
        });
        let mut served = endpoint::Endpoint::builder()
            .bind(Kind::Thread.definition(host.clone()))
            .bind(Kind::Beside.definition(host.clone()));
        if !identity_keys.is_empty() {
            identity::install();
        }
        for key in identity_keys {
            served =
                served.identity_key(&key).map_err(|error| EndpointError::IdentityKey(error.to_string()))?;
        }
        Ok(Endpoint { host, served: served.build(), grace })
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graphs: Vec<_> = self.host.graphs.keys().collect();
        f.debug_struct("Endpoint").field("names", &self.host.names).field("graphs", &graphs).finish()
    }
}

impl fmt::Debug for EndpointBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graphs: Vec<_> = self.graphs.iter().map(|graph| graph.name()).collect();
        f.debug_struct("EndpointBuilder")
            .field("namespace", &self.namespace)
            .field("graphs", &graphs)
            .finish()
    }
}
