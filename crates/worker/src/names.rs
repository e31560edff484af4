//! The names of graphs in jobs.
//!
//! Start at [`GraphName`].

use superstep_graph::{CompiledGraph, State};

/// The name of a graph: the graph itself, or a text where the graph is not at hand.
pub trait GraphName {
    /// Returns the name.
    fn graph_name(&self) -> &str;
}

impl<S: State> GraphName for CompiledGraph<S> {
    fn graph_name(&self) -> &str {
        self.name()
    }
}

impl GraphName for str {
    fn graph_name(&self) -> &str {
        self
    }
}

impl GraphName for String {
    fn graph_name(&self) -> &str {
        self
    }
}
