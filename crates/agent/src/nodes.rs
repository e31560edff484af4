//! The five nodes, each one step.

pub(crate) mod agent;
pub(crate) mod finalize;
pub(crate) mod init_state;
mod loops;
pub(crate) mod memory_trigger;
mod repair;
pub(crate) mod tools;
