//! Declaring a graph.
//!
//! Start at [`StateGraph`].

use std::{
    future::Future,
    panic::Location,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use superstep_engine::{Edge, Endpoint, NodeSpec, Target, TopologyBuilder};

use crate::{
    CompileError, CompiledGraph, Cx, NodeOptions, NodeOutput, Route, Routes, State,
    compiled::Inner,
    node::{CompiledNode, NodeFn, Router, erase},
};

/// A node of a [`StateGraph`], as its `add_node` returned it. Valid in that graph only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRef {
    graph: u64,
    end: Endpoint,
}

/// Where every run begins. Leave it with an edge to the first node.
pub const START: NodeRef = NodeRef { graph: 0, end: Endpoint::Start };

/// Where a branch of a run ends. Enter it with an edge or a route.
pub const END: NodeRef = NodeRef { graph: 0, end: Endpoint::End };

/// A graph while it is declared: nodes that do one step each, wired by edges and conditional edges.
///
/// Compile it to run it. Mistakes are collected, and [`compile`](Self::compile) reports all of them at once.
pub struct StateGraph<S: State> {
    name: String,
    stamp: u64,
    topology: TopologyBuilder,
    nodes: Vec<(NodeFn<S>, NodeOptions)>,
    routers: Vec<(Endpoint, Router<S>, Vec<NodeRef>)>,
}

impl<S: State> StateGraph<S> {
    /// A graph without nodes.
    pub fn new(name: impl Into<String>) -> Self {
        // Tells handles of different graphs apart; never stored, never ordered by.
        static STAMPS: AtomicU64 = AtomicU64::new(1);
        Self {
            name: name.into(),
            stamp: STAMPS.fetch_add(1, Ordering::Relaxed),
            topology: TopologyBuilder::default(),
            nodes: Vec::new(),
            routers: Vec::new(),
        }
    }

    /// Declares a node: an async function of the state that returns an update.
    ///
    /// The name stands in checkpoints: to rename a node is to lose the threads that still have it to run.
    #[track_caller]
    pub fn add_node<F, Fut>(&mut self, name: &str, node: F) -> NodeRef
    where
        F: Fn(S, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: NodeOutput<S>,
    {
        let options = NodeOptions::default();
        self.topology.nodes.push(NodeSpec {
            name: name.into(),
            retry: options.retry,
            on_cancel: options.on_cancel,
            place: Location::caller(),
        });
        self.nodes.push((erase(node), options));
        NodeRef { graph: self.stamp, end: Endpoint::Node(self.nodes.len() - 1) }
    }

    /// Declares a node that needs something beside the state, such as a model; each task gets a clone of it.
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

    /// Sets how a node is run.
    ///
    /// # Panics
    /// If `node` is not a node of this graph.
    #[track_caller]
    pub fn configure(&mut self, node: NodeRef, options: NodeOptions) {
        let Endpoint::Node(declared) = self.endpoint(node) else {
            panic!("only a node of graph `{}` can be configured in it", self.name);
        };
        let spec = &mut self.topology.nodes[declared];
        (spec.retry, spec.on_cancel) = (options.retry, options.on_cancel);
        self.nodes[declared].1 = options;
    }

    /// After `from`, `to` runs.
    #[track_caller]
    pub fn add_edge(&mut self, from: NodeRef, to: NodeRef) {
        let (from, to) = (self.endpoint(from), self.endpoint(to));
        self.topology.edges.push(Edge { from, to, route: None, place: Location::caller() });
    }

    /// After `from`, what runs depends on the state that it left behind.
    ///
    /// `router` is a pure function of that state, with `from`'s own update applied and those of its siblings not.
    /// `map` says where each route leads; it is asked once per route, now.
    #[track_caller]
    pub fn add_conditional_edges<F, O, M>(&mut self, from: NodeRef, router: F, map: M)
    where
        F: Fn(&S) -> O + Send + Sync + 'static,
        O: Routes,
        M: Fn(O::Route) -> NodeRef,
    {
        let place = Location::caller();
        let from = self.endpoint(from);
        let targets: Vec<NodeRef> = O::Route::ALL.iter().map(|&route| map(route)).collect();
        for (route, &to) in O::Route::ALL.iter().zip(&targets) {
            let (to, route) = (self.endpoint(to), Some(route.label().to_owned()));
            self.topology.edges.push(Edge { from, to, route, place });
        }
        let router: Router<S> = Arc::new(move |state, targets, chosen| {
            router(state).each(|route| chosen.push(targets[route.index()]));
        });
        self.routers.push((from, router, targets));
    }

    /// Checks the graph and makes it runnable.
    ///
    /// # Errors
    /// [`CompileError`] with every problem and its place. [`CompiledGraph::warnings`] has what is only suspicious.
    #[track_caller]
    pub fn compile(self) -> Result<CompiledGraph<S>, CompileError> {
        let Self { name, stamp, topology, nodes: declared, routers } = self;
        let (topology, warnings) = match topology.build(Location::caller()) {
            Ok(built) => built,
            Err(problems) => {
                return Err(CompileError { graph: name, problems });
            }
        };
        let mut nodes: Vec<CompiledNode<S>> = Vec::new();
        nodes.resize_with(topology.len(), CompiledNode::default);
        for (position, (run, options)) in declared.into_iter().enumerate() {
            let node =
                &mut nodes[topology.declared(position).expect("every node is in the topology").position()];
            node.run = Some(run);
            node.retry_on = options.retry_on;
            node.timeout = options.timeout;
        }
        let target = |node: &NodeRef| match endpoint(stamp, *node) {
            Endpoint::Node(declared) => {
                Target::Node(topology.declared(declared).expect("checked by `build`"))
            }
            Endpoint::Start | Endpoint::End | Endpoint::Foreign => Target::End,
        };
        for (from, router, targets) in routers {
            let from = match from {
                Endpoint::Node(declared) => topology.declared(declared).expect("checked by `build`"),
                Endpoint::Start | Endpoint::End | Endpoint::Foreign => topology.start(),
            };
            nodes[from.position()].routers.push((router, targets.iter().map(target).collect()));
        }
        Ok(CompiledGraph::new(Inner { name, topology: Arc::new(topology), nodes, warnings }))
    }

    fn endpoint(&self, node: NodeRef) -> Endpoint {
        endpoint(self.stamp, node)
    }
}

fn endpoint(stamp: u64, node: NodeRef) -> Endpoint {
    if node.graph == 0 || node.graph == stamp { node.end } else { Endpoint::Foreign }
}
