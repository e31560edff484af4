//! The state of a round of tool calls.
//!
//! Start at [`Executor`].

use std::sync::{Arc, Mutex, OnceLock};

use superstep_graph::Cx;
use superstep_llm::Behaviour;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    at_work::RunningCalls, keys::QuestionKeys, order::Order, pending::Pending, tool_updates::OuterState,
};
use crate::{
    AgentState,
    config::{PermissionRule, ToolMode},
    deps::AgentDeps,
    state::HookFailure,
};

/// A round of tool calls; all calls share it.
pub(super) struct Executor {
    pub(super) deps: AgentDeps,
    pub(super) cx: Cx,
    /// The agent's state at the start of the round.
    pub(super) state: Arc<AgentState>,
    /// The state of the graph, which may have more channels.
    pub(super) outer: Arc<dyn OuterState>,
    /// The permanent grants of this thread before this round.
    pub(super) granted: Vec<PermissionRule>,
    /// The permanent grants including later ones.
    pub(super) permissions: Mutex<Vec<PermissionRule>>,
    /// Held during a question to the approver, so that there is one at a time.
    pub(super) asking: tokio::sync::Mutex<()>,
    /// The keys of the round's questions.
    pub(super) keys: QuestionKeys,
    /// The order of calls within a sequence.
    pub(super) order: Order,
    /// The running calls, which a question waits for.
    pub(super) at_work: RunningCalls,
    /// Number of sub-agent calls in the round, which share the remaining budget.
    pub(super) sub_calls: usize,
    /// The end of the turn's time.
    pub(super) out_of_time: Option<Instant>,
    /// The first hook that failed.
    pub(super) failed: OnceLock<HookFailure>,
    /// Fires when a tool fails, if that ends the turn.
    pub(super) tool_failed: CancellationToken,
}

impl Executor {
    /// Sets the order of all calls of the round, and the number of those that share the remaining budget.
    pub(super) fn arrange(&mut self, calls: &[(usize, Pending)]) {
        self.order = Order::of(&self.deps, calls);
        let may_run = |call: &Pending| {
            call.refused.is_none() && call.denied().is_none() && matches!(call.checked, Some(Ok(_)))
        };
        self.sub_calls = calls.iter().filter(|(_, call)| may_run(call) && self.is_sub_agent(call)).count();
    }

    /// Returns the maximum number of parallel calls.
    pub(super) fn at_once(&self) -> usize {
        match self.deps.config.tool_mode {
            ToolMode::Sequential => 1,
            ToolMode::Parallel { max } => max.max(1),
        }
    }

    /// Returns whether this call must run alone.
    pub(super) fn is_alone(&self, call: &Pending) -> bool {
        let may_run = call.refused.is_none() && matches!(call.checked, Some(Ok(_)));
        may_run && self.behaviour(call).exclusive
    }

    pub(super) fn behaviour(&self, call: &Pending) -> Behaviour {
        self.deps.tools.get(&call.name).map(|tool| tool.behaviour()).unwrap_or_default()
    }
}
