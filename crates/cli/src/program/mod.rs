//! The programs: the agent's, and those with graphs of their own.
//!
//! Start at [`own::Program`].

pub(crate) mod agent;
pub(crate) mod own;
mod start;
