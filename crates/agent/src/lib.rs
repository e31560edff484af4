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
mod deps;
mod events;
mod facades;
mod graph;
mod hooks;
mod nodes;
mod plain_name;
mod presets;
mod state;
mod transcript;

pub use agent::builder::{AgentBuilder, AgentError};
pub use agent::extract::ExtractError;
pub use agent::handle::{Agent, Reply};
pub use agent::steer::{SteerError, steer};
pub use agent::thread::AgentThread;
pub use approval::approver::{Approval, ApprovalFuture, ApprovalRequest, Approvals, Approver};
pub use approval::trust::Trust;
pub use config::answers::{AfterEmpty, EmptyPolicy, Exhausted, LengthPolicy};
pub use config::approval::ApprovalConfig;
pub use config::budget::{Budget, Cost};
pub use config::context::{Breaker, ContextBudget, ContextConfig, ContextLayer};
pub use config::finish::{Finish, FinishBy, OutputMode};
pub use config::limit::{AtLimit, Limit, LimitUnit};
pub use config::loops::{LoopAction, LoopRule, Repeat};
pub use config::media::MediaConfig;
pub use config::permissions::{PermissionRule, Permit};
pub use config::react_config::{ConfigError, ReactConfig};
pub use config::retrieve::Retrieve;
pub use config::tools::{ResultOrder, ToolErrors, ToolMode};
pub use config::truncate::{Truncate, TruncateSide};
pub use deps::agent_deps::AgentDeps;
pub use deps::history::{HistoryFuture, TurnHistory, TurnRecord};
pub use deps::knowledge::{Knowledge, Passage};
pub use deps::memory::{
    LongTermMemory, MEMORY_PHRASES, MemoryEntry, MemoryError, MemoryFuture, MemoryTrigger,
};
pub use deps::models::Models;
pub use deps::replay_tools::ReplayTools;
pub use deps::sub_agent::SubAgent;
pub use events::AgentEvent;
pub use facades::facade::FacadeError;
pub use facades::{agentscope, cococat, harness, opencode};
pub use graph::react_graph::{
    Next, ReactNodes, add_agent, add_compact, add_finalize, add_init_state, add_memory_trigger, add_record,
    add_retrieve, add_tools, react_graph, react_graph_as, should_continue,
};
pub use hooks::after_turn::AfterTurn;
pub use hooks::around::{Acting, Around, HookError, Hooked, Hooks, Printed, Steps, ToolFailure};
pub use hooks::tool_check::{OnToolCheck, OnToolError, ToolCheck};
pub use nodes::offered::ToolDifference;
pub use presets::named::{PRESETS, Preset};
pub use state::agent_state::{
    AgentState, AgentStateUpdate, LastAnswer, MessageIds, Messages, Metadata, ModelFailure, Refusal,
    ToolCallRecord,
};
pub use state::has_agent::HasAgent;
pub use state::hook_failure::HookFailure;
pub use state::outcome::{AgentOutcome, BudgetLimit, StopReason};
pub use state::parts::{IllegalTransition, Part, PartKind, Parts, ToolEvent, ToolState, ToolStatus};
pub use state::view::{ContextView, RequestSize};
pub use transcript::msg::Msg;
