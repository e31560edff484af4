//! The agent for editors: the sessions behind the Agent Client Protocol.
//!
//! Start at [`agent::Agent`].

pub(crate) mod agent;
mod calls;
mod open;
mod options;
mod questions;
mod servers;
mod turn;
