//! The records of an incomplete superstep whose run ends.

use superstep_engine::{Report, Run, Task};
use superstep_state::{chain, reduce};

use super::{
    conflicts::accepted,
    execution::Execution,
    fail::{hand_over, withdraw_answers},
    finish::{finish, stored_form},
    questions::{check_questions, compared, store_questions},
    record::{mark_recorded, record_ended, record_of, store_failed, store_record, store_stopped},
    superstep::{TaskEnd, TaskResult},
};
use crate::{
    NodeError, RunError, State,
    journal::{interrupts::WaitReason, recorder::Recorded},
    node::output::Written,
};

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
    // Which of two tasks ends first is invisible, so siblings that ended in the same moment as a failure are
    // recorded. Only an end that would have stopped the run itself, such as a missing route or a rejected answer,
    // is left to the next attempt, because a run reports one error.
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
    let command_targets = exec.graph.command_targets(task.node, goto, recorded_targets).ok()?;
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
    store_failed(exec, task.id, attempts, chain(&*source)).await
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
