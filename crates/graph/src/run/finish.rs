//! Finished tasks: folding their writes and finding their targets.

use std::{collections::BTreeMap, mem};

use superstep_engine::{Commit, Finished, Input, NodeIndex, Report, Run, Task, TaskId};
use superstep_state::{
    StoredUpdate,
    internal::{encode, fold},
    reduce,
};

use super::{
    encode::{check, unencoded},
    execution::Execution,
    nested_call::{begin_fold, note},
    stored_cache::keep_cached,
    superstep::{FinishedTask, Refused, Stop},
    targets::{items, named, targets},
};
use crate::{
    RunError, State,
    node::{cache::Lookup, output::Written, routing::Targets},
};

/// Stores the writes of a task.
pub(super) fn finish_task<S: State>(
    exec: &mut Execution<S>,
    plan: &mut Run,
    task: Task,
    written: Written<S>,
    lookup: Lookup,
) -> Result<(), Stop> {
    let (step, slot) = (task.id.step, task.id.slot);
    let blame = |error| Stop::from(Refused { error, blamed: vec![slot] });
    let cached = matches!(lookup, Lookup::Hit);
    let cache_insert = match lookup {
        Lookup::Miss(missing) => Some(Box::new((slot, task.node, *missing, written.clone()))),
        Lookup::None | Lookup::Hit => None,
    };
    let Written { update, goto, recorded_targets } = written;
    let mut stored = stored_form(exec, &update, task.node, step).map_err(blame)?;
    let command_targets = match recorded_targets {
        Some(targets) => Ok(*targets),
        None if goto.is_empty() => Ok(Targets::default()),
        None => exec.graph.command_targets(task.node, goto),
    };
    let cached_targets = command_targets
        .as_ref()
        .ok()
        .filter(|_| cached)
        .map(|targets| named(&exec.graph.topology, &targets.ends, &mut targets.items.iter().cloned()));
    let view = exec.view(Some(plan));
    exec.observer.before_store(view, task, cached_targets, stored.as_mut()).map_err(blame)?;
    exec.emit.update(task, &exec.state, &update, cached);
    let command_targets = command_targets.map_err(|error| blame(RunError::Route { step, error }))?;
    let alone = plan.width() == 1;
    let report = finish(exec, task.id, task.node, update, stored, command_targets, alone).map_err(blame)?;
    let finished = plan.handle(Input::Finished(Finished { task: task.id, report }));
    finished.map_err(|error| blame(RunError::Route { step, error }))?;
    if let Some(cache_insert) = cache_insert {
        exec.superstep.cache_inserts.push(*cache_insert);
    }
    Ok(())
}

/// Retains a finished task until the end of its superstep and calls its routers, which add to the targets
/// of its command.
///
/// A task that is `alone` in its superstep is folded immediately, since no other update can come before
/// it.
pub(super) fn finish<S: State>(
    exec: &mut Execution<S>,
    task: TaskId,
    node: NodeIndex,
    update: S::Update,
    stored: Option<StoredUpdate>,
    command_targets: Targets,
    alone: bool,
) -> Result<Report, RunError> {
    let (written, exclusive) = (exec.state.written(&update), exec.state.exclusive(&update));
    exec.superstep.written = exec.superstep.written.union(written);
    let name = exec.graph.topology.name(node);
    let compiled = &exec.graph.nodes[node.position()];
    if let Some(other) = compiled.undeclared(written) {
        let channel = exec.state.channels()[other].name.clone();
        return Err(RunError::Undeclared { node: name.clone(), step: task.step, channel });
    }
    let refuse = |source| RunError::Fold { node: name.clone(), step: task.step, source };
    let (update, targets) = if alone {
        exec.is_head = false;
        begin_fold(&mut exec.state, exec.nested.as_mut()).map_err(refuse)?;
        note(exec.nested.as_mut(), &update);
        fold(&mut exec.state, update).map_err(refuse)?;
        (None, targets(compiled, &exec.state, task.step, name)?)
    } else if !compiled.decides() {
        (Some(update), Targets::default())
    } else {
        let left_behind = reduce(&exec.state, [update.clone()]).map_err(refuse)?;
        (Some(update), targets(compiled, &left_behind, task.step, name)?)
    };
    let Targets { ends, items } = command_targets.followed_by(targets);
    if update.is_some() || !items.is_empty() || exec.writer.is_some() {
        exec.superstep.put(task.slot, FinishedTask { node, update, stored, items, recorded: false });
    }
    Ok(Report { written, exclusive, targets: ends })
}

/// Folds the writes of a superstep's tasks in the order of the plan. Returns the items of the next one's workers.
pub(super) fn fold_superstep<S: State>(
    exec: &mut Execution<S>,
    commit: &Commit,
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
        note(nested.as_mut(), &update);
        fold(state, update)
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

/// Checks an update, and returns its stored form if the run has a thread.
pub(super) fn stored_form<S: State>(
    exec: &mut Execution<S>,
    update: &S::Update,
    node: NodeIndex,
    step: i64,
) -> Result<Option<StoredUpdate>, RunError> {
    let name = exec.graph.topology.name(node);
    let Some(writer) = &exec.writer else {
        return check(&exec.state, update, step, name).map(|()| None);
    };
    let stored = if writer.keeps_values() {
        encode::keep(&exec.state, &exec.graph.initial, update, &mut exec.scratch)
    } else {
        encode::encode(&exec.state, update, &mut exec.scratch)
    };
    stored.map(Some).map_err(|refused| unencoded(refused, step, name))
}
