//! Finished tasks: folding their writes and finding their targets.

use superstep_engine::{Finished, Input, NodeIndex, Report, Run, Task, TaskId};
use superstep_state::{
    FoldError, StoredUpdate,
    internal::{clear_ephemeral, encode::keep, fold},
    reduce,
};

use super::{
    encode::{check, encode, unencoded},
    execution::Execution,
    nested_call::NestedContext,
    superstep::{FinishedTask, Refused, Stop},
    targets::named,
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
    let command_targets = exec.graph.command_targets(task.node, goto, recorded_targets);
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
        fold_update(&mut exec.state, exec.nested.as_mut(), update).map_err(refuse)?;
        (None, compiled.targets(&exec.state, task.step, name)?)
    } else if !compiled.decides() {
        (Some(update), Targets::default())
    } else {
        let left_behind = reduce(&exec.state, [update.clone()]).map_err(refuse)?;
        (Some(update), compiled.targets(&left_behind, task.step, name)?)
    };
    let Targets { ends, items } = command_targets.followed_by(targets);
    if update.is_some() || !items.is_empty() || exec.writer.is_some() {
        exec.superstep.put(task.slot, FinishedTask { node, update, stored, items, recorded: false });
    }
    Ok(Report { written, exclusive, targets: ends })
}

/// Resets the ephemeral channels of the previous superstep.
pub(super) fn begin_fold<S: State>(
    state: &mut S,
    inside: Option<&mut NestedContext<S>>,
) -> Result<(), FoldError> {
    let made = inside.and_then(|inside| inside.made.as_mut());
    // The first superstep still sees the ephemeral values of the initial state.
    if !made.as_ref().is_some_and(|made| made.is_empty()) {
        clear_ephemeral(state)?;
    }
    if let Some(made) = made {
        made.begin_superstep();
    }
    Ok(())
}

/// Folds an update, which is retained if the caller of the graph needs it.
pub(super) fn fold_update<S: State>(
    state: &mut S,
    inside: Option<&mut NestedContext<S>>,
    update: S::Update,
) -> Result<(), FoldError> {
    if let Some(made) = inside.and_then(|inside| inside.made.as_mut()) {
        made.push(update.clone());
    }
    fold(state, update)
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
    if writer.keeps_values() {
        let kept = keep(&exec.state, &exec.graph.initial, update, &mut exec.scratch);
        return kept.map(Some).map_err(|refused| unencoded(refused, step, name));
    }
    encode(&exec.state, update, step, name, &mut exec.scratch).map(Some)
}
