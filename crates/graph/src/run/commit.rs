//! The commit of a superstep: the fold of its updates, and its storage as a checkpoint.
//!
//! Start at [`commit`].

use std::{collections::BTreeMap, mem, sync::Arc};

use serde_json::{Map, Value};
use superstep_checkpoint::{AppliedTask, Commit, Source};
use superstep_engine::{Input, Run, SuperstepEnd};

use super::{
    encode::DueSnapshot,
    execution::Execution,
    finish::{begin_fold, fold_update},
    stored_cache::{keep_cached, store_cached},
    superstep::{FinishedTask, Refused, Stop},
    targets::items,
    trace,
};
use crate::{
    RunError, RunOptions, State,
    journal::memories::{MemoryCall, after_call},
};

/// Folds, emits and stores a superstep, and begins the next one.
pub(super) async fn commit<S: State>(
    exec: &mut Execution<S>,
    plan: &mut Run,
    superstep: SuperstepEnd,
    config: &RunOptions,
) -> Result<(), Stop> {
    let items = fold_superstep(exec, superstep)?;
    exec.show_state();
    if let Some(new) = folded(exec, plan, &items) {
        checkpoint(exec, new, Some(plan)).await?;
    }
    if !exec.superstep.cache_puts.is_empty() {
        store_cached(exec).await?;
    }
    if config.drain.requested().is_some() {
        plan.handle(Input::Drain).expect("the run is not over");
    }
    plan.handle(Input::Committed).expect("the engine asked for the commit");
    exec.superstep.replace(plan.task(0).step, items);
    Ok(())
}

/// Folds the writes of a superstep's tasks in the order of the plan. Returns the items of the next one's workers.
fn fold_superstep<S: State>(
    exec: &mut Execution<S>,
    commit: SuperstepEnd,
) -> Result<BTreeMap<u32, String>, Stop> {
    let Execution { graph, state, nested, superstep, is_head, .. } = exec;
    let done = &mut superstep.done;
    let refuse = |node, source| {
        let node = graph.topology.name(node).clone();
        RunError::Fold { node, step: commit.step, source }
    };
    if done.iter().flatten().any(|done| done.update.is_some()) {
        let last = done.iter().flatten().next_back().expect("a task with an update is finished").node;
        *is_head = false;
        begin_fold(state, nested.as_mut()).map_err(|source| refuse(last, source))?;
    }
    for (task, done) in commit.order().zip(done.iter_mut()) {
        let Some(FinishedTask { node, update, .. }) = done else { continue };
        let Some(update) = update.take() else { continue };
        fold_update(state, nested.as_mut(), update)
            .map_err(|source| Refused { error: refuse(*node, source), blamed: vec![task.slot] })?;
    }
    // Only accepted results, because others would be rejected again and again. Usually there are none, and taking an empty
    // list has a cost.
    if !superstep.cache_inserts.is_empty() {
        for (_, node, missing, written) in mem::take(&mut exec.superstep.cache_inserts) {
            keep_cached(exec, node, missing, written);
        }
    }
    let done = &mut exec.superstep.done;
    let mut next_items = BTreeMap::new();
    if done.iter().flatten().any(|done| !done.items.is_empty()) {
        let sent = done.iter_mut().flatten().flat_map(|done| done.items.drain(..)).collect();
        next_items = items(commit.next as usize, sent);
    }
    if let Some(events) = &exec.emit.events {
        events.values(commit.step, &exec.state);
    }
    Ok(next_items)
}

/// Creates the commit of a folded superstep; the next one's workers get the `items`. `None` without a thread.
fn folded<S: State>(
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
