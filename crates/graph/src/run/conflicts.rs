//! Writes of finished tasks that their superstep cannot fold, detected before its end.

use std::collections::BTreeMap;

use superstep_checkpoint::TaskRecord;
use superstep_engine::{ChannelSet, Control, START, Topology};
use superstep_state::{FoldError, StoredUpdate, chain, internal::fold};

use super::superstep::{FinishedTask, Superstep};
use crate::{RunError, State, journal::recorder::Recorded, run::restore::RestoredTask};

/// Marks finished tasks of the head as failed if their superstep would reject them: all writers of a channel
/// that accepts one write, and tasks whose write a reducer rejects. `state` is that of the checkpoint.
///
/// Only external inspection needs this. A run that continues detects it itself.
pub(crate) fn set_back_refused<S: State>(
    topology: &Topology,
    control: &Control,
    state: &S,
    tasks: &mut [RestoredTask<S>],
) {
    // A rejected input is not stored.
    let is_input = control.next.first().is_some_and(|node| node.as_str() == START);
    if is_input || tasks.iter().all(|task| task.update.is_none()) {
        return;
    }
    let step = control.step + 1;
    let name = |task: &RestoredTask<S>| task.author(topology, control);
    for (channel, writers) in clashes(state, tasks) {
        let alone = |task: &usize| {
            tasks[*task].update.as_ref().is_some_and(|update| state.exclusive(update).contains(channel))
        };
        let second = writers.iter().position(alone).unwrap_or_default().max(1);
        let conflict = RunError::Conflict {
            channel: state.channels()[channel].name.clone(),
            step,
            first: name(&tasks[writers[0]]),
            second: name(&tasks[writers[second]]),
        };
        writers.into_iter().for_each(|task| set_back(&mut tasks[task], &conflict));
    }
    while let Err((refused, source)) = fold_all(state, tasks) {
        let error = RunError::Fold { node: name(&tasks[refused]), step, source };
        set_back(&mut tasks[refused], &error);
    }
}

/// Returns the updates of finished tasks that their incomplete superstep does not refuse, by slot.
pub(super) fn accepted<S: State>(
    topology: &Topology,
    state: &S,
    superstep: &Superstep<S>,
) -> BTreeMap<u32, S::Update> {
    let name = |done: &Option<FinishedTask<S>>| match done {
        Some(done) => topology.name(done.node).clone(),
        None => "?".into(),
    };
    let control = Control::new(superstep.step - 1, superstep.done.iter().map(name).collect());
    let done = (0..).zip(&superstep.done);
    let finished =
        || TaskRecord::Finished { update: StoredUpdate::empty(), targets: Vec::new(), failure: None };
    let done = done.filter_map(|(slot, done)| {
        Some(RestoredTask { slot, record: finished(), update: Some(done.as_ref()?.update.clone()?) })
    });
    let mut tasks: Vec<_> = done.collect();
    set_back_refused(topology, &control, state, &mut tasks);
    tasks.into_iter().filter_map(|task| Some((task.slot, task.update?))).collect()
}

/// Returns the channels with several writers, one of which wrote exclusively, with the positions of the
/// writers.
fn clashes<S: State>(state: &S, tasks: &[RestoredTask<S>]) -> Vec<(usize, Vec<usize>)> {
    let written = |task: &RestoredTask<S>| task.update.as_ref().map(|update| state.written(update));
    let alone = tasks.iter().filter_map(|task| Some(state.exclusive(task.update.as_ref()?)));
    let alone = alone.fold(ChannelSet::EMPTY, ChannelSet::union);
    let writers = |channel| {
        let tasks = tasks.iter().enumerate();
        let wrote = tasks.filter(|(_, task)| written(task).is_some_and(|written| written.contains(channel)));
        (channel, wrote.map(|(position, _)| position).collect::<Vec<_>>())
    };
    alone.iter().map(writers).filter(|(_, writers)| writers.len() > 1).collect()
}

/// Folds the writes of the tasks as a test.
///
/// # Errors
/// The position of the first rejected write, and the reason.
fn fold_all<S: State>(state: &S, tasks: &[RestoredTask<S>]) -> Result<(), (usize, FoldError)> {
    let mut state = state.clone();
    state.clear_ephemeral();
    for (position, task) in tasks.iter().enumerate() {
        let Some(update) = task.update.clone() else { continue };
        fold(&mut state, update).map_err(|refused| (position, refused))?;
    }
    Ok(())
}

fn set_back<S: State>(task: &mut RestoredTask<S>, error: &RunError) {
    let TaskRecord::Finished { update, failure, .. } = &task.record else { return };
    let once = Recorded::effects_of(update);
    let failed = TaskRecord::Failed { attempts: 0, error: chain(error), once };
    (task.record, task.update) = (failed.handled(failure.as_deref()), None);
}
