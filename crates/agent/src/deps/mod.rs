//! The dependencies of the nodes, and the traits that a program implements for them.
//!
//! Start at [`agent_deps::AgentDeps`].

pub(crate) mod agent_deps;
pub(crate) mod folder;
pub(crate) mod history;
pub(crate) mod knowledge;
pub(crate) mod memory;
pub(crate) mod models;
pub(crate) mod replay_tools;
pub(crate) mod sub_agent;
pub(crate) mod tool_sources;
pub(crate) mod transfer;

pub use self::{
    agent_deps::{AgentDeps, Group, Handoff},
    history::{HistoryFuture, TurnHistory, TurnRecord},
    knowledge::{Knowledge, Passage},
    memory::{LongTermMemory, MEMORY_PHRASES, MemoryEntry, MemoryError, MemoryFuture, MemoryTrigger},
    models::Models,
    sub_agent::SubAgent,
};
pub use crate::state::handoffs::HandoffView;
