//! The programs: the agent's, and those with graphs of their own.
//!
//! Start at [`agent::agent`] for `superstep`, and at [`own::Program`] for the others.

pub(crate) mod agent;
pub(crate) mod own;
mod start;
