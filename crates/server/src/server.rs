//! Servers of graphs.
//!
//! Start at [`Server`].

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fmt,
    future::pending,
    sync::Arc,
};

use axum::{Router, middleware};
use serde_json::Value;
use superstep_graph::{
    Checkpointer, MemoryCheckpointer, MemoryStore, RunOptions, Store, ThreadId, convert::IntoShared,
    erased::JsonGraph,
};
use tokio::net::TcpListener;

use crate::{
    access::{Authenticate, rate::Rates},
    api,
    door::{Door, Token},
    error::ServerError,
    limits::Limits,
    listener::serve,
    rows::claim::claim,
    runs::hub::{Admit, Hub, Options},
    studio::{self, Studio},
    thread_actions::ThreadActions,
};

/// A server of graphs over HTTP, which unchanged clients of LangGraph use.
///
/// Threads are stored by its [`checkpointer`](Self::checkpointer); what clients see beside them, such as the metadata of threads
/// and the queue of runs, by its [`rows`](Self::rows). Both are in memory by default. One process serves a set of rows;
/// a second one with the same checkpointer does not start.
///
/// Without a [`token`](Self::token) it serves this machine only.
///
/// ```no_run
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use superstep_graph::{Cx, END, START, State, StateGraph};
/// use superstep_server::Server;
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Order {
///     euros: u32,
///     paid: bool,
/// }
///
/// let mut graph = StateGraph::<Order>::new("orders");
/// let pay = graph.add_node("pay", async |order: Order, cx: Cx| {
///     Order::update().paid(cx.interrupt::<bool>("pay", order.euros).await)
/// });
/// graph.add_edge(START, pay);
/// graph.add_edge(pay, END);
///
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:2024").await?;
/// Server::new().graph("orders", graph.compile()?).serve(listener).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a server does nothing until it serves"]
pub struct Server {
    graphs: BTreeMap<String, Arc<dyn JsonGraph>>,
    checkpointer: Arc<dyn Checkpointer>,
    rows: Arc<dyn Store>,
    items: Option<Arc<dyn Store>>,
    limits: Limits,
    door: Door,
    defaults: RunOptions,
    options: Option<Arc<Options>>,
    admit: Option<Arc<Admit>>,
    read_only: bool,
    hidden: BTreeMap<String, BTreeSet<String>>,
    actions: BTreeMap<String, Arc<dyn ThreadActions>>,
    #[cfg(feature = "crons")]
    crons: bool,
    #[cfg(feature = "webhooks")]
    private_webhooks: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            graphs: BTreeMap::new(),
            checkpointer: Arc::new(MemoryCheckpointer::new()),
            rows: Arc::new(MemoryStore::new()),
            items: None,
            limits: Limits::default(),
            door: Door::default(),
            defaults: RunOptions::new(),
            options: None,
            admit: None,
            read_only: false,
            hidden: BTreeMap::new(),
            actions: BTreeMap::new(),
            #[cfg(feature = "crons")]
            crons: false,
            #[cfg(feature = "webhooks")]
            private_webhooks: false,
        }
    }
}

impl Server {
    /// Creates a server without graphs, with everything in memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a graph under a name, by which clients call it.
    pub fn graph(mut self, name: impl Into<String>, graph: impl Into<Arc<dyn JsonGraph>>) -> Self {
        self.graphs.insert(name.into(), graph.into());
        self
    }

    /// Hides channels of a graph from clients: in states, their history, streams, and results. Of its subgraphs clients see the
    /// channels that have the name of a shown one. The metadata of checkpoints is then only that which clients set.
    pub fn hide<C: Into<String>>(
        mut self,
        graph: impl Into<String>,
        channels: impl IntoIterator<Item = C>,
    ) -> Self {
        self.hidden.entry(graph.into()).or_default().extend(channels.into_iter().map(Into::into));
        self
    }

    /// Sets the actions of the studio on threads of a graph that concern more than their checkpoints.
    pub fn thread_actions(mut self, graph: impl Into<String>, actions: impl ThreadActions + 'static) -> Self {
        self.actions.insert(graph.into(), Arc::new(actions));
        self
    }

    /// Lets clients create crons, runs that begin at recurring times. They are stored with the [`rows`](Self::rows), which should
    /// survive a restart; the latest time without a server begins a run at the next start.
    #[cfg(feature = "crons")]
    pub fn crons(self) -> Self {
        Self { crons: true, ..self }
    }

    /// Allows webhooks to addresses of this machine and of private networks. Who may run a graph can then send requests to them.
    #[cfg(feature = "webhooks")]
    pub fn allow_private_webhooks(self) -> Self {
        Self { private_webhooks: true, ..self }
    }

    /// Sets the storage of all threads, in place of those of the graphs.
    pub fn checkpointer(self, checkpointer: impl IntoShared<dyn Checkpointer>) -> Self {
        Self { checkpointer: checkpointer.into_shared(), ..self }
    }

    /// Sets the storage of threads' metadata, of assistants and of runs. With one that survives a restart, runs that were accepted
    /// and had not ended continue when the server starts again.
    pub fn rows(self, store: impl IntoShared<dyn Store>) -> Self {
        Self { rows: store.into_shared(), ..self }
    }

    /// Sets the store that clients read and write. Give the same one to the graphs.
    pub fn store(self, store: impl IntoShared<dyn Store>) -> Self {
        Self { items: Some(store.into_shared()), ..self }
    }

    /// Requires a token of every request, as `x-api-key` or `Authorization: Bearer`. A server that other machines can reach needs
    /// one, or [users](Self::authenticate). Beside users, the token is that of an administrator.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.door.token = Some(Token(token.into()));
        self
    }

    /// Sets the check of users. Threads, with their runs, assistants and items then belong to the user who created them, and do not
    /// exist for others. Items of a user are in the store under the label `user:NAME`, with `%2E` for a dot, and runs have the
    /// metadata `owner`.
    pub fn authenticate(mut self, users: impl Authenticate) -> Self {
        self.door.users = Some(Box::new(users));
        self
    }

    /// Refuses all requests that write, with status 403, and executes none of the stored runs. Another server may use the same
    /// rows and storage.
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Lets everyone read `/metrics`, without a key.
    pub fn open_metrics(mut self) -> Self {
        self.door.open_metrics = true;
        self
    }

    /// Allows pages of an origin, such as `https://chat.example.org`, to use the server. Those of this machine may.
    pub fn allow_origin(mut self, origin: impl Into<String>) -> Self {
        self.door.origins.push(origin.into());
        self
    }

    /// Sets the options of runs, such as the context and the step limit, of which a request may set others.
    pub fn defaults(self, defaults: RunOptions) -> Self {
        Self { defaults, ..self }
    }

    /// Changes the options of each run after those of its request, such as the context and the metadata.
    pub fn options(self, change: impl Fn(RunOptions) -> RunOptions + Send + Sync + 'static) -> Self {
        Self { options: Some(Arc::new(change)), ..self }
    }

    /// Sets a check of each thread immediately before its run, with the answers that the run gives, by the ids of their
    /// interrupts. The error is the failure of the run.
    pub fn admit<F>(self, check: impl Fn(ThreadId, Vec<(String, Value)>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self { admit: Some(Arc::new(move |thread, answers| Box::pin(check(thread, answers)))), ..self }
    }

    /// Sets the bounds.
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Serves until the future is dropped.
    ///
    /// # Errors
    /// As of [`serve_until`](Self::serve_until).
    pub async fn serve(self, listener: TcpListener) -> Result<(), ServerError> {
        self.serve_until(listener, pending()).await
    }

    /// Serves until `stop` is ready, for example a signal: then it accepts no more runs, and ends those under way after their
    /// supersteps, within [`Limits::drain`]. What is left of them continues after the next start.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub async fn serve_until(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServerError> {
        self.start(listener, stop).await?.await;
        Ok(())
    }

    /// Starts, and returns the future that serves until `stop` is ready, as [`serve_until`](Self::serve_until) does.
    ///
    /// # Errors
    /// [`ServerError::TokenNeeded`], [`ServerError::RowsInUse`] and the other errors of a start, or [`ServerError::Listener`].
    pub async fn start(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<impl Future<Output = ()> + Send + 'static, ServerError> {
        let address = listener.local_addr().map_err(|source| ServerError::Listener { source })?;
        if !self.door.is_locked() && !address.ip().to_canonical().is_loopback() {
            return Err(ServerError::TokenNeeded { address });
        }
        let alone = match self.read_only {
            true => None,
            false => Some(claim(&*self.rows, &*self.checkpointer).await?),
        };
        let (hub, routes) = self.open().await?;
        Ok(async move {
            let stopped = async {
                stop.await;
                hub.stop().await;
            };
            tokio::select! {
                () = serve(listener, routes, &hub.limits, stopped) => {}
                never = begin_crons(&hub) => match never {},
            }
            drop(alone);
        })
    }

    async fn open(self) -> Result<(Arc<Hub>, Router), ServerError> {
        #[cfg(feature = "crons")]
        let crons = match self.crons {
            true => Some(crate::rows::cron::Crons::open(self.rows.clone()).await?),
            false => None,
        };
        #[cfg(feature = "webhooks")]
        let webhooks = crate::runs::webhook::Webhooks::new(self.private_webhooks);
        let Self {
            graphs,
            checkpointer,
            rows,
            items,
            limits,
            mut door,
            defaults,
            options,
            admit,
            read_only,
            hidden,
            actions,
            ..
        } = self;
        if graphs.is_empty() {
            return Err(ServerError::NoGraph);
        }
        let is_visible =
            |Token(token): &Token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !door.token.as_ref().is_none_or(is_visible) {
            return Err(ServerError::InvalidToken);
        }
        (door.body, door.rates) = (limits.body, limits.rate.map(Rates::new));
        let mut shown = BTreeMap::new();
        for (name, hidden) in hidden {
            let graph = graphs.get(&name).ok_or_else(|| ServerError::UnknownGraph { graph: name.clone() })?;
            let mut channels: BTreeSet<String> =
                graph.channels().iter().map(|channel| channel.name.to_string()).collect();
            if let Some(channel) = hidden.iter().find(|channel| !channels.contains(*channel)).cloned() {
                let known = channels.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                return Err(ServerError::UnknownChannel { graph: name, channel, known });
            }
            channels.retain(|channel| !hidden.contains(channel));
            shown.insert(name, channels);
        }
        if let Some(graph) = actions.keys().find(|name| !graphs.contains_key(*name)).cloned() {
            return Err(ServerError::UnknownGraph { graph });
        }
        let mut hub = Hub::open(
            graphs,
            checkpointer,
            items,
            rows,
            limits,
            #[cfg(feature = "webhooks")]
            webhooks,
        )
        .await?;
        (hub.defaults, hub.options, hub.admit, hub.read_only) = (defaults, options, admit, read_only);
        (hub.shown, hub.actions) = (shown, actions);
        #[cfg(feature = "crons")]
        {
            hub.crons = crons;
        }
        let hub = Arc::new(hub);
        if !read_only {
            hub.recover().await?;
        }
        let studio = Studio::new(hub.clone(), door.is_locked());
        let routes = api::routes(hub.clone()).merge(studio::routes(studio));
        let counted = middleware::from_fn_with_state(hub.clone(), api::metrics::count);
        Ok((hub, door.before(routes).layer(counted)))
    }
}

/// Begins the runs of crons, unless the server only reads.
async fn begin_crons(hub: &Arc<Hub>) -> Infallible {
    #[cfg(feature = "crons")]
    if !hub.read_only {
        return api::crons::clock::run(hub).await;
    }
    let _ = hub;
    pending().await
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("graphs", &self.graphs.keys().collect::<Vec<_>>())
            .field("limits", &self.limits)
            .field("origins", &self.door.origins)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "crons"))]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use superstep_graph::{Cx, END, START, State, StateGraph};
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::{rows::cron::CronRow, wire::time};

    #[derive(State, Clone, Debug, Default)]
    struct Count {
        n: u32,
    }

    #[tokio::test]
    async fn a_time_that_comes_begins_a_run_then() {
        let mut graph = StateGraph::<Count>::new("count");
        let one = graph.add_node("one", async |_: Count, _: Cx| Count::update().n(1));
        graph.add_edge(START, one);
        graph.add_edge(one, END);
        let server = Server::new().graph("count", graph.compile().unwrap()).crons();
        let (hub, _) = server.open().await.unwrap();
        let crons = hub.crons.as_ref().unwrap();
        let add = async {
            // Meanwhile the other one waits, as there is no cron.
            sleep(Duration::from_millis(20)).await;
            let due_us = time::now_us() + 500_000;
            let payload = json!({ "assistant_id": "count", "input": {} });
            let row = CronRow {
                id: "cron".to_owned(),
                owner: None,
                thread: None,
                assistant: "count".to_owned(),
                schedule: "@yearly".to_owned(),
                timezone: None,
                end_us: None,
                enabled: true,
                keeps: true,
                payload: payload.as_object().unwrap().clone().into(),
                created_us: 0,
                updated_us: 0,
                next_us: Some(due_us),
                begins: None,
                problem: None,
            };
            crons.rows.put("cron", row).await.unwrap();
            crons.changed.notify_one();
            loop {
                if let [run] = &hub.runs.list(|_| true)[..] {
                    assert!(run.created_us >= due_us, "{run:?}");
                    return;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        let begun = async {
            tokio::select! {
                () = add => {}
                never = begin_crons(&hub) => match never {},
            }
        };
        timeout(Duration::from_secs(30), begun).await.unwrap();
    }
}
