//! A drawing as a graph of petgraph, for its algorithms.

use petgraph::graph::DiGraph;

use crate::{ArrowKind, Drawing, DrawnNode};

impl Drawing {
    /// Returns the nodes and arrows as a graph of [petgraph](https://docs.rs/petgraph), with the same positions.
    ///
    /// ```
    /// # use superstep_engine::{Edge, EdgeKind, Endpoint, NodeSpec, OnCancel, TopologyBuilder};
    /// # use std::panic::Location;
    /// # let node = |name: &str| NodeSpec {
    /// #     name: name.into(), on_cancel: OnCancel::Drop, worker: false, routing: false, handles: None, deferred: false,
    /// #     subgraph: None, place: Location::caller(),
    /// # };
    /// # let edge = |from, to| Edge { from, to, kind: EdgeKind::Plain, place: Location::caller() };
    /// # let mut builder = TopologyBuilder::default();
    /// # builder.nodes = vec![node("a"), node("b")];
    /// # builder.edges = vec![
    /// #     edge(Endpoint::Start, Endpoint::Node(0)), edge(Endpoint::Node(0), Endpoint::Node(1)),
    /// #     edge(Endpoint::Node(1), Endpoint::End),
    /// # ];
    /// # let topology = builder.build(Location::caller()).unwrap().0;
    /// let drawing = topology.drawing();
    /// let graph = drawing.digraph();
    /// assert!(!petgraph::algo::is_cyclic_directed(&graph));
    /// let order = petgraph::algo::toposort(&graph, None).unwrap();
    /// let labels: Vec<_> = order.into_iter().map(|node| graph[node].label.as_str()).collect();
    /// assert_eq!(labels, ["START", "a", "b", "END"]);
    /// ```
    pub fn digraph(&self) -> DiGraph<&DrawnNode, &ArrowKind> {
        let mut graph = DiGraph::with_capacity(self.nodes.len(), self.arrows.len());
        let nodes: Vec<_> = self.nodes.iter().map(|node| graph.add_node(node)).collect();
        for arrow in &self.arrows {
            graph.add_edge(nodes[arrow.from], nodes[arrow.to], &arrow.kind);
        }
        graph
    }
}
