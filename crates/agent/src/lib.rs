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
//! history after `finalize`. Start at [`Agent`], or at [`react_graph`] for the graph alone.

mod agent;
mod approval;
mod config;
mod context;
#[cfg(feature = "workspace-tools")]
mod dream;
mod events;
mod extract;
mod facades;
mod folder;
mod graph;
mod has_agent;
mod history;
mod hooks;
mod knowledge;
mod marks;
mod memory;
mod models;
mod msg;
mod nodes;
mod parts;
mod plain_name;
mod retrieved;
mod state;
mod steer;
mod sub_agent;
mod texts;
mod trust;

mod tool_sources;

pub use agent::{Agent, AgentBuilder, AgentError, Reply};
pub use approval::{Approval, ApprovalFuture, ApprovalRequest, Approvals, Approver};
pub use config::{
    AfterEmpty, ApprovalConfig, AtLimit, Breaker, Budget, ConfigError, ContextBudget, ContextConfig,
    ContextLayer, Cost, EmptyPolicy, Exhausted, Finish, FinishBy, Keep, LengthPolicy, Limit, LimitUnit,
    LoopAction, LoopRule, MediaConfig, OutputMode, PRESETS, PermissionRule, Permit, Preset, ReactConfig,
    Repeat, ResultOrder, Retrieve, ToolErrors, ToolMode, Truncate,
};
pub use context::{ContextView, RequestSize};
#[cfg(feature = "workspace-tools")]
pub use dream::{
    Dream, DreamConfig, DreamCursor, DreamError, DreamState, DreamStateUpdate, Dreams, Dreamt, Due, LastDream,
};
pub use extract::ExtractError;
pub use facades::{FacadeError, agentscope, cococat, harness, opencode};
pub use graph::{
    AgentDeps, Next, ReactNodes, add_agent, add_compact, add_finalize, add_init_state, add_memory_trigger,
    add_record, add_retrieve, add_tools, react_graph, react_graph_as, should_continue,
};
pub use has_agent::HasAgent;
pub use history::{HistoryPlace, TurnHistory, TurnRecord, Unread};
pub use hooks::{Acting, Around, HookError, HookFailure, Hooked, Hooks, Printed, Steps, ToolFailure};
pub use knowledge::{Knowledge, Passage};
pub use memory::{
    LONGEST_MEMORY, LongTermMemory, MEMORY_PHRASES, MemoryEntry, MemoryError, MemoryFiles, MemoryFuture,
    MemoryTrigger, StoreMemory, memory_tools,
};
#[cfg(feature = "mem0")]
pub use memory::{Mem0, Mem0Config, Mem0ConfigError, Mem0Form};
pub use models::Models;
pub use msg::Msg;
pub use nodes::offered::{ReplayTools, ToolDifference};
pub use parts::{IllegalTransition, Part, PartKind, Parts, ToolEvent, ToolState, ToolStatus};
pub use state::{
    AgentOutcome, AgentState, AgentStateUpdate, LastAnswer, MessageIds, Messages, Metadata, ModelFailure,
    Refusal, ToolCallRecord,
};
pub use steer::{SteerError, steer};
pub use sub_agent::SubAgent;
pub use trust::Trust;
