//! The builder of graphs and its checks.
//!
//! Start at [`state_graph::StateGraph`].

mod channels;
pub(crate) mod error;
pub(crate) mod handlers;
pub(crate) mod routing;
pub(crate) mod settings;
pub(crate) mod state_graph;
pub(crate) mod subgraphs;
pub(crate) mod view;
