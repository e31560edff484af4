//! A run of the agent, from its setup to its end.
//!
//! Start at [`setup::Setup`].

pub(crate) mod approve;
pub(crate) mod decisions;
pub(crate) mod dream_thread;
pub(crate) mod dreams;
mod form;
#[cfg(any(feature = "postgres", feature = "restate"))]
pub(crate) mod hosted;
pub(crate) mod mcp;
pub(crate) mod notes;
pub(crate) mod own_run;
pub(crate) mod randomness;
pub(crate) mod results;
pub(crate) mod run_loop;
pub(crate) mod setup;
pub(crate) mod signals;
pub(crate) mod snapshots;
pub(crate) mod stdin;
pub(crate) mod stored_graph;
pub(crate) mod tools;
pub(crate) mod typed;
pub(crate) mod waiting;
