//! The state of the agent: its channels and the types stored in them.
//!
//! Start at [`agent_state::AgentState`].

pub(crate) mod agent_state;
pub(crate) mod conversation;
pub(crate) mod cost;
pub(crate) mod guarding;
pub(crate) mod guidance;
pub(crate) mod handoffs;
pub(crate) mod has_agent;
pub(crate) mod hook_failure;
pub(crate) mod outcome;
pub(crate) mod parts;
pub(crate) mod request_frame;
pub(crate) mod spent;
pub(crate) mod view;

pub use self::{
    agent_state::{
        AgentStateUpdate, LastAnswer, MessageIds, Messages, Metadata, ModelFailure, Pins, Refusal,
        ToolCallRecord,
    },
    conversation::conversation,
    cost::{ModelCost, TurnCost},
    guarding::{Draft, GuardVerdict, Guarding},
    guidance::{AddedKind, AddedText, Guidance, GuidanceData},
    handoffs::{Handoffs, Parked},
    hook_failure::HookFailure,
    outcome::{BudgetLimit, StopReason},
    parts::{IllegalTransition, Part, PartKind, Parts, ToolEvent, ToolState, ToolStatus},
    request_frame::{FrameData, RequestFrame},
    view::{ContextView, RequestSize},
};
