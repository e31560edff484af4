//! The ReAct agent: a model and its tools as a state graph of five nodes.
//!
//! ```text
//! START ─▶ init_state ─▶ memory_trigger ─▶ agent ┄┄▶ finalize ─▶ END
//!                                          ▲   ┆
//!                                          └─ tools
//! ```
//!
//! Each node does one step: `agent` makes one model call and executes nothing, `tools` executes and calls no
//! model, `finalize` makes the reply. Optional nodes exist if configured: `retrieve` searches entries before
//! `memory_trigger`, `compact` summarizes long conversations before `agent`, and `record` stores turns in a
//! history after `finalize`. Start at [`Agent`], or at [`graph::react_graph`] for the graph alone.

mod agent;
pub mod approval;
pub mod config;
mod context;
pub mod deps;
mod events;
pub mod facades;
pub mod graph;
pub mod guards;
pub mod hooks;
mod nodes;
mod permissions;
mod plain_name;
pub mod presets;
mod repair;
pub mod state;
mod trace;

pub use agent::builder::AgentBuilder;
pub use agent::error::AgentError;
pub use agent::extract::ExtractError;
pub use agent::handle::{Agent, Reply};
pub use agent::reply_stream::ReplyStream;
pub use agent::steer::{SteerError, steer};
pub use agent::thread::AgentThread;
pub use approval::approver::Approval;
pub use config::react_config::ReactConfig;
pub use events::AgentEvent;
pub use state::agent_state::AgentState;
pub use state::has_agent::HasAgent;
pub use state::outcome::AgentOutcome;

/// The tools of a replayed turn, and their difference from the recorded ones.
pub mod replay {
    pub use crate::{deps::replay_tools::ReplayTools, nodes::offered::ToolDifference};
}

/// Items shared with the other crates of superstep. Not for other use.
#[doc(hidden)]
pub mod internal {
    pub use crate::repair::repaired_call::name as repaired_name;
}
