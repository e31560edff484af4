//! References to nodes, returned by the builder.
//!
//! Start at [`NodeRef`].

use std::{fmt, marker::PhantomData};

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

impl<I> PartialEq for WorkerRef<I> {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

impl<I> Eq for WorkerRef<I> {}

impl<I> fmt::Debug for WorkerRef<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkerRef").field(&self.node).finish()
    }
}

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

impl<R> PartialEq for RoutingRef<R> {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

impl<R> Eq for RoutingRef<R> {}

impl<R> fmt::Debug for RoutingRef<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RoutingRef").field(&self.node).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_equal_if_their_nodes_are() {
        let node = |graph| NodeRef { graph, end: Endpoint::End };
        let worker = |graph| WorkerRef::<String> { node: node(graph), item: PhantomData };
        assert_eq!(worker(1), worker(1));
        assert_ne!(worker(1), worker(2));
        assert_eq!(RoutingRef::<()>::new(node(1)), RoutingRef::new(node(1)));
        assert_eq!(format!("{:?}", RoutingRef::<()>::new(END)), format!("RoutingRef({END:?})"));
    }
}
