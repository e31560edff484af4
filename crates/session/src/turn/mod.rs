//! A turn of the agent, from its setup to its end.
//!
//! Start at [`setup::Setup`].

pub mod dream_thread;
pub mod dreams;
pub mod hosted;
pub mod mcp;
pub mod pins;
pub mod randomness;
pub mod results;
pub mod revert;
pub mod setup;
pub mod snapshots;
pub mod stored_graph;
pub mod threads;
pub mod tools;
pub mod usage;
pub mod waiting;
