//! Routing nodes: nodes that choose the next nodes.

use std::{future::Future, panic::Location};

use superstep_engine::{Edge, EdgeKind};

use super::state_graph::StateGraph;
use crate::{
    Cx, Route, State,
    node::{
        RoutingOutput,
        erased::erase_routing,
        refs::{NodeRef, RoutingRef, WorkerRef},
    },
};

impl<R> From<RoutingRef<R>> for NodeRef {
    fn from(routing: RoutingRef<R>) -> Self {
        routing.node
    }
}

impl<S: State> StateGraph<S> {
    /// Declares a node that chooses the next nodes: it returns a [`Command`](crate::Command), or only a
    /// route.
    ///
    /// [`add_routes`](Self::add_routes) declares the target of each route, and [`add_sends`](Self::add_sends)
    /// the workers to which the node may send items. Plain edges and conditional edges of the node are
    /// followed as well.
    ///
    /// The choice is stored with the update: no restart or replay repeats it.
    #[track_caller]
    pub fn add_routing_node<F, Fut>(
        &mut self,
        name: &str,
        node: F,
    ) -> RoutingRef<<Fut::Output as RoutingOutput<S>>::Route>
    where
        F: Fn(S, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: RoutingOutput<S>,
    {
        let node = self.declare(name, erase_routing(node), false);
        self.chooses(!<Fut::Output as RoutingOutput<S>>::Route::ALL.is_empty());
        RoutingRef::new(node)
    }

    /// Sets whether the node that was declared last has routes.
    pub(super) fn chooses(&mut self, routing: bool) {
        self.topology.nodes.last_mut().expect("it was just declared").routing = routing;
    }

    /// Declares a routing node with dependencies; each task gets a clone of them.
    #[track_caller]
    pub fn add_routing_node_with<D, F, Fut>(
        &mut self,
        name: &str,
        deps: D,
        node: F,
    ) -> RoutingRef<<Fut::Output as RoutingOutput<S>>::Route>
    where
        D: Clone + Send + Sync + 'static,
        F: Fn(D, S, Cx) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: RoutingOutput<S>,
    {
        self.add_routing_node(name, move |state, cx| node(deps.clone(), state, cx))
    }

    /// Declares the target of each route of a routing node. `map` is called once per route, immediately.
    #[track_caller]
    pub fn add_routes<R: Route>(&mut self, node: RoutingRef<R>, map: impl Fn(R) -> NodeRef) {
        let (from, place) = (self.endpoint(node.node), Location::caller());
        let targets: Vec<NodeRef> = R::ALL.iter().map(|&route| map(route)).collect();
        for (route, &to) in R::ALL.iter().zip(&targets) {
            let (to, kind) = (self.endpoint(to), EdgeKind::Goto(route.label().to_owned()));
            self.topology.edges.push(Edge { from, to, kind, place });
        }
        self.routes.push((from, targets));
    }

    /// Declares that a routing node may send items to `worker`, with [`Command::send`](crate::Command::send).
    #[track_caller]
    pub fn add_sends<R, I>(&mut self, node: RoutingRef<R>, worker: WorkerRef<I>) {
        let (from, to) = (self.endpoint(node.node), self.endpoint(worker.into()));
        self.topology.edges.push(Edge { from, to, kind: EdgeKind::Sends, place: Location::caller() });
    }
}
