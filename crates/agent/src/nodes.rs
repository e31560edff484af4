//! The nodes; each does one step.

pub(crate) mod agent;
mod answer;
mod asked;
mod budget;
mod chunk;
pub(crate) mod compact;
mod exchange;
pub(crate) mod finalize;
pub(crate) mod finish;
mod heard;
pub(crate) mod init_state;
mod loops;
mod make_room;
pub(crate) mod memory_trigger;
mod next_call;
pub(crate) mod offered;
mod parts;
mod progress;
mod reasoning_hooks;
pub(crate) mod record;
mod repair;
mod repaired_call;
pub(crate) mod request;
pub(crate) mod retrieve;
pub(crate) mod steered;
pub(crate) mod tools;
