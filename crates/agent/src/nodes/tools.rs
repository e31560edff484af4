//! The fourth node: executes the called tools. It calls no model.
//!
//! Start at [`tools`].

mod answer;
mod call;
mod decision;
mod hooks;
mod keys;
mod pending;
mod round;
mod schedule;
mod snapshots;
mod tool_updates;

use std::sync::Arc;

use serde_json::Value;
use superstep_graph::{
    Cx, NodeError, State,
    node::Discarded,
    state::{Update, reduce},
};
use superstep_llm::{Message, Role, Usage, calls::ToolQuestion, snapshots::FileChanges};

pub(crate) use self::snapshots::of_discarded;
use self::{
    answer::{Answer, CallResult},
    keys::{asks, begun, result_of, start_event_key},
    pending::{Pending, refuse},
    round::Round,
};
use super::{
    attempts::with_usage,
    budget::{time_left, warned},
    instructions::{add_skills, touched},
    next_call::NextCall,
    offered::refresh,
    parts,
    steering_input::is_waiting,
};
use crate::{
    AgentEvent, AgentOutcome, AgentState, HasAgent,
    config::{PermissionRule, ResultOrder, ToolErrors, prompts},
    context::finish::{Finishing, settle},
    deps::{AgentDeps, folder::in_folder_of},
    events::emit,
    state::{AgentStateUpdate, HookFailure, LastAnswer, ToolCallRecord, has_agent::timers},
};

// A round is one task, because it has rules that a single call cannot follow: which calls are approved together, which tools run
// alone, how many run in parallel, what the budget still allows. Each result is stored at once, so a crash repeats no call.
/// Executes the calls of the last message and answers each one. Updates of tools are folded in call order,
/// before the agent's own.
///
/// # Errors
/// If the result of a call cannot be stored, or the folder of the turn is not usable.
pub(crate) fn tools<S: HasAgent>(
    deps: AgentDeps,
    outer: S,
    cx: Cx,
) -> impl Future<Output = Result<S::Update, NodeError>> + Send {
    // Shared, so that the future, which is moved several times before it starts, does not contain it.
    round(deps, Arc::new(outer), cx)
}

async fn round<S: HasAgent>(mut deps: AgentDeps, outer: Arc<S>, cx: Cx) -> Result<S::Update, NodeError> {
    timers()?;
    let state = outer.agent();
    add_skills(&mut deps, state);
    let offered = refresh(&mut deps, state, false, &cx).await;
    let deps = in_folder_of(deps, state, &cx)?;
    let message = state.messages.last().filter(|last| last.role == Role::Assistant);
    let calls = message.map(|message| message.tool_calls.clone()).unwrap_or_default();
    let finish = Finishing::of(&deps.config, state).tool().map(|tool| tool.name);
    let resolved = |call| Pending::new(&deps, finish.as_deref(), call, &cx);
    let mut pending: Vec<_> = calls.into_iter().enumerate().map(resolved).collect();
    let records: Vec<_> = pending.iter().map(Pending::record).collect();
    let stop = refuse(&deps, state, &records, &mut pending, &cx);
    let left = time_left(&deps.config, state, &cx);
    let mut round = Round::new(deps, outer.clone(), state, &pending, left, &cx);
    let before = snapshots::before(&round, &pending).await?;
    // Boxed, because the future of a node is moved several times before it starts.
    let limits = round.deps.config.budget.clone();
    let answers = Box::pin(schedule::answer_all(&mut round, pending));
    let (answers, is_warned) = warned((&limits, left), state, &cx, answers).await;
    let mut answers = answers?;
    let is_warned = cx.noted("warned", is_warned);
    // In the order of their completion, which a replay must not change.
    let returned: Option<Vec<usize>> = (round.deps.config.result_order == ResultOrder::Completion)
        .then(|| cx.noted("returned", answers.iter().map(|answer| answer.position).collect()));
    answers.sort_by_key(|answer| answer.position);
    let calls = answers.iter().filter(|answer| answer.done.executed).map(|answer| {
        let written = records.get(answer.position).map_or(&Value::Null, |record| &record.args);
        (answer.name.as_str(), answer.done.ran_with.as_ref().unwrap_or(written))
    });
    let guidance = touched(&round.deps, state, calls, &cx).await;
    let messages = messages(&cx, &answers, returned);
    for message in &messages {
        cx.emit_full_message(&message.id, message);
    }
    let transferred = transferred(&round, &answers, &records);
    let changes = snapshots::after(&round, before).await;
    let end = End::of(&round, &answers);
    let may_wait = matches!(end, End::Open { cancelled: false, is_reply: true, .. });
    let is_waiting = may_wait && is_waiting(state.steered, &cx).await?;
    let executed = answers.iter().filter(|answer| answer.done.executed).map(|answer| answer.name.clone());
    let permitted: Vec<_> = answers.iter().filter_map(|answer| answer.done.rule.clone()).collect();
    let results = answers.iter().map(|answer| answer.done.compared());
    let mut update = AgentState::update()
        .current_step(state.current_step + u32::from(state.answer.refused.is_none()))
        .tools_used(executed.collect::<Vec<_>>())
        .tool_result_history(results.collect::<Vec<_>>())
        .tool_call_history(records)
        .messages(messages);
    update = granting(state, permitted, update);
    if let Some(to) = transferred {
        update = update.active(to);
    }
    if is_warned {
        update = update.answer(LastAnswer { budget_warned: true, ..state.answer });
    }
    if let Some(offered) = offered {
        update = update.offered(offered);
    }
    if let Some(guidance) = guidance {
        update = update.guidance(guidance);
    }
    if let Some(changes) = changes {
        update = update.files(changes);
    }
    let parts: Vec<_> = answers.iter().filter_map(|answer| answer.part.clone()).collect();
    if !parts.is_empty() {
        update = update.parts(parts);
    }
    // Only sub-agents have usage.
    let usage: Vec<_> = answers.iter().filter_map(|answer| answer.done.usage).collect();
    if !usage.is_empty() {
        let all = usage.into_iter().fold(Usage::default(), |all, usage| all + usage);
        let spent = answers.iter().flat_map(|answer| answer.done.spending()).collect();
        update = with_usage(update, state, round.deps.models.main.name(), all, spent);
    }
    let written = written(&*outer, &answers)?;
    let update = ended(&round, &answers, end, is_waiting, update, stop);
    Ok(written.then(S::agent_update(update)))
}

/// Returns the agent to which a call has transferred the conversation.
fn transferred(round: &Round, answers: &[Answer], records: &[ToolCallRecord]) -> Option<String> {
    let (position, to) =
        answers.iter().find_map(|answer| Some((answer.position, answer.done.transfer.clone()?)))?;
    emit(&round.cx, || AgentEvent::Handoff {
        from: round.deps.group.member.to_string(),
        to: to.clone(),
        reason: records[position].args["reason"].as_str().unwrap_or_default().to_owned(),
    });
    Some(to)
}

/// Returns the results as messages: in call order, or in the order in which they were `returned`.
fn messages(cx: &Cx, answers: &[Answer], returned: Option<Vec<usize>>) -> Vec<Message> {
    let messages: Vec<_> = (0..).zip(answers).map(|(n, answer)| answer.message(cx.id(n))).collect();
    match returned {
        Some(returned) => {
            returned.into_iter().filter_map(|position| messages.get(position).cloned()).collect()
        }
        None => messages,
    }
}

/// Returns the updates of the tools in call order.
fn written<S: HasAgent>(state: &S, answers: &[Answer]) -> Result<S::Update, NodeError> {
    let updates = answers.iter().filter_map(|answer| answer.done.update.as_ref());
    updates.map(|update| tool_updates::read(state, update)).try_fold(S::update(), |all, update| {
        // It was checked when the tool returned; only another version of the program can fail here.
        let update = update.map_err(|error| NodeError::new(Unreadable(error)).fatal())?;
        Ok(all.then(update))
    })
}

/// The end of a round.
enum End {
    /// A hook failed.
    // An error of the node would leave the state before it, with calls without results. So a failed hook ends the turn like a
    // cancellation: every call is answered, and the thread accepts the next message.
    HookFailed(HookFailure),
    /// A call was denied or failed, and the configuration ends the turn then.
    Ended(AgentOutcome),
    /// Neither.
    Open {
        /// The turn was cancelled.
        cancelled: bool,
        /// The results of all calls answer the user.
        answered: bool,
        /// The results contain a reply: the final answer, or those of all calls.
        is_reply: bool,
    },
}

impl End {
    fn of(round: &Round, answers: &[Answer]) -> Self {
        let config = &round.deps.config;
        // Of several failures the first in order is taken, because a replay does not see which came first.
        if let Some(failure) = round.cx.noted("hook_error", round.failed.get().cloned()) {
            return Self::HookFailed(failure);
        }
        // The other calls are executed as decided: which of them had begun when the answer arrived is a matter of timing, and would make
        // two runs of one round differ.
        if config.approval.stop_on_deny && answers.iter().any(|answer| answer.done.denied) {
            return Self::Ended(AgentOutcome::Denied);
        }
        if config.tool_errors == ToolErrors::Fail && answers.iter().any(|answer| answer.done.failed) {
            return Self::Ended(AgentOutcome::ToolFailed);
        }
        let answers_the_user =
            |answer: &Answer| answer.done.executed && answer.done.returned && answer.is_final;
        let answered = answers.iter().all(answers_the_user) && !answers.is_empty();
        let is_finished = answers.iter().any(|answer| matches!(answer.done.finish, Some(Ok(_))));
        let cancelled = round.cx.noted("cancelled.end", round.cx.cancel().is_cancelled());
        Self::Open { cancelled, answered, is_reply: answered || is_finished }
    }
}

/// Returns the update of a round with its end. A message that `is_waiting` is read before a reply stands, if the model may be called.
fn ended(
    round: &Round,
    answers: &[Answer],
    end: End,
    is_waiting: bool,
    update: AgentStateUpdate,
    loops: bool,
) -> AgentStateUpdate {
    let settled = |update| {
        let finishes = answers.iter().map(|answer| &answer.done.finish);
        settle(&round.deps.config.finish, &round.state, finishes, update)
    };
    match end {
        End::HookFailed(failure) => {
            update.stop(true).stop_reason(AgentOutcome::HookFailed).hook_error(failure)
        }
        // A reply in the same round is retained.
        End::Ended(outcome) => settled(update).stop(true).stop_reason(outcome),
        End::Open { cancelled, answered, .. } => {
            let waits = is_waiting && calls_model(round, &update);
            let update = match (loops, answered && !waits) {
                (true, _) => update.stop(true).stop_reason(AgentOutcome::LoopDetected),
                (false, true) => update.stop(true),
                (false, false) => update,
            };
            if cancelled || waits { update } else { settled(update) }
        }
    }
}

/// Returns whether the model is called after this round. Otherwise the reply stands, and the next turn reads the
/// message that is waiting.
fn calls_model(round: &Round, update: &AgentStateUpdate) -> bool {
    let after = reduce(&*round.state, [update.clone()]);
    after.is_ok_and(|after| NextCall::is_due(&round.deps, &after, round.cx.now_ms()))
}

/// A tool's update that another version of the program stored.
#[derive(Debug, thiserror::Error)]
#[error("the stored update of a tool, written by another version of the program, cannot be read: {0}")]
struct Unreadable(String);

/// Adds rules granted in the folder of the turn, replacing those granted for another folder.
fn granting(state: &AgentState, rules: Vec<PermissionRule>, update: AgentStateUpdate) -> AgentStateUpdate {
    if rules.is_empty() {
        update
    } else if state.permitted_in == state.cwd {
        update.permissions(rules)
    } else {
        update.set_permissions(rules).permitted_in(state.cwd.clone())
    }
}

/// Returns the update of an unfinished round: stored results, updates and permanent grants are retained; all
/// other calls are answered as interrupted, in doubt if they had begun, or unanswered if their tools had questions. The next turn
/// begins with the comparison of the files that the round may have changed.
pub(crate) fn discarded<S: HasAgent>(outer: &S, task: &Discarded<'_>) -> S::Update {
    let state = outer.agent();
    let Some(message) = state.messages.last().filter(|last| last.role == Role::Assistant) else {
        return S::update();
    };
    let did = |mark: &str| task.did::<()>(mark).is_some();
    let done = |position: usize| {
        let asked = (0..).take_while(|nth| task.did::<ToolQuestion>(&asks(position, *nth)).is_some()).count();
        match task.did::<CallResult>(&result_of(position)) {
            Some(done) => done,
            None if did(&begun(position, asked)) || did(&start_event_key(position)) => CallResult::in_doubt(),
            None if asked > 0 => CallResult::unanswered(),
            None => CallResult::not_executed(prompts::INTERRUPTED),
        }
    };
    let mut written = S::update();
    let (mut messages, mut ended, mut permissions) = (Vec::new(), Vec::new(), Vec::new());
    let (mut has_run, mut active) = (false, None);
    for (position, call) in message.tool_calls.iter().enumerate() {
        let done = done(position);
        has_run |= done.executed;
        active = active.or_else(|| done.transfer.clone());
        // Updates for another state type are lost.
        if let Some(update) = done.update.as_ref().and_then(|update| tool_updates::read(outer, update).ok()) {
            written = written.then(update);
        }
        let part = state.parts.get(&format!("{}.tool.{position}", message.id)).cloned();
        messages.push(done.message(&call.id));
        let end = done.end();
        ended.extend(part.and_then(|mut part| {
            part.state = Some(part.state.unwrap_or_default().after(end).ok()?);
            Some(parts::ran_with(part, done.ran_with))
        }));
        permissions.extend(done.rule);
    }
    let mut update = AgentState::update().messages(messages);
    update = granting(state, permissions, update);
    if let Some(to) = active {
        update = update.active(to);
    }
    if !ended.is_empty() {
        update = update.parts(ended);
    }
    if let Some(before) = snapshots::taken(task).filter(|_| has_run) {
        update = update.files(FileChanges { before, ..FileChanges::default() });
    }
    written.then(S::agent_update(update))
}
