//! The calls of a response before any of them is executed.

use serde_json::Value;
use superstep_graph::Cx;
use superstep_llm::{ToolCall, calls::ToolCallError};

use super::keys::{asks, begun, result_of, start_event_key};
use crate::{
    AgentEvent, AgentState, Approval,
    approval::ApprovalRequest,
    config::{Permit, prompts},
    context::finish::Finishing,
    deps::AgentDeps,
    events::emit,
    hooks::Acting,
    nodes::{loops, parts},
    permissions::permit_of,
    repair::repaired_call,
    state::{Refusal, ToolCallRecord},
};

/// A call that must be answered.
pub(super) struct Pending {
    /// Its position in the response.
    pub(super) position: usize,
    pub(super) call: ToolCall,
    /// The resolved tool, which differs from the model's name if that was repaired.
    pub(super) name: String,
    /// The validated arguments of the call; `None` if there is no such tool.
    pub(super) checked: Option<Result<Value, ToolCallError>>,
    /// The rest of it from an earlier run of the round; nothing in a replay.
    pub(super) left: Left,
    /// The result for the model and the reason, if it must not be executed.
    pub(super) refused: Option<(String, &'static str)>,
    /// The decision, if it was made early.
    pub(super) verdict: Option<Verdict>,
    /// The approval, if it was requested early.
    pub(super) decision: Option<Approval>,
    /// The id of the interrupt that the approval answers, if it is a stored one that needs trust.
    pub(super) interrupt: Option<String>,
    /// The call after the hooks, if they have run.
    pub(super) acting: Option<Acting>,
}

/// The stored rest of a call whose round was stopped, or waited for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// The call has begun, or its tool waits for an answer.
    Begun,
    /// The call has a result.
    Result,
}

impl Left {
    /// Returns what is left of the call at `position`.
    fn of(deps: &AgentDeps, name: &str, position: usize, cx: &Cx) -> Self {
        let has = |mark: &str| cx.has_result(mark);
        let is_repeatable = deps.tools.get(name).is_some_and(|tool| tool.behaviour().idempotent);
        if has(&result_of(position)) {
            Self::Result
        } else if has(&asks(position, 0))
            || has(&start_event_key(position))
            || (!is_repeatable && has(&begun(position, 0)))
        {
            Self::Begun
        } else {
            Self::Nothing
        }
    }
}

impl Pending {
    /// Resolves the call at `position`; `finish` is the name of the finish tool, if there is one.
    pub(super) fn new(
        deps: &AgentDeps,
        finish: Option<&str>,
        (position, call): (usize, ToolCall),
        cx: &Cx,
    ) -> Self {
        let (tools, repair) = (&deps.tools, deps.config.repair);
        let name = repaired_call::resolved(tools, finish, repair, &call.name).to_owned();
        if name != call.name {
            emit(cx, || AgentEvent::ToolRepaired {
                id: call.id.clone(),
                from: call.name.clone(),
                to: name.clone(),
            });
        }
        let mut checked = tools.check(&name, &call.arguments);
        if repair
            && let Some(Err(_)) = &checked
            && let Some(unwrapped) = repaired_call::arguments(&call.arguments)
            && let Some(Ok(args)) = tools.check(&name, &unwrapped)
        {
            emit(cx, || AgentEvent::ArgsRepaired { id: call.id.clone(), tool: name.clone() });
            checked = Some(Ok(args));
        }
        Self {
            left: Left::of(deps, &name, position, cx),
            position,
            call,
            name,
            checked,
            refused: None,
            verdict: None,
            decision: None,
            interrupt: None,
            acting: None,
        }
    }

    /// Returns the arguments for display; the model's text if they are not valid JSON.
    pub(super) fn args(&self) -> Value {
        self.valid_args().cloned().unwrap_or_else(|| parts::arguments(&self.call))
    }

    /// Returns the validated arguments, if there is such a tool and they are valid.
    pub(super) fn valid_args(&self) -> Option<&Value> {
        self.checked.as_ref()?.as_ref().ok()
    }

    /// Returns whether nothing has refused a valid call.
    pub(super) fn may_run(&self) -> bool {
        self.refused.is_none() && self.valid_args().is_some()
    }

    /// Returns the reason if the hooks deny it.
    pub(super) fn denied(&self) -> Option<&str> {
        self.acting.as_ref()?.denied.as_deref()
    }

    pub(super) fn record(&self) -> ToolCallRecord {
        ToolCallRecord { name: self.call.name.clone(), args: self.args() }
    }

    /// Returns whether the call requires approval, if that is decided.
    pub(super) fn needs_approval(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Ask(_)))
    }

    /// Returns a request about the call with these arguments.
    pub(super) fn request(&self, args: &Value, question: String) -> ApprovalRequest {
        let (call_id, tool) = (self.call.id.clone(), self.name.clone());
        ApprovalRequest { call_id, tool, args: args.clone(), question, form: None, problem: None }
    }
}

/// Marks the calls that must not be executed. Returns whether they end the turn.
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
            _ if state.answer.cut_off => Some((prompts::cut_off(&call.name), "cut_off")),
            // Calls that end the turn need no further checks.
            _ if finishes(call) => None,
            Some(Refusal::StepLimit) => Some((prompts::STEP_LIMIT.to_owned(), "step_limit")),
            Some(Refusal::Budget) => Some((prompts::BUDGET.to_owned(), "budget")),
            None => None,
        };
    }
    let transfers = pending
        .iter_mut()
        .filter(|call| call.refused.is_none() && deps.group.transfers.contains_key(&call.name));
    for call in transfers.skip(1) {
        call.refused = Some((prompts::SECOND_TRANSFER.to_owned(), "second_transfer"));
    }
    let mut stop = false;
    let mut over_budget = (Vec::new(), Vec::new());
    if !state.answer.cut_off && state.answer.refused.is_none() {
        let (repeated, ends_turn) = loops::refused(deps, state, records);
        stop = ends_turn;
        for (position, (found, ends)) in repeated {
            if !ends && pending[position].left == Left::Nothing {
                emit(cx, || found.event());
            }
            pending[position].refused =
                Some((prompts::loop_warning(&found.tool, found.n, found.same), "loop_detected"));
        }
        over_budget = over_budget_of(deps, state, pending, finishes);
    }
    let (plain, resumed) = over_budget;
    for (position, call) in pending.iter_mut().enumerate() {
        let is_refused = call.refused.is_some() || plain.contains(&position);
        // Nothing refuses what was done; it counts first.
        let stays_refused = match call.left {
            Left::Nothing => call.refused.is_some() || resumed.contains(&position),
            Left::Begun | Left::Result => false,
        };
        let is_changed = cx.noted(&format!("left.{position}"), is_refused != stays_refused);
        if is_refused == is_changed {
            call.refused = None;
        } else if call.refused.is_none() {
            call.refused = Some((prompts::BUDGET.to_owned(), "budget"));
        }
    }
    stop
}

/// Returns the positions of the calls for which the budget has no more calls: in their order, and behind those that have begun in
/// an earlier run.
fn over_budget_of(
    deps: &AgentDeps,
    state: &AgentState,
    pending: &[Pending],
    finishes: impl Fn(&Pending) -> bool,
) -> (Vec<usize>, Vec<usize>) {
    let Some(most) = deps.config.budget.tool_calls else { return (Vec::new(), Vec::new()) };
    let left = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(state.tools_used.len());
    // Hooks may turn an invalid call into a valid one.
    // So may the arguments with which a rule forbids it.
    let is_usable = |call: &Pending| {
        let is_allowed = |args| {
            let tool = deps.tools.get(&call.name).map(|tool| &**tool);
            permit_of(&deps.config.permissions, &call.name, tool, args) != Some(Permit::Deny)
        };
        !deps.hooks.acting.is_empty() || call.valid_args().is_some_and(is_allowed)
    };
    let may_run = |position: &usize| {
        let call = &pending[*position];
        call.refused.is_none() && !finishes(call) && is_usable(call)
    };
    let counted: Vec<usize> = (0..pending.len()).filter(may_run).collect();
    let new = counted.iter().copied().filter(|position| pending[*position].left == Left::Nothing);
    let new: Vec<usize> = new.collect();
    let left_for_new = left.saturating_sub(counted.len() - new.len());
    (counted.into_iter().skip(left).collect(), new.into_iter().skip(left_for_new).collect())
}

/// The decision on a valid call.
#[derive(Clone)]
pub(super) enum Verdict {
    /// The call runs.
    Run,
    /// Requires approval with this question.
    Ask(String),
    /// The call does not run; the model receives this text.
    Refuse(String),
}
