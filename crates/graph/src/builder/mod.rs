//! The builder of graphs and its checks.
//!
//! Start at [`state_graph::StateGraph`].

mod channels;
pub(crate) mod checks;
pub(crate) mod discard;
pub(crate) mod error;
pub(crate) mod failed_end;
pub(crate) mod handlers;
pub(crate) mod routing;
pub(crate) mod state_graph;
pub(crate) mod stops;
pub(crate) mod subgraphs;
pub(crate) mod view;
