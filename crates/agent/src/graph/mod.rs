//! The agent's nodes, wired as a graph.
//!
//! Start at [`edges::react_graph`].

pub(crate) mod edges;
mod guarded;
mod members;
pub(crate) mod react_graph;

pub use self::{
    edges::{react_graph, react_graph_as},
    react_graph::{
        Next, ReactNodes, add_agent, add_compact, add_finalize, add_init_state, add_memory_trigger,
        add_record, add_retrieve, add_tools, should_continue,
    },
};
