//! The calls of an answer before any of them is executed.

use serde_json::Value;
use superstep_graph::Cx;
use superstep_llm::{ToolCall, ToolCallError};

use super::permit::Verdict;
use crate::{
    Acting, AgentDeps, AgentState, Approval, Refusal, ToolCallRecord, events,
    nodes::{finish::Finishing, loops, repaired_call},
    texts,
};

/// A call that is to be answered.
pub(super) struct Pending {
    pub(super) call: ToolCall,
    /// The tool it means, which differs from what the model wrote if that was repaired.
    pub(super) name: String,
    /// Its arguments; `None` if there is no such tool.
    pub(super) checked: Option<Result<Value, ToolCallError>>,
    /// What the model reads instead of a result, and why, if it must not be executed.
    pub(super) refused: Option<(String, &'static str)>,
    /// What is to happen to it, if that was settled before its turn came.
    pub(super) verdict: Option<Verdict>,
    /// What was decided about it, if somebody was asked before its turn came.
    pub(super) decision: Option<Approval>,
    /// What the program's hooks made of it, if they have seen it.
    pub(super) acting: Option<Acting>,
}

impl Pending {
    pub(super) fn new(deps: &AgentDeps, call: ToolCall, cx: &Cx) -> Self {
        let (tools, repair) = (&deps.tools, deps.config.repair);
        let mut name = call.name.clone();
        if let Some(meant) =
            repaired_call::name(tools, &name).filter(|_| repair && tools.get(&name).is_none())
        {
            events::tool_repaired(cx, &call.id, &name, meant);
            meant.clone_into(&mut name);
        }
        let mut checked = tools.check(&name, &call.arguments);
        if let (Some(Err(_)), true) = (&checked, repair)
            && let Some(unwrapped) = repaired_call::arguments(&call.arguments)
            && let Some(Ok(args)) = tools.check(&name, &unwrapped)
        {
            events::args_repaired(cx, &call.id, &name);
            checked = Some(Ok(args));
        }
        Self { call, name, checked, refused: None, verdict: None, decision: None, acting: None }
    }

    /// The arguments as they are shown. Without JSON there are none, only what the model wrote.
    pub(super) fn args(&self) -> Value {
        match &self.checked {
            Some(Ok(checked)) => checked.clone(),
            Some(Err(_)) | None => serde_json::from_str(&self.call.arguments)
                .unwrap_or_else(|_| Value::String(self.call.arguments.clone())),
        }
    }

    /// Why the program's hooks deny it, if they do.
    pub(super) fn denied(&self) -> Option<&str> {
        self.acting.as_ref()?.denied.as_deref()
    }

    pub(super) fn record(&self) -> ToolCallRecord {
        ToolCallRecord { name: self.call.name.clone(), args: self.args() }
    }
}

/// Marks the calls that must not be executed. Whether the turn is over with them.
pub(super) fn refuse(
    deps: &AgentDeps,
    state: &AgentState,
    records: &[ToolCallRecord],
    pending: &mut [Pending],
    cx: &Cx,
) -> bool {
    let finish = Finishing::of(&deps.config, state).tool().map(|tool| tool.name);
    let finishes = |call: &Pending| finish.as_ref() == Some(&call.name);
    for call in &mut *pending {
        call.refused = match state.answer.refused {
            _ if state.answer.cut_off => Some((texts::cut_off(&call.name), "cut_off")),
            // What ends the turn needs nothing more.
            _ if finishes(call) => None,
            Some(Refusal::StepLimit) => Some((texts::STEP_LIMIT.to_owned(), "step_limit")),
            Some(Refusal::Budget) => Some((texts::BUDGET.to_owned(), "budget")),
            None => None,
        };
    }
    if state.answer.cut_off || state.answer.refused.is_some() {
        return false;
    }
    let (loops, stop) = loops::refused(deps, state, records);
    for (position, (found, ends)) in loops {
        if !ends {
            events::loop_detected(cx, found.rule, &found.tool, found.n);
        }
        pending[position].refused = Some((texts::loop_warning(&found.tool, found.n), "loop_detected"));
    }
    if let Some(most) = deps.config.budget.tool_calls {
        let left = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(state.tools_used.len());
        // Hooks may make a call that can be executed of one that cannot.
        let is_usable = |call: &Pending| matches!(call.checked, Some(Ok(_))) || !deps.hooks.acting.is_empty();
        let may_run = |call: &&mut Pending| call.refused.is_none() && !finishes(call) && is_usable(call);
        for call in pending.iter_mut().filter(may_run).skip(left) {
            call.refused = Some((texts::BUDGET.to_owned(), "budget"));
        }
    }
    stop
}
