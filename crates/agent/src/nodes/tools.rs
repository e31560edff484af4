//! The fourth node: executes the called tools. It calls no model.
//!
//! Start at [`tools`].

mod answer;
mod at_work;
mod discarded;
mod doubt;
mod execute;
mod executor;
mod finish;
mod hooks;
mod keys;
mod order;
mod output;
mod pending;
mod permit;
mod questions;
mod shorten;
mod snapshots;
mod stored_decision;
mod sub_agents;
mod tool_updates;

use std::sync::{Arc, Mutex, OnceLock};

use futures::{StreamExt, TryStreamExt, stream};
use superstep_graph::{
    Cx, NodeError, State,
    state::{Update, reduce},
};
use superstep_llm::{Message, Role, Usage};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    answer::Answer,
    at_work::RunningCalls,
    executor::Executor,
    keys::QuestionKeys,
    order::Order,
    pending::{Pending, refuse},
};
pub(crate) use self::{discarded::discarded, snapshots::of_discarded};
use super::{
    budget::{Spent, of_turn, warned},
    model_call::by_model,
    next_call::NextCall,
    steering_input::is_waiting,
};
use crate::{
    AgentOutcome, AgentState, HasAgent,
    config::{ResultOrder, ToolErrors},
    context::finish::{Finishing, settle},
    deps::AgentDeps,
    state::{AgentStateUpdate, LastAnswer, has_agent::timers},
};

/// Executes the calls of the last message and answers each one. Updates of tools are folded in call order,
/// before the agent's own.
///
/// # Errors
/// If the result of a call cannot be stored, or the folder of the turn is not usable.
pub(crate) async fn tools<S: HasAgent>(deps: AgentDeps, outer: S, cx: Cx) -> Result<S::Update, NodeError> {
    timers()?;
    let outer = Arc::new(outer);
    let state = outer.agent();
    let deps = AgentDeps { config: of_turn(deps.config.clone(), state), ..deps };
    let (deps, offered) = deps.of_now(state, &cx).await;
    let deps = deps.in_folder_of(state, &cx)?;
    let message = state.messages.last().filter(|last| last.role == Role::Assistant);
    let calls = message.map(|message| message.tool_calls.clone()).unwrap_or_default();
    let finish = Finishing::of(&deps.config, state).tool().map(|tool| tool.name);
    let resolved = |call| Pending::new(&deps, finish.as_deref(), call, &cx);
    let mut pending: Vec<_> = calls.into_iter().enumerate().map(resolved).collect();
    let records: Vec<_> = pending.iter().map(Pending::record).collect();
    let stop = refuse(&deps, state, &records, &mut pending, &cx);
    let budget = deps.config.budget.wall.map(|wall| wall.saturating_sub(Spent::of(state, cx.now_ms()).time));
    let granted = permit::granted(&deps, state, &cx);
    let mut run = Executor {
        permissions: Mutex::new(granted.clone()),
        granted,
        asking: tokio::sync::Mutex::new(()),
        keys: QuestionKeys::of(pending.iter().map(|call| call.call.id.as_str())),
        order: Order::default(),
        at_work: RunningCalls::default(),
        failed: OnceLock::new(),
        tool_failed: CancellationToken::new(),
        out_of_time: budget.map(|left| Instant::now() + left),
        sub_calls: 0,
        state: Arc::new(state.clone()),
        outer: outer.clone(),
        deps,
        cx: cx.clone(),
    };
    let before = snapshots::before(&run, &pending).await?;
    // Boxed, because the future of a node is moved several times before it starts.
    let limits = run.deps.config.budget.clone();
    let answers = Box::pin(answer_all(&mut run, pending));
    let (answers, is_warned) = warned((&limits, budget), state, &cx, answers).await;
    let mut answers = answers?;
    let is_warned = run.cx.noted("warned", is_warned);
    // In the order of their completion, which a replay must not change.
    let returned: Option<Vec<usize>> = (run.deps.config.result_order == ResultOrder::Completion)
        .then(|| run.cx.noted("returned", answers.iter().map(|(position, _)| *position).collect()));
    answers.sort_by_key(|(position, _)| *position);
    let answers: Vec<Answer> = answers.into_iter().map(|(_, answer)| answer).collect();
    let messages = messages(&run.cx, &answers, returned);
    for message in &messages {
        run.cx.emit_full_message(&message.id, message);
    }
    let executed = answers.iter().filter(|answer| answer.done.executed).map(|answer| answer.name.clone());
    let permitted: Vec<_> = answers.iter().filter_map(|answer| answer.done.rule.clone()).collect();
    let results = answers.iter().map(|answer| answer.done.compared());
    let mut update = AgentState::update()
        .current_step(state.current_step + u32::from(state.answer.refused.is_none()))
        .tools_used(executed.collect::<Vec<_>>())
        .tool_result_history(results.collect::<Vec<_>>())
        .tool_call_history(records)
        .messages(messages);
    update = permit::granting(state, permitted, update);
    if is_warned {
        update = update.answer(LastAnswer { budget_warned: true, ..state.answer });
    }
    if let Some(offered) = offered {
        update = update.offered(offered);
    }
    if let Some(changes) = snapshots::after(&run, before).await {
        update = update.files(changes);
    }
    let parts: Vec<_> = answers.iter().filter_map(|answer| answer.part.clone()).collect();
    if !parts.is_empty() {
        update = update.parts(parts);
    }
    update = with_usage(update, state, run.deps.models.main.name(), &answers);
    let written = written(&*outer, &answers)?;
    let update = ended(&run, &answers, stop, update).await?;
    Ok(written.then(S::agent_update(update)))
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

/// Adds the usage of sub-agents to that of the turn; `main` is the model of the agent.
fn with_usage(
    update: AgentStateUpdate,
    state: &AgentState,
    main: &str,
    answers: &[Answer],
) -> AgentStateUpdate {
    let usage: Vec<_> = answers.iter().filter_map(|answer| answer.done.usage).collect();
    if usage.is_empty() {
        return update;
    }
    let update = update.usage(usage.into_iter().fold(state.usage, |all, usage| all + usage));
    let spent = answers.iter().flat_map(|answer| answer.done.usage_by_model.clone());
    let spent = spent.filter(|(_, usage)| *usage != Usage::default()).collect();
    let by_model = by_model(state, main, spent);
    if by_model.is_empty() { update } else { update.usage_by_model(by_model) }
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

/// Returns the update of a round, and whether it ends the turn.
async fn ended(
    run: &Executor,
    answers: &[Answer],
    loops: bool,
    update: AgentStateUpdate,
) -> Result<AgentStateUpdate, NodeError> {
    let config = &run.deps.config;
    // Of several failures the first in order is taken, because a replay does not see which came first.
    if let Some(failure) = run.cx.noted("hook_error", run.failed.get().cloned()) {
        return Ok(update.stop(true).stop_reason(AgentOutcome::HookFailed).hook_error(failure));
    }
    let finishes: Vec<_> = answers.iter().map(|answer| answer.done.finish.clone()).collect();
    let denied = config.approval.stop_on_deny && answers.iter().any(|answer| answer.done.denied);
    let failed = config.tool_errors == ToolErrors::Fail && answers.iter().any(|answer| answer.done.failed);
    if denied || failed {
        // A reply in the same round is retained.
        let update = settle(&config.finish, &run.state, &finishes, update);
        let outcome = if denied { AgentOutcome::Denied } else { AgentOutcome::ToolFailed };
        return Ok(update.stop(true).stop_reason(outcome));
    }
    let answers_the_user = |answer: &Answer| answer.done.executed && answer.done.returned && answer.is_final;
    let answered = answers.iter().all(answers_the_user) && !answers.is_empty();
    let is_reply = answered || finishes.iter().any(|finish| matches!(finish, Some(Ok(_))));
    let cancelled = run.cx.noted("cancelled.end", run.cx.cancel().is_cancelled());
    let waits =
        !cancelled && is_reply && is_waiting(run.state.steered, &run.cx).await? && calls_model(run, &update);
    let update = match (loops, answered && !waits) {
        (true, _) => update.stop(true).stop_reason(AgentOutcome::LoopDetected),
        (false, true) => update.stop(true),
        (false, false) => update,
    };
    if cancelled || waits {
        return Ok(update);
    }
    Ok(settle(&config.finish, &run.state, &finishes, update))
}

/// Returns whether the model is called after this round. Otherwise the reply stands, and the next turn reads the
/// message that is waiting.
fn calls_model(run: &Executor, update: &AgentStateUpdate) -> bool {
    let after = reduce(&*run.state, [update.clone()]);
    after.is_ok_and(|after| NextCall::is_due(&run.deps, &after, run.cx.now_ms()))
}

/// A tool's update that another version of the program stored.
#[derive(Debug, thiserror::Error)]
#[error("the stored update of a tool, written by another version of the program, cannot be read: {0}")]
struct Unreadable(String);

/// Calls with their positions in the response.
type Calls = Vec<(usize, Pending)>;

/// Returns the answers with their positions, as they arrive. Calls that must run in order run one after the
/// other, also if the first of them waits; see [`side_by_side`].
///
/// Among parallel calls, those that require an external decision come last: an interrupt ends the node, and
/// by then all others are answered. All questions of the round are returned together.
async fn answer_all(run: &mut Executor, pending: Vec<Pending>) -> Result<Vec<(usize, Answer)>, NodeError> {
    let hold = run.deps.config.approval.hold_batch;
    let asks_first = hold || run.deps.approvals.are_outside();
    let mut calls: Calls = pending.into_iter().enumerate().collect();
    if asks_first || run.at_once() > 1 {
        // The user approves the final arguments, which also determine whether the call runs alone.
        calls = prepare_all(run, calls).await?;
    }
    // Hooks may have changed a call to any other.
    run.arrange(&calls);
    let run = &*run;
    if asks_first {
        for (position, call) in &mut calls {
            call.verdict = run.verdict_on(*position, call);
        }
    }
    let mut undecided = asks_first && calls.iter().any(|(_, call)| call.needs_approval());
    let mut answers = Vec::new();
    while !calls.is_empty() {
        let later = calls.split_off(side_by_side(run, &calls));
        let mut now = std::mem::replace(&mut calls, later);
        if undecided && (hold || now.iter().any(|(_, call)| call.needs_approval())) {
            undecided = false;
            if !hold {
                let (asked, others) = split_off_waiting(run, now);
                answers.extend(answer_some(run, others).await?);
                now = asked;
            }
            let cancelled = run.cx.noted("cancelled.asked", run.cx.cancel().is_cancelled());
            if !cancelled && run.failed.get().is_none() {
                run.decide(now.iter_mut().chain(&mut calls)).await?;
            }
        }
        answers.extend(answer_some(run, now).await?);
    }
    Ok(answers)
}

/// Separates the calls that require a decision, with those behind them in a sequence, from the others.
fn split_off_waiting(run: &Executor, calls: Calls) -> (Calls, Calls) {
    let (mut asked, mut others) = (Vec::<(usize, Pending)>::new(), Vec::new());
    for (position, call) in calls {
        let waits =
            call.needs_approval() || run.order.is_behind(position, asked.iter().map(|(asked, _)| *asked));
        if waits { &mut asked } else { &mut others }.push((position, call));
    }
    (asked, others)
}

async fn prepare_all(run: &Executor, calls: Calls) -> Result<Calls, NodeError> {
    stream::iter(calls)
        .map(|(position, call)| async move { Ok((position, run.prepare(position, call).await?)) })
        .buffered(run.at_once())
        .try_collect()
        .await
}

/// Returns how many of the first calls may run in parallel. The next one waits until all of them are
/// answered.
fn side_by_side(run: &Executor, calls: &[(usize, Pending)]) -> usize {
    if run.at_once() == 1 {
        return 1;
    }
    let alone = calls.iter().position(|(_, call)| run.is_alone(call));
    alone.map_or(calls.len(), |first| first.max(1))
}

/// Answers calls that may run in parallel.
///
/// Sub-agents come last: their interrupts end the node, and by then all others are answered.
async fn answer_some(run: &Executor, calls: Calls) -> Result<Vec<(usize, Answer)>, NodeError> {
    let (agents, tools): (Vec<_>, Vec<_>) = calls.into_iter().partition(|(_, call)| run.is_sub_agent(call));
    let mut answers = answer_alike(run, tools).await?;
    answers.extend(answer_alike(run, agents).await?);
    Ok(answers)
}

async fn answer_alike(run: &Executor, calls: Calls) -> Result<Vec<(usize, Answer)>, NodeError> {
    stream::iter(calls)
        .map(|(position, call)| async move { Ok((position, run.answer(position, call).await?)) })
        .buffer_unordered(run.at_once())
        .try_collect()
        .await
}
