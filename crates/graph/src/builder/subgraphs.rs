//! Subgraphs: nodes that run another graph.

use std::{panic::Location, sync::Arc};

use superstep_engine::{Endpoint, OnCancel, Problem, ProblemKind};

use super::state_graph::StateGraph;
use crate::{
    Command, CompiledGraph, Cx, NodeError, Route, State,
    node::{
        Persistence,
        erased::{NodeFn, erase, erase_routing},
        refs::{NodeRef, RoutingRef},
    },
    run::{nested_run::Returned, subgraph_lookup::SubgraphNode},
};

impl<S: State> StateGraph<S> {
    /// Declares a node that runs a graph of the same state, starting from the state of the node. The updates
    /// in that run become the node's update, so that earlier data is not folded twice.
    ///
    /// See [`Cx::call`] for persistence, interrupts, failures and cancellation.
    #[track_caller]
    pub fn add_subgraph(&mut self, name: &str, graph: &CompiledGraph<S>) -> NodeRef {
        let called = graph.clone();
        let run = move |state, cx: Cx| {
            let called = called.clone();
            async move { cx.call(&called, S::update()).from(state).written().await }
        };
        self.declare_same(name, graph, erase(run))
    }

    /// Declares a node that runs a graph of another state: `input` maps the node's state to its input,
    /// `output` maps its final state to the node's update.
    ///
    /// See [`Cx::call`] for persistence, interrupts, failures and cancellation.
    #[track_caller]
    pub fn add_subgraph_with<T, I, O>(
        &mut self,
        name: &str,
        graph: &CompiledGraph<T>,
        input: I,
        output: O,
    ) -> NodeRef
    where
        T: State,
        I: Fn(&S) -> T::Update + Send + Sync + 'static,
        O: Fn(&T) -> S::Update + Send + Sync + 'static,
    {
        let shared = Arc::new((graph.clone(), input, output));
        let run = move |state: S, cx: Cx| {
            let shared = shared.clone();
            async move {
                let (called, input, output) = &*shared;
                let ended = cx.call(called, input(&state)).await?;
                Ok::<_, NodeError>(output(&ended))
            }
        };
        self.declare_subgraph(name, graph, erase(run), |_| None)
    }

    /// Like [`add_subgraph`](Self::add_subgraph), for a graph whose nodes may [`leave`](Cx::leave) it with a
    /// command for this one. [`add_routes`](Self::add_routes) declares the targets of the routes `R`; plain
    /// edges are followed as well, and only they if the graph completes.
    #[track_caller]
    pub fn add_routing_subgraph<R: Route>(&mut self, name: &str, graph: &CompiledGraph<S>) -> RoutingRef<R> {
        let called = graph.clone();
        let run = move |state, cx: Cx| {
            let called = called.clone();
            async move { cx.call(&called, S::update()).from(state).written_or_left::<R>().await }
        };
        let node = self.declare_same(name, graph, erase_routing(run));
        self.routing::<R>(node)
    }

    /// Like [`add_subgraph_with`](Self::add_subgraph_with), for a graph whose nodes may [`leave`](Cx::leave) it with a
    /// command for this one; see [`add_routing_subgraph`](Self::add_routing_subgraph).
    #[track_caller]
    pub fn add_routing_subgraph_with<R, T, I, O>(
        &mut self,
        name: &str,
        graph: &CompiledGraph<T>,
        input: I,
        output: O,
    ) -> RoutingRef<R>
    where
        R: Route,
        T: State,
        I: Fn(&S) -> T::Update + Send + Sync + 'static,
        O: Fn(&T) -> S::Update + Send + Sync + 'static,
    {
        let shared = Arc::new((graph.clone(), input, output));
        let run = move |state: S, cx: Cx| {
            let shared = shared.clone();
            async move {
                let (called, input, output) = &*shared;
                Ok::<_, NodeError>(match cx.call(called, input(&state)).or_left().await? {
                    Returned::State(ended) => Command::<S, R>::update(output(&ended)),
                    Returned::Command(command) => command,
                })
            }
        };
        let node = self.declare_subgraph(name, graph, erase_routing(run), |_| None);
        self.routing::<R>(node)
    }

    /// Declares that `node` calls a graph with [`Cx::call`], for drawings: `name` identifies the call. It has
    /// no other effect.
    ///
    /// # Panics
    /// If `node` is not a node of this graph.
    #[track_caller]
    pub fn calls<T: State>(&mut self, node: impl Into<NodeRef>, name: &str, graph: &CompiledGraph<T>) {
        let node = self.endpoint(node.into());
        assert!(matches!(node, Endpoint::Node(_)), "only a node of a graph can call another one");
        self.topology.calls.push((node, name.to_owned(), graph.inner().topology.clone()));
    }

    #[track_caller]
    fn declare_same(&mut self, name: &str, graph: &CompiledGraph<S>, run: NodeFn<S>) -> NodeRef {
        if graph.persistence() == Persistence::PerNode {
            let kind = ProblemKind::OwnSameState(name.into());
            self.topology.problems.push(Problem { kind, place: Location::caller() });
        }
        self.declare_subgraph(name, graph, run, Some)
    }

    /// Declares a node that runs `graph`; `seed` returns the state with which it starts, if that is its caller's.
    #[track_caller]
    fn declare_subgraph<T: State>(
        &mut self,
        name: &str,
        graph: &CompiledGraph<T>,
        run: NodeFn<S>,
        seed: fn(S) -> Option<T>,
    ) -> NodeRef {
        let topology = graph.inner().topology.clone();
        self.subgraphs.push((self.nodes.len(), Arc::new(SubgraphNode { graph: graph.clone(), seed })));
        let node = self.declare(name, run, false);
        let spec = self.topology.nodes.last_mut().expect("it was just declared");
        // It is notified of a cancellation, and decides for each of its nodes.
        (spec.subgraph, spec.on_cancel) = (Some(topology), OnCancel::Finish);
        node
    }

    fn routing<R: Route>(&mut self, node: NodeRef) -> RoutingRef<R> {
        self.topology.nodes.last_mut().expect("it was just declared").routing = !R::ALL.is_empty();
        RoutingRef::new(node)
    }
}
