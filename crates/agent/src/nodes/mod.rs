//! The nodes of the agent, and the parts of `agent` and `tools`.
//!
//! Start at [`agent::agent`].

pub(crate) mod accept_response;
pub(crate) mod agent;
pub(crate) mod attempts;
pub(crate) mod budget;
pub(crate) mod chunk;
pub(crate) mod compact;
pub(crate) mod finalize;
pub(crate) mod fit_request;
pub(crate) mod guards;
pub(crate) mod init_state;
mod instructions;
pub(crate) mod loops;
pub(crate) mod memory_trigger;
pub(crate) mod model_call;
pub(crate) mod model_turn;
pub(crate) mod next_call;
pub(crate) mod offered;
pub(crate) mod parts;
pub(crate) mod progress;
pub(crate) mod reasoning_hooks;
pub(crate) mod record;
pub(crate) mod recorded_response;
pub(crate) mod request;
pub(crate) mod request_changes;
pub(crate) mod retrieve;
mod skill_tool;
pub(crate) mod steering_input;
pub(crate) mod tools;
