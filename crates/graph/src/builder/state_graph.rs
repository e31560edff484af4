//! Declaring a graph.
//!
//! Start at [`StateGraph`].

use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    panic::Location,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use superstep_engine::{
    Breakpoints, ChannelSet, Edge, EdgeKind, Endpoint, JoinSpec, NodeIndex, NodeSpec, OnCancel, RouterSpec,
    Target, Topology, TopologyBuilder,
};
use superstep_state::internal::encode;

use super::channels;
use crate::{
    CompileError, CompiledGraph, Cx, NodeOptions, Route, State,
    compiled::{
        graph::{FailedEnd, FailureReason, Inner},
        node::{CompiledNode, FanOut, ItemFits, ItemTimeout, Router},
        subgraph::Subgraph,
    },
    node::{
        CachePolicy, NodeOutput, Routes,
        cache::NodeCache,
        discarded::OnDiscard,
        erased::{NodeFn, erase, erase_worker},
        refs::{NodeRef, WorkerRef, endpoint},
    },
    run::recording::Initial,
};

/// A graph under construction: nodes of one step each, connected by edges and conditional edges.
///
/// Compile it to run it. Mistakes are collected, and [`compile`](Self::compile) reports all of them at once.
pub struct StateGraph<S: State> {
    pub(super) name: String,
    version: Option<String>,
    initial: S,
    stamp: u64,
    pub(super) topology: TopologyBuilder,
    /// The nodes in the order of their declaration, with the options of configured ones.
    pub(super) nodes: Vec<(NodeFn<S>, Option<NodeOptions>)>,
    /// The options of the others.
    defaults: NodeOptions,
    pub(super) routes: Vec<(Endpoint, Vec<NodeRef>)>,
    routers: Vec<(Endpoint, Router<S>, Vec<NodeRef>)>,
    fan_outs: Vec<(Endpoint, FanOut<S>, NodeRef)>,
    caches: Vec<(usize, CachePolicy<S>)>,
    item_timeouts: Vec<(usize, ItemTimeout)>,
    item_types: Vec<(usize, ItemFits)>,
    pub(crate) discards: Vec<(usize, OnDiscard<S>)>,
    pub(super) stops: Stops,
    /// The ends that are failures, and the node that a retry runs again.
    pub(super) failed_ends: Vec<(usize, FailureReason<S>)>,
    /// The subgraphs, by the position of their declaration.
    pub(super) subgraphs: Vec<(usize, Arc<dyn Subgraph<S>>)>,
}

/// The stops of every run, by the position of the declaration.
#[derive(Default)]
pub(super) struct Stops {
    pub(super) before: Vec<usize>,
    pub(super) after: Vec<usize>,
}

impl<S: State> fmt::Debug for StateGraph<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateGraph").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<S: State> StateGraph<S> {
    /// Creates a graph without nodes, whose threads start with the default state.
    ///
    /// The name is stored in the checkpoints of its threads, which no graph of another name can continue
    /// ([`Thread::adopt`](crate::Thread::adopt)).
    pub fn new(name: impl Into<String>) -> Self {
        Self::with_initial(name, S::default())
    }

    /// Creates a graph without nodes, whose threads start with this state. It is not stored: every program
    /// that continues the threads must use the same one, as with the default state.
    pub fn with_initial(name: impl Into<String>, initial: S) -> Self {
        // Distinguishes handles of different graphs; never stored, never used for ordering.
        static STAMPS: AtomicU64 = AtomicU64::new(1);
        Self {
            name: name.into(),
            version: None,
            initial,
            stamp: STAMPS.fetch_add(1, Ordering::Relaxed),
            topology: TopologyBuilder::default(),
            nodes: Vec::new(),
            defaults: NodeOptions::default(),
            routes: Vec::new(),
            routers: Vec::new(),
            fan_outs: Vec::new(),
            caches: Vec::new(),
            item_timeouts: Vec::new(),
            item_types: Vec::new(),
            discards: Vec::new(),
            stops: Stops::default(),
            failed_ends: Vec::new(),
            subgraphs: Vec::new(),
        }
    }

    /// Sets the version of the graph, which is stored with each checkpoint and shown by
    /// [`StateSnapshot::graph`](crate::thread::StateSnapshot::graph). A thread continues in any version of its graph,
    /// if its pending nodes exist and its state fits.
    ///
    /// ```
    /// # use superstep_graph::{State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Order { paid: bool }
    /// let mut graph = StateGraph::<Order>::new("orders").version("2");
    /// ```
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..self }
    }

    /// Declares a node: an async function of the state that returns an update.
    ///
    /// The name is stored in checkpoints: after a rename, threads with pending tasks of the node continue only if the node
    /// has its former name as well ([`NodeOptions::was`]).
    #[track_caller]
    pub fn add_node<F, Fut>(&mut self, name: &str, node: F) -> NodeRef
    where
        F: Fn(S, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: NodeOutput<S>,
    {
        self.declare(name, erase(node), false)
    }

    /// Declares a node whose tasks each take an item in addition to the state.
    /// [`add_fan_out`](Self::add_fan_out) leads to it.
    #[track_caller]
    pub fn add_worker<I, F, Fut>(&mut self, name: &str, worker: F) -> WorkerRef<I>
    where
        I: DeserializeOwned + 'static,
        F: Fn(I, S, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: NodeOutput<S>,
    {
        self.item_types.push((self.nodes.len(), |item| serde_json::from_str::<I>(item).map(drop)));
        WorkerRef { node: self.declare(name, erase_worker(worker), true), item: PhantomData }
    }

    #[track_caller]
    pub(super) fn declare(&mut self, name: &str, run: NodeFn<S>, worker: bool) -> NodeRef {
        self.topology.nodes.push(NodeSpec {
            name: name.into(),
            on_cancel: OnCancel::default(),
            worker,
            routing: false,
            handles: None,
            deferred: false,
            subgraph: None,
            place: Location::caller(),
        });
        self.nodes.push((run, None));
        NodeRef { graph: self.stamp, end: Endpoint::Node(self.nodes.len() - 1) }
    }

    /// Declares a node with dependencies, such as a model; each task gets a clone of them.
    #[track_caller]
    pub fn add_node_with<D, F, Fut>(&mut self, name: &str, deps: D, node: F) -> NodeRef
    where
        D: Clone + Send + Sync + 'static,
        F: Fn(D, S, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: NodeOutput<S>,
    {
        self.add_node(name, move |state, cx| node(deps.clone(), state, cx))
    }

    /// Declares a worker with dependencies; each task gets a clone of them.
    #[track_caller]
    pub fn add_worker_with<D, I, F, Fut>(&mut self, name: &str, deps: D, worker: F) -> WorkerRef<I>
    where
        D: Clone + Send + Sync + 'static,
        I: DeserializeOwned + 'static,
        F: Fn(D, I, S, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: NodeOutput<S>,
    {
        self.add_worker(name, move |item, state, cx| worker(deps.clone(), item, state, cx))
    }

    /// Sets the options of all nodes that are not [configured](Self::configure), whenever they are declared, except that
    /// none of them is `deferred` or has a former name.
    ///
    /// ```
    /// # use superstep_graph::{NodeOptions, RetryPolicy, State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Chat { answer: String }
    /// # let mut graph = StateGraph::<Chat>::new("chat");
    /// graph.configure_all(NodeOptions::new().retry(RetryPolicy::default()));
    /// ```
    pub fn configure_all(&mut self, options: NodeOptions) {
        self.defaults = options;
    }

    /// Sets the options of a node. A subgraph is always notified of a cancellation: its own nodes decide how
    /// they react.
    ///
    /// # Panics
    /// If `node` is not a node of this graph.
    #[track_caller]
    pub fn configure(&mut self, node: impl Into<NodeRef>, options: NodeOptions) {
        let Endpoint::Node(declared) = self.endpoint(node.into()) else {
            panic!("only a node of graph `{}` can be configured in it", self.name);
        };
        let spec = &mut self.topology.nodes[declared];
        spec.deferred = options.deferred;
        self.topology.former.retain(|(of, _)| *of != declared);
        self.topology.former.extend(options.was.iter().map(|name| (declared, name.clone())));
        if spec.subgraph.is_none() {
            spec.on_cancel = options.on_cancel;
        }
        self.nodes[declared].1 = Some(options);
    }

    /// Sets the time limit of an attempt by its item, in place of [`NodeOptions::timeout`]; that one applies if `timeout`
    /// returns `None`. `timeout` is a pure function of the item, so a resumed task has the same limit.
    ///
    /// # Example: large pages may take longer
    /// ```
    /// # use std::time::Duration;
    /// # use superstep_graph::*;
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Crawl { #[channel(append)] pages: Log<u64> }
    /// # let mut graph = StateGraph::<Crawl>::new("crawl");
    /// let fetch = graph.add_worker("fetch", async |kib: u64, _: Crawl, _| Crawl::update().pages([kib]));
    /// graph.item_timeout(fetch, |kib: &u64| (*kib > 1_024).then(|| Duration::from_secs(60)));
    /// ```
    ///
    /// # Panics
    /// If `worker` is not a node of this graph.
    #[track_caller]
    // LangGraph stores the limit with each `Send`. The item is stored anyway, so a function of it needs no stored
    // form, and applies to fan-outs and external commands as well.
    pub fn item_timeout<I: DeserializeOwned + 'static>(
        &mut self,
        worker: WorkerRef<I>,
        timeout: impl Fn(&I) -> Option<Duration> + Send + Sync + 'static,
    ) {
        let declared = self.declared(worker.node, "can have time limits");
        // The worker reports an item that does not fit its type.
        let of_json = move |item: &str| timeout(&serde_json::from_str::<I>(item).ok()?);
        self.item_timeouts.push((declared, Arc::new(of_json)));
    }

    /// Caches the results of a node by the policy, instead of running it again.
    ///
    /// # Panics
    /// If `node` is not a node of this graph.
    #[track_caller]
    pub fn cache(&mut self, node: impl Into<NodeRef>, policy: CachePolicy<S>) {
        let declared = self.declared(node.into(), "can have a cache");
        self.caches.push((declared, policy));
    }

    /// Returns the position of a node's declaration.
    #[track_caller]
    pub(crate) fn declared(&self, node: NodeRef, what: &str) -> usize {
        match self.endpoint(node) {
            Endpoint::Node(declared) => declared,
            _ => panic!("only a node of graph `{}` {what} in it", self.name),
        }
    }

    /// Runs `to` after `from`.
    #[track_caller]
    pub fn add_edge(&mut self, from: impl Into<NodeRef>, to: impl Into<NodeRef>) {
        let (from, to) = (self.endpoint(from.into()), self.endpoint(to.into()));
        self.topology.edges.push(Edge { from, to, kind: EdgeKind::Plain, place: Location::caller() });
    }

    /// Runs `worker` after `from`, once for each item that `items` takes from the state after `from`.
    ///
    /// `items` is a pure function, like a router. Items are stored with the checkpoint. The tasks come after
    /// those of plain edges and routes, in the order of their items, and their updates are folded in that
    /// order.
    #[track_caller]
    pub fn add_fan_out<I, F, O>(&mut self, from: impl Into<NodeRef>, items: F, worker: WorkerRef<I>)
    where
        I: Serialize,
        F: Fn(&S) -> O + Send + Sync + 'static,
        O: IntoIterator<Item = I>,
    {
        let (from, to) = (self.endpoint(from.into()), self.endpoint(worker.node));
        self.topology.edges.push(Edge { from, to, kind: EdgeKind::FanOut, place: Location::caller() });
        let fan_out: FanOut<S> = Arc::new(move |state, sent| {
            for item in items(state) {
                sent.push(encode::to_string(&item)?);
            }
            Ok(())
        });
        self.fan_outs.push((from, fan_out, worker.node));
    }

    /// Runs `to` once after all of `sources` have run, over any number of supersteps.
    ///
    /// Two plain edges to `to` would run it once for each of them.
    #[track_caller]
    pub fn add_join<N: Into<NodeRef>>(
        &mut self,
        sources: impl IntoIterator<Item = N>,
        to: impl Into<NodeRef>,
    ) {
        let sources = sources.into_iter().map(|source| self.endpoint(source.into())).collect();
        let to = self.endpoint(to.into());
        self.topology.joins.push(JoinSpec { sources, to, place: Location::caller() });
    }

    /// Chooses the nodes after `from` by the state after it.
    ///
    /// `router` is a pure function of that state, which includes `from`'s own update but not those of its
    /// siblings. `map` returns the target of each route; it is called once per route, immediately.
    #[track_caller]
    pub fn add_conditional_edges<F, O, M>(&mut self, from: impl Into<NodeRef>, router: F, map: M)
    where
        F: Fn(&S) -> O + Send + Sync + 'static,
        O: Routes,
        M: Fn(O::Route) -> NodeRef,
    {
        let place = Location::caller();
        let from = self.endpoint(from.into());
        let targets: Vec<NodeRef> = O::Route::ALL.iter().map(|&route| map(route)).collect();
        let first = self.topology.edges.len();
        self.topology.routers.push(RouterSpec { edges: first..first + targets.len(), one: O::ONE });
        for (route, &to) in O::Route::ALL.iter().zip(&targets) {
            let (to, kind) = (self.endpoint(to), EdgeKind::Route(route.label().to_owned()));
            self.topology.edges.push(Edge { from, to, kind, place });
        }
        let router: Router<S> = Arc::new(move |state, targets, chosen| {
            router(state).each(|route| chosen.push(targets[route.index()]));
        });
        self.routers.push((from, router, targets));
    }

    /// Chooses the nodes after `from` by the state after it, among `targets` that are not known before the program runs, each
    /// with a label for drawings. [`add_conditional_edges`](Self::add_conditional_edges) is checked by the compiler instead.
    ///
    /// `router` returns positions in `targets`, at least one: an empty list fails the run, and so does a position that is not
    /// among them. A path that ends here has [`END`](crate::END) as a target.
    ///
    /// ```
    /// # use superstep_graph::{Cx, END, START, State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Mail { language: usize }
    /// # let languages = ["de", "fr"];
    /// let mut graph = StateGraph::<Mail>::new("mail");
    /// let read = graph.add_node("read", async |_: Mail, _: Cx| ());
    /// let targets = languages.map(|name| (name, graph.add_node(name, async |_: Mail, _: Cx| ())));
    /// graph.add_conditional_list(read, targets, |mail| vec![mail.language]);
    /// # graph.add_edge(START, read);
    /// # for (_, node) in targets { graph.add_edge(node, END); }
    /// # graph.compile().unwrap();
    /// ```
    #[track_caller]
    pub fn add_conditional_list<N, F>(
        &mut self,
        from: impl Into<NodeRef>,
        targets: impl IntoIterator<Item = (N, NodeRef)>,
        router: F,
    ) where
        N: Into<String>,
        F: Fn(&S) -> Vec<usize> + Send + Sync + 'static,
    {
        let place = Location::caller();
        let from = self.endpoint(from.into());
        let (labels, targets): (Vec<N>, Vec<NodeRef>) = targets.into_iter().unzip();
        let first = self.topology.edges.len();
        self.topology.routers.push(RouterSpec { edges: first..first + targets.len(), one: false });
        for (label, to) in labels.into_iter().zip(&targets) {
            let (to, kind) = (self.endpoint(*to), EdgeKind::Route(label.into()));
            self.topology.edges.push(Edge { from, to, kind, place });
        }
        let router: Router<S> = Arc::new(move |state, targets, chosen| {
            chosen.extend(router(state).into_iter().map(|position| targets[position]));
        });
        self.routers.push((from, router, targets));
    }

    /// Validates the graph and makes it runnable.
    ///
    /// # Errors
    /// [`CompileError`] with every problem and its place. [`CompiledGraph::warnings`] has the warnings.
    #[track_caller]
    pub fn compile(mut self) -> Result<CompiledGraph<S>, CompileError> {
        self.topology.channels = channels::channels(&self.initial);
        let written = channels::written(&self.topology);
        for (spec, (_, options)) in self.topology.nodes.iter_mut().zip(&self.nodes) {
            if options.is_none() && spec.subgraph.is_none() {
                spec.on_cancel = self.defaults.on_cancel;
            }
        }
        let (topology, warnings) = match std::mem::take(&mut self.topology).build(Location::caller()) {
            Ok(built) => built,
            Err(problems) => {
                return Err(CompileError { graph: self.name, problems });
            }
        };
        let limits = self.limits(&topology);
        let breakpoints = self.breakpoints(&topology);
        let failed_ends = std::mem::take(&mut self.failed_ends).into_iter();
        let failed_ends = failed_ends.map(|(declared, reason)| {
            let again = declared_node(&topology, declared);
            FailedEnd { reason, again }
        });
        let failed_ends = failed_ends.collect();
        let nodes = self.compiled_nodes(&topology, written);
        let initial = Arc::new(self.initial);
        Ok(CompiledGraph::new(Inner {
            name: self.name,
            version: self.version,
            fingerprints: Arc::new(Initial(initial.clone())),
            initial,
            stamp: self.stamp,
            topology: Arc::new(topology),
            nodes,
            limits,
            breakpoints,
            failed_ends,
            warnings,
        }))
    }

    /// Returns the nodes' limits of concurrency.
    fn limits(&self, topology: &Topology) -> Vec<(NodeIndex, usize)> {
        let limit = |(declared, (_, options)): (usize, &(_, Option<NodeOptions>))| {
            let most = options.as_ref().unwrap_or(&self.defaults).max_concurrency?;
            Some((declared_node(topology, declared), most.max(1)))
        };
        self.nodes.iter().enumerate().filter_map(limit).collect()
    }

    /// Returns the stops of every run.
    fn breakpoints(&self, topology: &Topology) -> Breakpoints {
        let nodes =
            |declared: &[usize]| declared.iter().map(|declared| declared_node(topology, *declared)).collect();
        Breakpoints { before: nodes(&self.stops.before), after: nodes(&self.stops.after) }
    }

    /// Moves the declared functions and settings to the nodes of the topology.
    fn compiled_nodes(
        &mut self,
        topology: &Topology,
        written: Vec<(Endpoint, ChannelSet)>,
    ) -> Vec<CompiledNode<S>> {
        let node_at = |end| match end {
            Endpoint::Node(declared) => Some(declared_node(topology, declared)),
            Endpoint::Start | Endpoint::End | Endpoint::Foreign => None,
        };
        let position = |end| node_at(end).unwrap_or(topology.start()).position();
        let declared_position = |declared| declared_node(topology, declared).position();
        let stamp = self.stamp;
        let target = |node: &NodeRef| node_at(endpoint(stamp, *node)).map_or(Target::End, Target::Node);
        let mut nodes: Vec<CompiledNode<S>> = Vec::new();
        nodes.resize_with(topology.len(), CompiledNode::default);
        for (declared, (run, options)) in self.nodes.drain(..).enumerate() {
            let node = &mut nodes[declared_position(declared)];
            let options = options.unwrap_or_else(|| self.defaults.clone());
            node.run = Some(run);
            node.retry = options.retry;
            (node.timeout, node.idle_timeout) = (options.timeout, options.idle_timeout);
        }
        for (declared, subgraph) in self.subgraphs.drain(..) {
            nodes[declared_position(declared)].subgraph = Some(subgraph);
        }
        for (declared, policy) in self.caches.drain(..) {
            nodes[declared_position(declared)].cache = Some(NodeCache::new(policy));
        }
        for (declared, timeout) in self.item_timeouts.drain(..) {
            nodes[declared_position(declared)].item_timeout = Some(timeout);
        }
        for (declared, fits) in self.item_types.drain(..) {
            nodes[declared_position(declared)].fits = Some(fits);
        }
        for (declared, discard) in self.discards.drain(..) {
            nodes[declared_position(declared)].on_discard = Some(discard);
        }
        for (declared, writes) in written {
            nodes[position(declared)].writes = Some(writes);
        }
        for (from, targets) in self.routes.drain(..) {
            nodes[position(from)].routes = targets.iter().map(target).collect();
        }
        for (from, router, targets) in self.routers.drain(..) {
            nodes[position(from)].routers.push((router, targets.iter().map(target).collect()));
        }
        for (from, fan_out, worker) in self.fan_outs.drain(..) {
            let worker = node_at(endpoint(stamp, worker)).unwrap_or(topology.start());
            nodes[position(from)].fan_outs.push((fan_out, worker));
        }
        nodes
    }

    pub(super) fn endpoint(&self, node: NodeRef) -> Endpoint {
        endpoint(self.stamp, node)
    }
}

/// Returns the node of a declaration.
fn declared_node(topology: &Topology, declared: usize) -> NodeIndex {
    topology.declared(declared).expect("every node is in the topology")
}
