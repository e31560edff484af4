//! The fourth node: runs the tools that the model called. It calls no model.

mod approve;
mod execute;
mod finish;
mod hooks;
mod pending;

use std::sync::OnceLock;

use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use superstep_graph::{Cx, NodeError, State};
use superstep_llm::Role;
use tokio::{sync::RwLock, time::Instant};

use self::{
    approve::Go,
    execute::{Answer, Executor},
    pending::{Pending, refuse},
};
use super::{budget::Spent, finish::settle};
use crate::{AgentDeps, AgentState, AgentStateUpdate, PermissionRule, Permit, ResultOrder, ToolMode};

pub use self::approve::{Approval, ApprovalFuture, ApprovalRequest, Approvals, Approver};

/// Executes the calls of the last message and answers each one.
///
/// # Errors
/// Only if what a call came to cannot be stored.
pub(crate) async fn tools(deps: AgentDeps, state: AgentState, cx: Cx) -> Result<AgentStateUpdate, NodeError> {
    let message = state.messages.last().filter(|last| last.role == Role::Assistant);
    let calls = message.map(|message| message.tool_calls.clone()).unwrap_or_default();
    let mut pending: Vec<_> = calls.into_iter().map(|call| Pending::new(&deps, call, &cx)).collect();
    let records: Vec<_> = pending.iter().map(Pending::record).collect();
    let stop = refuse(&deps, &state, &records, &mut pending, &cx);
    let budget = deps.config.budget.wall.map(|wall| wall.saturating_sub(Spent::of(&state, cx.now_ms()).time));
    let run = Executor {
        permissions: state.permissions.iter().cloned().collect(),
        asking: tokio::sync::Mutex::new(()),
        alone: RwLock::new(()),
        failed: OnceLock::new(),
        out_of_time: budget.map(|left| Instant::now() + left),
        state: state.clone(),
        deps,
        cx,
    };
    let (mut answers, always) = answer_all(&run, pending).await?;
    let returned: Vec<usize> = answers.iter().map(|(position, _)| *position).collect();
    answers.sort_by_key(|(position, _)| *position);
    let answers: Vec<Answer> = answers.into_iter().map(|(_, answer)| answer).collect();
    let mut messages: Vec<_> = (0..).zip(&answers).map(|(n, answer)| answer.message(run.cx.id(n))).collect();
    if run.deps.config.result_order == ResultOrder::Completion {
        messages = returned.into_iter().map(|position| messages[position].clone()).collect();
    }
    for message in &messages {
        run.cx.emit_full_message(&message.id, message);
    }
    let answered = answers.iter().all(|answer| answer.executed && answer.is_final) && !answers.is_empty();
    let executed = answers.iter().filter(|answer| answer.executed).map(|answer| answer.name.clone());
    let finishes: Vec<_> = answers.iter().map(|answer| answer.finish.clone()).collect();
    let mut update = AgentState::update()
        .current_step(state.current_step + u32::from(state.answer.refused.is_none()))
        .tools_used(executed.collect::<Vec<_>>())
        .tool_result_history(answers.into_iter().map(|answer| answer.result).collect::<Vec<_>>())
        .tool_call_history(records)
        .messages(messages);
    if !always.is_empty() {
        update = update.permissions(always);
    }
    if let Some(failure) = run.failed.into_inner() {
        return Ok(update.stop(true).stop_reason("hook_error").hook_error(failure));
    }
    let update = match (stop, answered) {
        (true, _) => update.stop(true).stop_reason("loop_detected"),
        (false, true) => update.stop(true),
        (false, false) => update,
    };
    if run.cx.cancel().is_cancelled() {
        return Ok(update);
    }
    Ok(settle(&run.deps.config.finish, &state, &finishes, update))
}

/// The answers with their positions, as they come; and what was permitted for good.
///
/// If somebody outside is to be asked, that comes last: by then all other calls are answered, for an interrupt ends the node.
async fn answer_all(
    run: &Executor,
    pending: Vec<Pending>,
) -> Result<(Vec<(usize, Answer)>, Vec<PermissionRule>), NodeError> {
    let (mut now, mut later) = (Vec::new(), Vec::new());
    for (position, call) in pending.into_iter().enumerate() {
        let is_asked = matches!(run.deps.approvals, Approvals::Interrupt);
        // What somebody approves is what runs.
        let call = if is_asked { run.prepare(position, call).await? } else { call };
        match is_asked.then(|| run.waits_for(&call)).flatten() {
            Some(request) => later.push((position, call, request)),
            None => now.push((position, call)),
        }
    }
    let mut answers = answer_some(run, now).await?;
    if later.is_empty() || run.cx.cancel().is_cancelled() || run.failed.get().is_some() {
        answers.extend(answer_some(run, later.into_iter().map(|(at, call, _)| (at, call)).collect()).await?);
        return Ok((answers, Vec::new()));
    }
    let decisions = join_all(later.iter().map(|(_, _, request)| run.decide(request.clone()))).await;
    let mut always = Vec::new();
    let mut decided = Vec::new();
    for ((position, call, _), decision) in later.into_iter().zip(decisions) {
        if decision == Approval::Always {
            always.push(PermissionRule::new(&call.name, Permit::Allow));
        }
        decided.push((position, Pending { decision: Some(decision), ..call }));
    }
    answers.extend(answer_some(run, decided).await?);
    Ok((answers, always))
}

async fn answer_some(
    run: &Executor,
    calls: Vec<(usize, Pending)>,
) -> Result<Vec<(usize, Answer)>, NodeError> {
    let at_once = match run.deps.config.tool_mode {
        ToolMode::Sequential => 1,
        ToolMode::Parallel { max } => max.max(1),
    };
    stream::iter(calls)
        .map(|(position, call)| async move { Ok((position, run.answer(position, call).await?)) })
        .buffer_unordered(at_once)
        .try_collect()
        .await
}
