//! The agent's nodes, wired as a graph.
//!
//! Start at [`react_graph::react_graph`].

pub(crate) mod react_graph;
