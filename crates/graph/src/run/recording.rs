//! The observer that stores the recorded inputs of tasks with their updates.
//!
//! Start at [`Recording`].

use std::{error::Error, io, sync::Arc};

use serde_json::{Map, Serializer, Value};
use superstep_checkpoint::{
    Commit, LazyFingerprints, Loaded, RecordedTarget, Source, internal::Fingerprints, internal::own::STATE,
};
use superstep_engine::{ChannelSet, Task};
use superstep_state::{
    StoredUpdate,
    internal::{ThreadDecoder, outline, unpanicked},
};

use super::{
    observer::{RunObserver, RunView, TaskStart, Wait},
    restore::restore,
};
use crate::{RunError, State, ThreadId, journal::recorder::ReplayMode};

/// The number of bytes of a channel that its fingerprint covers, so that its cost does not grow with the
/// channel.
const OUTLINE: usize = 2 << 10;

/// The maximum number of bytes of a value that is stored in place of its fingerprint, which has 18.
const SMALL: usize = 32;

/// The observer of a run that is recorded for a replay.
pub(super) struct Recording;

impl<S: State> RunObserver<S> for Recording {
    fn before_task(&self, run: RunView<'_, S>, task: Task) -> TaskStart<S> {
        run.cx.recorder.begin(task.id, ReplayMode::Nothing);
        TaskStart::Run { counts: None }
    }

    fn before_store(
        &self,
        run: RunView<'_, S>,
        task: Task,
        cached: Option<Vec<RecordedTarget>>,
        update: Option<&mut StoredUpdate>,
    ) -> Result<(), RunError> {
        record(run, task, task.attempt, cached, update)
    }

    fn before_commit<'a>(&'a self, run: RunView<'a, S>, new: &'a mut Commit) -> Wait<'a> {
        add_fingerprints(run, new);
        None
    }
}

/// Adds the recorded inputs of a task to its update, or gives them to the graph that called this one.
///
/// # Errors
/// [`RunError::Encode`] if they are nested too deep.
pub(super) fn record<S: State>(
    run: RunView<'_, S>,
    task: Task,
    attempt: u32,
    cached: Option<Vec<RecordedTarget>>,
    update: Option<&mut StoredUpdate>,
) -> Result<(), RunError> {
    let inputs = run.cx.recorder.take_inputs(task.id, || run.cx.effects.results(task.id));
    let failure = run.failures.get(&task.id.slot);
    let parent = &run.cx.scope.parent;
    if inputs.is_none() && attempt <= 1 && cached.is_none() && failure.is_none() && parent.is_none() {
        return Ok(());
    }
    let mut inputs = inputs.unwrap_or_default();
    inputs.failed = u64::from(attempt.saturating_sub(1));
    (inputs.cached, inputs.went) = (cached.is_some(), cached.unwrap_or_default());
    inputs.failure = failure.map(|failure| Box::new((**failure).clone()));
    match (parent, update) {
        (Some(parent), _) => parent.record_inputs(task.id, inputs),
        (None, Some(update)) => inputs.append_to(update).map_err(|source| {
            let (node, step) = (run.graph.topology.name(task.node).clone(), task.id.step);
            RunError::Encode { node, channel: None, step, source }
        })?,
        (None, None) => {}
    }
    Ok(())
}

/// Adds the fingerprints of the channels that a superstep wrote to its checkpoint.
pub(super) fn add_fingerprints<S: State>(run: RunView<'_, S>, new: &mut Commit) {
    if new.source != Source::Loop {
        return;
    }
    if run.can_restore {
        new.fingerprints = Some(LazyFingerprints::new(run.written, run.graph.fingerprints.clone()));
    } else {
        let fingerprints = fingerprints(run.state, run.written).into();
        Arc::make_mut(&mut new.metadata).insert(STATE.to_owned(), fingerprints);
    }
}

/// The initial state of a graph, from which the state of a checkpoint is folded.
pub(crate) struct Initial<S>(pub(crate) Arc<S>);

impl<S: State> Fingerprints for Initial<S> {
    fn compute(
        &self,
        thread: &ThreadId,
        loaded: Loaded,
        written: ChannelSet,
    ) -> Result<Map<String, Value>, Box<dyn Error + Send + Sync>> {
        let decoder = ThreadDecoder::new((*self.0).clone());
        let restored = restore(decoder, thread, loaded, ChannelSet::EMPTY)?;
        Ok(fingerprints(&restored.state, written))
    }
}

/// Returns the fingerprints of the channels that a superstep wrote: of a small value, a list with the value itself, which a divergence
/// can show; of a large one, that of its beginning and its length. Unreadable values have none.
pub(super) fn fingerprints<S: State>(state: &S, written: ChannelSet) -> Map<String, Value> {
    let channels = state.channels();
    let written = written.iter().filter(|position| !channels[*position].untracked);
    let print = |position: usize| {
        let print = match small_value(state, position) {
            Some(value) => Value::from([value].as_slice()),
            None => print_of(state, position)?.into(),
        };
        Some((channels[position].name.to_string(), print))
    };
    written.filter_map(print).collect()
}

/// Returns whether a channel has a stored fingerprint. Older programs stored those of small values, too.
pub(super) fn has_fingerprint<S: State>(state: &S, position: usize, stored: &Value) -> bool {
    match stored.as_array().map(Vec::as_slice) {
        Some([value]) => small_value(state, position).as_ref() == Some(value),
        _ => print_of(state, position).is_some_and(|print| *stored == print),
    }
}

fn print_of<S: State>(state: &S, position: usize) -> Option<String> {
    let print = || Ok(outline(OUTLINE, |printer| state.serialize_channel(position, printer)));
    unpanicked("Serialize", print).ok()?
}

/// Returns the value of a channel if its JSON is not longer than [`SMALL`].
fn small_value<S: State>(state: &S, position: usize) -> Option<Value> {
    let mut json = Limited(Vec::new());
    let written = || state.serialize_channel(position, &mut Serializer::new(&mut json));
    unpanicked("Serialize", written).ok()?;
    serde_json::from_slice(&json.0).ok()
}

/// A buffer that refuses what is longer than [`SMALL`], so that the work for a value does not grow with it.
struct Limited(Vec<u8>);

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > SMALL {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
