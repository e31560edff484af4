//! Graphs of any state, as the commands use them: inputs and states are JSON.
//!
//! Start at [`any_graph::AnyGraph`].

pub(crate) mod any_graph;
pub(crate) mod any_thread;
pub(crate) mod graph_set;
pub(crate) mod state_json;
