//! The records of tasks of an incomplete superstep, so that they need not run again.

use std::{
    collections::BTreeMap,
    mem,
    task::{Context, Waker},
};

use futures::FutureExt as _;
use superstep_engine::{Report, Run, Task, TaskId};
use superstep_state::{chain, reduce};
use tokio::runtime::Handle;

use super::{
    commit::{flush, mark_recorded, record_of, store_record, store_records, store_stopped},
    conflicts::accepted,
    encode::DueSnapshot,
    execution::Execution,
    fail::{hand_over, withdraw_answers},
    finish::{finish, stored_form},
    questions::{check_questions, compared, store_questions},
    superstep::{TaskEnd, TaskResult},
    trace,
};
use crate::{
    NodeError, RunError, State,
    journal::{effects::Request, interrupts::WaitReason, recorder::Recorded},
    node::{output::Written, routing::Targets},
};

/// Stores that a task failed and is about to be retried, so that a crash in between does not lose it.
pub(super) async fn record_failed_attempt<S: State>(
    exec: &mut Execution<S>,
    task: Task,
) -> Result<(), RunError> {
    let Some((failed, source)) = exec.superstep.failure.take_if(|(failed, _)| failed.id == task.id) else {
        return Ok(());
    };
    trace::repeated(exec.graph.topology.name(failed.node), failed, &*source, task);
    let record = exec.superstep.failed_record(&exec.cx, failed.id, failed.attempt, chain(&*source));
    store_record(exec, failed.id.slot, record).await
}

/// Stores the results of the tasks of a superstep that will not be committed.
pub(super) async fn record_stop<S: State>(
    exec: &mut Execution<S>,
    plan: &Run,
    blamed: &[u32],
    error: &str,
    dropped: &[Task],
) -> Result<(), RunError> {
    for &slot in blamed {
        let mut record = exec.superstep.failed_record(&exec.cx, plan.task(slot), 0, error.to_owned());
        let done = exec.superstep.done.get(slot as usize).and_then(Option::as_ref);
        let update = done.filter(|done| done.recorded).and_then(|done| done.stored.as_ref());
        if let (Some(once), Some(update)) = (record.once_mut().filter(|once| once.is_empty()), update) {
            *once = Recorded::effects_of(update);
        }
        store_record(exec, slot, record).await?;
    }
    for task in dropped.iter().filter(|task| !blamed.contains(&task.id.slot)) {
        store_stopped(exec, *task).await?;
    }
    let fresh =
        (0..).zip(&exec.superstep.done).filter(|(_, done)| done.as_ref().is_some_and(|done| !done.recorded));
    exec.superstep.ended = fresh.map(|(slot, _)| slot).filter(|slot| !blamed.contains(slot)).collect();
    record_ended(exec, plan).await
}

/// Stores the ends of tasks that ended when the run was stopped, as if they had ended before. Returns those that must
/// run again, because they stopped without an end, or because their next attempt reports what is wrong.
pub(super) async fn record_over<S: State>(
    exec: &mut Execution<S>,
    over: Vec<TaskEnd<S>>,
) -> Result<Vec<Task>, RunError> {
    let mut again = Vec::new();
    for TaskEnd { task, mut result } in over {
        let observed = exec.observer.after_task(exec.view(None), task, &mut result);
        let is_kept = match result {
            _ if observed.is_err() => false,
            TaskResult::Finished(written, _) => keep_finished(exec, task, written).await?,
            TaskResult::Failed(error) => {
                keep_failed(exec, task, error).await?;
                true
            }
            TaskResult::Interrupted(reasons) => record_interrupted(exec, task, reasons).await?,
        };
        if !is_kept {
            again.push(task);
        }
    }
    Ok(again)
}

async fn keep_finished<S: State>(
    exec: &mut Execution<S>,
    task: Task,
    written: Written<S>,
) -> Result<bool, RunError> {
    let Some(report) = keep_written(exec, task, written) else { return Ok(false) };
    if exec.writer.is_some() {
        let record = record_of(exec, task.id.slot, &report);
        store_record(exec, task.id.slot, record).await?;
        mark_recorded(exec, task.id.slot);
    }
    Ok(true)
}

/// Accepts the writes and targets of a task; `None` if they are invalid, which its next attempt will report.
fn keep_written<S: State>(exec: &mut Execution<S>, task: Task, written: Written<S>) -> Option<Report> {
    let Written { update, goto, recorded_targets } = written;
    let mut stored = stored_form(exec, &update, task.node, task.id.step).ok()?;
    let command_targets = match recorded_targets {
        Some(targets) => *targets,
        None if goto.is_empty() => Targets::default(),
        None => exec.graph.command_targets(task.node, goto).ok()?,
    };
    exec.observer.before_store(exec.view(None), task, None, stored.as_mut()).ok()?;
    exec.emit.update(task, &exec.state, &update, false);
    let report = finish(exec, task.id, task.node, update, stored, command_targets, false).ok()?;
    if exec.graph.topology.check(task.node, &report.targets).is_err() {
        exec.superstep.done[task.id.slot as usize] = None;
        return None;
    }
    Some(report)
}

/// Stores a failed attempt. Its next run retries the task, begins its error handler, or begins it anew.
async fn keep_failed<S: State>(
    exec: &mut Execution<S>,
    task: Task,
    error: NodeError,
) -> Result<(), RunError> {
    let retry = exec.graph.nodes[task.node.position()].retry.policy(&error);
    if error.is_refusal() {
        withdraw_answers(exec, task.id);
    }
    let (source, data) = error.into_parts();
    exec.emit.failure(task, &*source);
    let is_retried = retry.is_some_and(|policy| task.attempt < policy.max_attempts);
    if !is_retried && exec.graph.topology.handler(task.node).is_some() {
        return hand_over(exec, task, source, data).await;
    }
    let attempts = if is_retried { task.attempt } else { 0 };
    let record = exec.superstep.failed_record(&exec.cx, task.id, attempts, chain(&*source));
    store_record(exec, task.id.slot, record).await
}

/// Stores the questions of a task. A rejected answer is reported by the next run, which asks again.
async fn record_interrupted<S: State>(
    exec: &mut Execution<S>,
    task: Task,
    reasons: Vec<WaitReason>,
) -> Result<bool, RunError> {
    let reasons = match check_questions(exec, task, reasons) {
        Ok(reasons) => reasons,
        Err(error) => {
            keep_failed(exec, task, error).await?;
            return Ok(true);
        }
    };
    let mut questions = Vec::new();
    for reason in reasons {
        match reason {
            WaitReason::Question(question) => questions.push(compared(exec, task, question)),
            WaitReason::Breakpoint | WaitReason::Cancelled | WaitReason::Drained => {}
            _ => return Ok(false),
        }
    }
    // Without a thread only the caller of this graph can store them.
    if questions.is_empty() || exec.writer.is_none() && exec.nested.is_none() {
        return Ok(false);
    }
    let answers = exec.cx.interrupts.answers_of(task.id);
    let interrupts = store_questions(exec, task, questions, &answers).await?;
    exec.emit.interrupts(task, &interrupts);
    Ok(true)
}

/// Folds the writes of an incomplete superstep, as [`Thread::state`](crate::Thread::state) does.
pub(super) fn fold_early<S: State>(exec: &mut Execution<S>) {
    let updates: Vec<_> =
        accepted(&exec.graph.topology, &exec.state, &exec.superstep).into_values().collect();
    if let (false, Ok(state)) = (updates.is_empty(), reduce(&exec.state, updates)) {
        exec.state = state;
    }
}

/// Stores the writes of the tasks that have finished since the last call before their superstep ends, so that they do
/// not run again after a failure or a crash.
pub(super) async fn record_ended<S: State>(exec: &mut Execution<S>, plan: &Run) -> Result<(), RunError> {
    let ended = mem::take(&mut exec.superstep.ended);
    if exec.writer.is_none() {
        return Ok(());
    }
    let reports = ended.iter().filter_map(|slot| Some((*slot, plan.report(*slot)?)));
    let records: Vec<_> = reports.map(|(slot, report)| (slot, record_of(exec, slot, report))).collect();
    if records.is_empty() {
        return Ok(());
    }
    store_records(exec, records).await?;
    ended.into_iter().for_each(|slot| mark_recorded(exec, slot));
    Ok(())
}

/// Stores the effects of tasks, before they continue.
pub(super) async fn record_started<S: State>(
    exec: &mut Execution<S>,
    plan: &Run,
    requests: Vec<Request>,
) -> Result<(), RunError> {
    let (mut waiting, mut sync) = (Vec::with_capacity(requests.len()), false);
    for Request { task, stored, durable } in requests {
        // The record of a finished or interrupted task must not be replaced. Work that it left behind is
        // notified by the end of `stored`.
        let Some(failed) = plan.failures(task).filter(|_| !exec.superstep.waiting.contains_key(&task.slot))
        else {
            continue;
        };
        if exec.cx.effects.is_ahead(task) {
            store_effects(exec, task, failed).await?;
        }
        sync |= durable;
        waiting.push(stored);
    }
    if sync {
        flush(exec).await?;
        if let Some(writer) = &exec.writer {
            writer.sync().await?;
        }
    }
    for stored in waiting {
        // The node may have been dropped meanwhile.
        let _ = stored.send(());
    }
    Ok(())
}

/// Stores the new results of a task's effects: alone if the rest of its record is stored, so that many effects
/// do not rewrite each other's results.
async fn store_effects<S: State>(
    exec: &mut Execution<S>,
    task: TaskId,
    attempts: u32,
) -> Result<(), RunError> {
    let rest = exec.superstep.started_record(&exec.cx, task, attempts, BTreeMap::new());
    let new = exec.cx.effects.unstored(task);
    let names = new.keys().cloned().collect();
    let mut is_added = false;
    if exec.superstep.started.get(&task.slot) == Some(&rest) {
        flush(exec).await?;
        if let Some(writer) = &exec.writer {
            is_added = writer.add_effects(task.slot, new).await?;
        }
    }
    if !is_added {
        let mut record = rest.clone();
        if let Some(once) = record.once_mut() {
            *once = exec.cx.effects.results(task);
        }
        store_record(exec, task.slot, record).await?;
        flush(exec).await?;
        exec.superstep.started.insert(task.slot, rest);
    }
    exec.cx.effects.is_stored(task, names);
    Ok(())
}

/// Stores the results of effects that the nodes of a dropped run still wait to see stored: now, or, if the checkpointer has to
/// wait, in a task of its own, which has the thread's lease until then. Those of a called graph are its caller's as well.
pub(super) fn store_known_effects<S: State>(exec: &mut Execution<S>, plan: &Run) {
    // A simulated process that stops stores nothing, like a killed one.
    if exec.cx.scope.config.call_observer.is_some() {
        return;
    }
    let Some(mut writer) = exec.writer.take_if(|writer| writer.has_lease()) else { return };
    let tasks = exec.cx.effects.ahead();
    let tasks = tasks.into_iter().filter(|task| !exec.superstep.waiting.contains_key(&task.slot));
    let record = |task| {
        let failed = plan.failures(task)?;
        Some((
            task.slot,
            exec.superstep.started_record(&exec.cx, task, failed, exec.cx.effects.results(task)),
        ))
    };
    let records: Vec<_> = tasks.filter_map(record).collect();
    if records.is_empty() {
        return;
    }
    let state = exec.held.take().unwrap_or_else(|| exec.state.clone());
    let mut storing = async move {
        let stored = async {
            writer.record(records).await?;
            writer.flush(|step| DueSnapshot { state: &state, step }, false).await
        };
        if let Err(error) = stored.await {
            trace::effects_lost(&error);
        }
    }
    .boxed();
    let is_stored = storing.poll_unpin(&mut Context::from_waker(Waker::noop())).is_ready();
    if let (false, Ok(runtime)) = (is_stored, Handle::try_current()) {
        runtime.spawn(storing);
    }
}
