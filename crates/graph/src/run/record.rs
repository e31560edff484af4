//! The records of tasks of an incomplete superstep, so that they need not run again.

use std::{
    collections::BTreeMap,
    mem,
    task::{Context, Waker},
};

use futures::FutureExt as _;
use superstep_checkpoint::TaskRecord;
use superstep_engine::{Report, Run, Task, TaskId};
use superstep_state::chain;
use tokio::runtime::Handle;

use super::{encode::DueSnapshot, execution::Execution, targets::named, trace};
use crate::{RunError, State, journal::effects::Request};

/// Stores all remaining data of the run.
pub(super) async fn flush<S: State>(exec: &mut Execution<S>) -> Result<(), RunError> {
    let describe = exec.emit.describes();
    let Some(writer) = &mut exec.writer else { return Ok(()) };
    let state = exec.held.as_ref().unwrap_or(&exec.state);
    let stored = writer.flush(|step| DueSnapshot { state, step }, describe).await?;
    exec.emit.checkpoints(stored, &exec.state);
    Ok(())
}

/// Stores that a task stopped before its end.
pub(super) async fn store_stopped<S: State>(exec: &mut Execution<S>, task: Task) -> Result<(), RunError> {
    let once = exec.cx.effects.results(task.id);
    // The record of a waiting task has its questions and answers, that of an error handler its failure,
    // and that of a later attempt the earlier failures; all mean that the task is pending.
    let superstep = &exec.superstep;
    let has_failed = task.attempt > 1 || superstep.failure_of(task.id.slot).is_some();
    if !has_failed && !superstep.has_waited(&exec.cx, task.id) {
        store_record(exec, task.id.slot, TaskRecord::Cancelled { once }).await?;
    } else if exec.cx.effects.is_ahead(task.id) {
        let record = superstep.started_record(&exec.cx, task.id, task.attempt - 1, once);
        store_record(exec, task.id.slot, record).await?;
    }
    Ok(())
}

/// Stores a failed attempt of a task.
pub(super) async fn store_failed<S: State>(
    exec: &mut Execution<S>,
    task: TaskId,
    attempts: u32,
    error: String,
) -> Result<(), RunError> {
    let record = exec.superstep.failed_record(&exec.cx, task, attempts, error);
    store_record(exec, task.slot, record).await
}

/// Stores the record of a task.
pub(super) async fn store_record<S: State>(
    exec: &mut Execution<S>,
    slot: u32,
    record: TaskRecord,
) -> Result<(), RunError> {
    store_records(exec, vec![(slot, record)]).await
}

/// Stores records of tasks, and emits the checkpoints that this stored.
pub(super) async fn store_records<S: State>(
    exec: &mut Execution<S>,
    records: Vec<(u32, TaskRecord)>,
) -> Result<(), RunError> {
    records.iter().for_each(|(slot, _)| drop(exec.superstep.started.remove(slot)));
    if let Some(writer) = &mut exec.writer {
        let stored = writer.record(records).await?;
        exec.emit.checkpoints(stored, &exec.state);
    }
    Ok(())
}

/// Creates the record of a finished task.
pub(super) fn record_of<S: State>(exec: &Execution<S>, slot: u32, report: &Report) -> TaskRecord {
    let done = exec.superstep.done[slot as usize].as_ref().expect("only finished tasks are recorded");
    let update = done.stored.clone().expect("a run with a thread encodes its updates");
    let targets = named(&exec.graph.topology, &report.targets, &mut done.items.iter().cloned());
    TaskRecord::Finished { update, targets, failure: None }.handled(exec.superstep.failure_of(slot))
}

/// Notes that the record of a finished task is stored.
pub(super) fn mark_recorded<S: State>(exec: &mut Execution<S>, slot: u32) {
    if let Some(done) = &mut exec.superstep.done[slot as usize] {
        done.recorded = exec.writer.is_some();
    }
}

/// Stores that a task failed and is about to be retried, so that a crash in between does not lose it.
pub(super) async fn record_failed_attempt<S: State>(
    exec: &mut Execution<S>,
    task: Task,
) -> Result<(), RunError> {
    let Some((failed, source)) = exec.superstep.failure.take_if(|(failed, _)| failed.id == task.id) else {
        return Ok(());
    };
    trace::repeated(exec.graph.topology.name(failed.node), failed, &*source, task);
    store_failed(exec, failed.id, failed.attempt, chain(&*source)).await
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
    // A record has everything known of a task: its answers, its failed attempts, its effects. With the node as a
    // second writer both would have to agree on it, and a node dropped in the middle of a write could overwrite
    // what was stored after it. So the node passes its result on and waits.
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
/// wait, in its own task, which has the thread's lease until then. Those of a called graph are its caller's as well.
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
