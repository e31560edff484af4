//! A compiled graph as data.
//!
//! Start at [`graph::CompiledGraph`].

pub(crate) mod graph;
pub(crate) mod node;
pub(crate) mod owner;
pub(crate) mod subgraph;
