//! The five nodes, each one step.

pub(crate) mod agent;
mod answer;
mod asked;
mod budget;
mod chunk;
pub(crate) mod finalize;
pub(crate) mod finish;
pub(crate) mod init_state;
mod loops;
pub(crate) mod memory_trigger;
mod next_call;
mod reasoning_hooks;
mod repair;
mod repaired_call;
mod request;
pub(crate) mod tools;
