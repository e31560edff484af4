//! The storage of supersteps and of their tasks' records, immediately or at the end of the run.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};
use superstep_checkpoint::{AppliedTask, Commit, Source, TaskRecord};
use superstep_engine::{Report, Run, Task, TaskId};

use super::{
    encode::DueSnapshot,
    execution::Execution,
    superstep::{FinishedTask, Stop},
    targets::named,
    trace,
};
use crate::{
    RunError, State,
    journal::memories::{MemoryCall, after_call},
};

/// Creates the commit of a folded superstep; the next one's workers get the `items`. `None` without a thread.
pub(super) fn folded<S: State>(
    exec: &mut Execution<S>,
    plan: &Run,
    items: &BTreeMap<u32, String>,
) -> Option<Box<Commit>> {
    let writer = exec.writer.as_ref()?;
    let control = plan.control().expect("a commit is pending");
    let mut new = writer.new_commit(Source::Loop, control, Map::new());
    if !items.is_empty() {
        new.control.items.clone_from(items);
    }
    new.applied = Vec::with_capacity(exec.superstep.done.len());
    for (slot, done) in (0..).zip(exec.superstep.done.drain(..)) {
        let Some(FinishedTask { node, stored: Some(update), recorded, .. }) = done else { continue };
        let node = exec.graph.topology.name(node).clone();
        new.applied.push(AppliedTask { slot, recorded, node, update });
    }
    Some(new)
}

/// Stores a checkpoint and emits its event. `plan` is the run whose superstep it ends.
pub(super) async fn checkpoint<S: State>(
    exec: &mut Execution<S>,
    mut new: Box<Commit>,
    plan: Option<&Run>,
) -> Result<(), Stop> {
    if exec.writer.is_none() {
        return Ok(());
    }
    if let Some(wait) = exec.observer.before_commit(exec.view(plan), &mut new) {
        wait.await?;
    }
    let unknown = exec.cx.memories.commit(&mut new.metadata, &new.applied, &exec.graph.topology);
    if !unknown.is_empty() {
        add_abandoned(exec, unknown, &mut new.metadata).await?;
    }
    let describe = exec.emit.describes();
    let seeded = exec.is_seeded();
    let (state, control) = (&exec.state, &new.control);
    let (source, step) = (new.source, control.step);
    let (tasks, bytes) = (new.applied.len(), trace::bytes(&new.applied));
    let snapshot = DueSnapshot { state, step };
    let writer = exec.writer.as_mut().expect("only a run with a thread stores a checkpoint");
    // A graph that starts with its caller's state returns its updates only.
    let may_snapshot = source == Source::Loop && !seeded;
    let stored = writer.commit(new, may_snapshot.then_some(&snapshot), describe).await?;
    if let Some(checkpoint) = writer.at() {
        trace::stored(checkpoint, step, tasks, bytes);
    }
    if writer.holds() {
        exec.held = Some(exec.state.clone());
    }
    // The task of `START` is folded before the superstep that it belongs to.
    exec.is_head = source == Source::Loop;
    exec.show_place();
    exec.emit.checkpoints(stored, &exec.state);
    match exec.observer.after_commit(exec.view(plan)) {
        Some(wait) => wait.await,
        None => Ok(()),
    }
}

/// Adds the positions of subgraphs whose calls were abandoned: those of the supersteps that they had stored.
// Memories have to be the same after a restart, which knows only the thread of the subgraph and the author of the
// task's update. A node that stops waiting, or catches the error of a call, decides that its task finished with that
// call. If its error handler finished the task, the node did not, and nothing remains.
async fn add_abandoned<S: State>(
    exec: &Execution<S>,
    unknown: Vec<MemoryCall>,
    metadata: &mut Arc<Map<String, Value>>,
) -> Result<(), RunError> {
    let Some(writer) = &exec.writer else { return Ok(()) };
    let (checkpointer, thread) = writer.stored_in();
    for MemoryCall { segment, task, .. } in unknown {
        if let Some(at) = after_call(&**checkpointer, &thread.child(&segment), task).await? {
            exec.cx.memories.add(Arc::make_mut(metadata), &segment, at);
        }
    }
    Ok(())
}

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
