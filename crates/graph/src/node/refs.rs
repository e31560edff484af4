//! References to nodes, returned by the builder.
//!
//! Start at [`NodeRef`].

use std::marker::PhantomData;

use superstep_engine::Endpoint;

/// A node of a [`StateGraph`](crate::StateGraph), returned by `add_node`. Valid in that graph only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRef {
    pub(crate) graph: u64,
    pub(crate) end: Endpoint,
}

/// A worker of a [`StateGraph`](crate::StateGraph): a node whose tasks each take an item of type `I`.
pub struct WorkerRef<I> {
    pub(crate) node: NodeRef,
    pub(crate) item: PhantomData<fn(I)>,
}

impl<I> Clone for WorkerRef<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for WorkerRef<I> {}

impl<I> From<WorkerRef<I>> for NodeRef {
    fn from(worker: WorkerRef<I>) -> Self {
        worker.node
    }
}

/// The start of every run. Connect it to the first node with an edge.
pub const START: NodeRef = NodeRef { graph: 0, end: Endpoint::Start };

/// The end of a branch of a run. It is the target of an edge or a route.
pub const END: NodeRef = NodeRef { graph: 0, end: Endpoint::End };

pub(crate) fn endpoint(stamp: u64, node: NodeRef) -> Endpoint {
    if node.graph == 0 || node.graph == stamp { node.end } else { Endpoint::Foreign }
}

/// A node of a [`StateGraph`](crate::StateGraph) that chooses among the routes `R`, returned by
/// `add_routing_node`.
pub struct RoutingRef<R> {
    pub(crate) node: NodeRef,
    routes: PhantomData<fn(R)>,
}

impl<R> RoutingRef<R> {
    pub(crate) fn new(node: NodeRef) -> Self {
        Self { node, routes: PhantomData }
    }
}

impl<R> Clone for RoutingRef<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for RoutingRef<R> {}
