//! A memory in a Mem0 server.
//!
//! Start at [`client::Mem0`].

pub(crate) mod answer;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod wire;
