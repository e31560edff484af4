//! The plan of the next model call, or the end of the turn.

use std::borrow::Cow;

use super::loops;
use crate::{
    AgentOutcome, AgentState, ReactConfig,
    config::{AtLimit, EmptyPolicy, LengthPolicy},
    context::finish::Finishing,
    deps::AgentDeps,
    state::StopReason,
};

/// The next step of the agent node.
pub(super) enum Plan<'a> {
    Call(NextCall<'a>),
    /// End the turn for this reason.
    Stop(StopReason),
    Fail,
}

pub(super) struct NextCall<'a> {
    /// The model is offered tools.
    pub(super) tools: bool,
    /// Marks the last allowed model call, whose tool calls are not executed.
    pub(super) last: bool,
    /// The reason for ending the turn after it; `Done` if it need not end.
    pub(super) reason: StopReason,
    /// A turn that ends after it is complete, if the response is not empty.
    pub(super) completes: bool,
    /// User messages added to this request only.
    pub(super) hints: Vec<Cow<'a, str>>,
    /// The hints join the conversation instead, because the model signs what precedes its answers.
    pub(super) keeps_hints: bool,
}

/// Number of consecutive rounds of truncated calls before a call without tools.
const MAX_CUT_ROUNDS: u32 = 2;

impl<'a> NextCall<'a> {
    /// Plans the next call from the state of this turn.
    pub(super) fn plan(config: &'a ReactConfig, state: &AgentState, now_ms: i64) -> Plan<'a> {
        let mut call = Self {
            tools: true,
            last: false,
            reason: StopReason::Done,
            completes: false,
            hints: Vec::new(),
            keeps_hints: false,
        };
        if let LengthPolicy::Continue { prompt, .. } = &config.length
            && state.answer.continuing
        {
            call.hints.push(prompt.into());
        }
        if let EmptyPolicy::Retry { max, nudge, .. } = &config.empty
            && state.answer.empty > 0
        {
            call.hint(state, nudge.as_deref().map(Cow::from));
            if state.answer.empty > *max {
                (call.tools, call.reason) = (false, AgentOutcome::Empty.into());
            }
        }
        if state.answer.cut_rounds >= MAX_CUT_ROUNDS {
            (call.tools, call.reason) = (false, AgentOutcome::Length.into());
        }
        if let Some(limit) = state.spent(now_ms).exhausts(&config.budget) {
            if !config.budget.reserve_final {
                return Plan::Stop(limit.into());
            }
            (call.tools, call.reason) = (false, limit.into());
            return Plan::Call(call);
        }
        // The limit does not set `stop`: it only changes the call, and the reply without tools ends the turn.
        let left = config.limit.left(state.current_step, state.llm_calls);
        let mut without_tools = |hint: Option<&'a str>| {
            (call.tools, call.reason) = (false, AgentOutcome::Limit.into());
            call.hint(state, hint.map(Cow::from));
        };
        let has_schema = Finishing::of(config, state).has_schema();
        match &config.limit.at {
            AtLimit::NoToolsCall { hint } if left == 0 => without_tools(hint.as_deref()),
            AtLimit::Reply if left == 0 => {
                without_tools(None);
                call.completes = true;
            }
            // No other text would be a valid reply: the model is called for one.
            AtLimit::Reminder(reminder) if has_schema && left <= 1 => without_tools(Some(reminder)),
            AtLimit::LastMessage | AtLimit::Fixed(_) if has_schema && left == 0 => without_tools(None),
            AtLimit::Reminder(reminder) if left == 1 => {
                (call.last, call.reason) = (true, AgentOutcome::Limit.into());
                call.hint(state, Some(reminder.into()));
            }
            AtLimit::Fail if left == 0 => return Plan::Fail,
            _ if left == 0 => return Plan::Stop(AgentOutcome::Limit.into()),
            _ => {
                let hint = config.remaining_hint.as_ref().filter(|_| call.tools);
                call.hint(state, hint.map(|hint| Cow::from(remaining(hint, left, config.limit.max))));
            }
        }
        Plan::Call(call)
    }

    /// Returns whether the model is called in this state.
    pub(super) fn is_due(deps: &AgentDeps, state: &AgentState, now_ms: i64) -> bool {
        match NextCall::plan(&deps.config, state, now_ms) {
            Plan::Call(call) => !call.tools || loops::ends(deps, state).is_none_or(|(_, answers)| answers),
            Plan::Stop(_) | Plan::Fail => false,
        }
    }

    /// Adds a hint, unless a response is being continued, which a hint would interrupt.
    pub(super) fn hint(&mut self, state: &AgentState, hint: Option<Cow<'a, str>>) {
        self.hints.extend(hint.filter(|_| !state.answer.continuing));
    }
}

fn remaining(hint: &str, left: u32, max: u32) -> String {
    hint.replace("{left}", &left.to_string()).replace("{max}", &max.to_string())
}
