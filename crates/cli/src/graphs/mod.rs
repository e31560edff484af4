//! The graphs of a program, of any state: inputs and states are JSON.
//!
//! Start at [`graph_set::GraphSet`].

pub(crate) mod agent_graphs;
pub(crate) mod graph_set;
pub(crate) mod input;
