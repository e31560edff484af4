//! Restoring a typed state from stored data, by the same folds that made it.

use std::sync::{Arc, Weak};

use superstep_checkpoint::{CheckpointError, CheckpointMeta, HeadState, Loaded, LoadedHead, TaskRecord};
use superstep_engine::{ChannelSet, Control, NodeName, START, Topology};
use superstep_state::internal::{Made, ThreadDecoder, UnknownChannels, Unreadable};

use crate::{
    CheckpointId, Checkpointer, RunError, State, ThreadId,
    compiled::graph::Inner,
    journal::{
        memories::{Bound, after_call},
        task_origin::Origins,
    },
    run::since_snapshot::SinceSnapshot,
};

/// A checkpoint in the driver's form.
pub(crate) struct Restored<S: State> {
    pub(crate) meta: CheckpointMeta,
    pub(crate) head: CheckpointId,
    /// The slots and nodes of the updates that made it.
    pub(crate) applied: Vec<(u32, NodeName)>,
    pub(crate) state: S,
    /// The channels of which the state has a stored value.
    pub(crate) present: ChannelSet,
    pub(crate) tasks: Vec<RestoredTask<S>>,
    pub(crate) since_snapshot: SinceSnapshot,
    /// The stored data of channels that the state does not have.
    pub(crate) unknown: UnknownChannels,
    /// The updates, if it was loaded by [`load_seeded`].
    pub(crate) made: Option<Made<S>>,
}

pub(crate) struct RestoredTask<S: State> {
    pub(crate) slot: u32,
    pub(crate) record: TaskRecord,
    /// The update of a finished task.
    pub(crate) update: Option<S::Update>,
}

impl<S: State> RestoredTask<S> {
    /// Returns the node of the task, or its error handler if that ran instead.
    pub(crate) fn author(&self, topology: &Topology, control: &Control) -> NodeName {
        let handler = match &self.record {
            TaskRecord::Finished { failure: Some(failure), .. } => failure.handler(topology),
            _ => None,
        };
        let planned = || control.next.get(self.slot as usize).cloned();
        handler.map(|handler| topology.name(handler).clone()).or_else(planned).unwrap_or_else(|| "?".into())
    }
}

/// Loads the checkpoint `at` of a thread of `graph`, or the head. `None` if the thread does not exist.
/// `written` are the channels that are about to be written.
///
/// # Errors
/// [`RunError::UnknownCheckpoint`] if the thread does not have the requested one,
/// [`RunError::MissingChannel`] if neither the thread nor `written` has a required channel,
/// [`RunError::OtherGraph`], and those of [`restore`].
pub(crate) async fn load<S: State>(
    graph: &Inner<S>,
    checkpointer: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    at: Option<CheckpointId>,
    written: ChannelSet,
) -> Result<Option<Restored<S>>, RunError> {
    match (checkpointer.load(thread, at).await?, at) {
        (Some(loaded), _) => {
            graph.owns(thread, &loaded.meta)?;
            restore(ThreadDecoder::new((*graph.initial).clone()), thread, loaded, written).map(Some)
        }
        (None, None) => Ok(None),
        (None, Some(checkpoint)) => Err(RunError::UnknownCheckpoint { thread: thread.clone(), checkpoint }),
    }
}

/// Loads a checkpoint as [`load`] does, and the head from the state that the last run left if there is one.
///
/// # Errors
/// See [`load`].
pub(crate) async fn load_known<S: State>(
    graph: &Arc<Inner<S>>,
    checkpointer: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    at: Option<CheckpointId>,
    written: ChannelSet,
) -> Result<Option<Restored<S>>, RunError> {
    match at {
        None => load_head(graph, checkpointer, thread, written).await,
        at => load(graph, checkpointer, thread, at, written).await,
    }
}

/// The approximate size of a remembered state without its values.
const ENTRY_BYTES: usize = 512;

/// The head of a thread, as the last run left it; see [`Checkpointer::remember`].
struct Remembered<S: State> {
    /// The graph that ran.
    graph: Weak<Inner<S>>,
    nonce: Option<String>,
    state: S,
    since_snapshot: SinceSnapshot,
}

/// Returns the state of a thread's head for the next run of the same graph; `None` if it has channels that no run passes on.
pub(crate) fn head_state<S: State>(
    graph: &Arc<Inner<S>>,
    nonce: Option<&str>,
    state: &S,
    since_snapshot: SinceSnapshot,
) -> Option<HeadState> {
    if state.channels().iter().any(|channel| channel.untracked) {
        return None;
    }
    let (graph, nonce, state) = (Arc::downgrade(graph), nonce.map(str::to_owned), state.clone());
    let bytes = since_snapshot.state_bytes() + size_of::<S>() + ENTRY_BYTES;
    Some(HeadState::new(Remembered { graph, nonce, state, since_snapshot }, bytes))
}

/// Loads the head of a thread to continue it, from the state that the last run left if there is one.
///
/// # Errors
/// See [`load`].
async fn load_head<S: State>(
    graph: &Arc<Inner<S>>,
    checkpointer: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    written: ChannelSet,
) -> Result<Option<Restored<S>>, RunError> {
    let Some(LoadedHead { mut loaded, state }) = checkpointer.load_head(thread).await? else {
        return Ok(None);
    };
    graph.owns(thread, &loaded.meta)?;
    let Some(remembered) = state else {
        return restore(ThreadDecoder::new((*graph.initial).clone()), thread, loaded, written).map(Some);
    };
    // A run that folded a whole thread in each turn would cost O(n²). The remembered state is taken only if it is
    // certain to equal the fold: the head has the same number, the thread the same nonce, no other connection has
    // written to the database, the graph is the same object (another one may have other reducers), and no channel
    // is untracked or unknown. The checkpointer has it and not the graph, because only the checkpointer knows of
    // deletions, copies and foreign writes.
    let known = remembered.get::<Remembered<S>>().filter(|known| {
        known.graph.as_ptr() == Arc::as_ptr(graph) && known.nonce.as_deref() == loaded.meta.nonce()
    });
    let Some(Remembered { state, since_snapshot, .. }) = known else {
        return load(graph, checkpointer, thread, None, written).await;
    };
    // They are in the state; a checkpointer need not leave them out.
    (loaded.snapshot, loaded.commits) = (None, Vec::new());
    let mut reader = ThreadDecoder::new(state.clone());
    reader.present = (0..state.channels().len()).collect();
    let mut restored = restore(reader, thread, loaded, written)?;
    restored.since_snapshot = *since_snapshot;
    #[cfg(debug_assertions)]
    if let Some(folded) = load(graph, checkpointer, thread, Some(restored.head), written).await? {
        let differing = superstep_state::internal::encode::differing(&restored.state, &folded.state);
        assert!(
            differing.is_none(),
            "channel {differing:?} of the remembered head of thread `{thread}` differs"
        );
    }
    Ok(Some(restored))
}

/// Loads the head of a graph that started with the state of its caller, with its updates.
///
/// # Errors
/// See [`load`].
pub(crate) async fn load_seeded<S: State>(
    graph: &Inner<S>,
    seed: &S,
    checkpointer: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
) -> Result<Option<Restored<S>>, RunError> {
    let Some(loaded) = checkpointer.load(thread, None).await? else { return Ok(None) };
    graph.owns(thread, &loaded.meta)?;
    let mut reader = ThreadDecoder::new(seed.clone());
    reader.present = (0..seed.channels().len()).collect();
    reader.made = Some(Made::default());
    restore(reader, thread, loaded, ChannelSet::EMPTY).map(Some)
}

/// Rejects a state without its required channels.
///
/// # Errors
/// [`RunError::MissingChannel`] with the first that is not in `present`.
pub(crate) fn require<S: State>(
    state: &S,
    present: ChannelSet,
    stored: Option<(&ThreadId, CheckpointId)>,
) -> Result<(), RunError> {
    let mut channels = state.channels().iter().enumerate();
    match channels.find(|(position, channel)| channel.required && !present.contains(*position)) {
        None => Ok(()),
        Some((_, channel)) => {
            let stored = stored.map(|(thread, checkpoint)| (thread.clone(), checkpoint));
            Err(RunError::MissingChannel { channel: channel.name.clone(), stored })
        }
    }
}

/// Creates the error of unreadable data of a thread's checkpoint.
pub(crate) fn unfit_error(
    unfit: Unreadable,
    thread: &ThreadId,
    checkpoint: CheckpointId,
    what: &str,
) -> RunError {
    let (thread, what) = (thread.clone(), what.to_owned());
    match unfit {
        Unreadable::Decode(source) => RunError::Decode { thread, checkpoint, what, source },
        Unreadable::Newer { channel, stored, known } => {
            RunError::NewerChannel { thread, checkpoint, channel, stored, known }
        }
    }
}

/// Folds a loaded checkpoint.
///
/// # Errors
/// [`RunError::Decode`] if stored data does not fit the state, [`RunError::NewerChannel`] if a newer program
/// stored it.
pub(super) fn restore<S: State>(
    mut reader: ThreadDecoder<S>,
    thread: &ThreadId,
    loaded: Loaded,
    written: ChannelSet,
) -> Result<Restored<S>, RunError> {
    let Loaded { meta, head, applied, snapshot, commits, tasks, fingerprints: _ } = loaded;
    let id = meta.id;
    let redacted = meta.redacted();
    let refuse = |what: String, unfit: Unreadable| match redacted.as_slice() {
        [] => unfit_error(unfit, thread, id, &what),
        rules => {
            let rules = rules.join(", ");
            unfit_error(
                unfit,
                thread,
                id,
                &format!("{what}, redacted when the thread was exported ({rules}),"),
            )
        }
    };
    let mut since_snapshot = SinceSnapshot::default();
    if let Some(snapshot) = snapshot {
        since_snapshot = SinceSnapshot::taken(&snapshot);
        let read = reader.snapshot(&snapshot);
        read.map_err(|(channel, unfit)| refuse(format!("channel `{channel}`"), unfit))?;
    }
    let last = commits.len().saturating_sub(1);
    for (nth, updates) in commits.into_iter().enumerate() {
        // Inputs and forks fold no updates, so that ephemeral values wait for their superstep.
        let folded = !updates.is_empty();
        if folded {
            reader.begin_superstep().map_err(|unfit| refuse("an update".into(), unfit))?;
        }
        let mut bytes = 0;
        for (position, update) in updates.into_iter().enumerate() {
            bytes += update.bytes();
            let what = || match applied.get(position).filter(|_| nth == last) {
                Some((_, node)) => format!("an update of node `{node}`"),
                None => "an update".to_owned(),
            };
            reader.update(&update).map_err(|unfit| refuse(what(), unfit))?;
        }
        since_snapshot.count(folded, bytes);
    }
    let present = reader.present;
    let mut restored = Vec::with_capacity(tasks.len());
    for (slot, record) in tasks {
        let update = match &record {
            TaskRecord::Finished { update, .. } => {
                let node = meta.control.next.get(slot as usize).map_or("?", NodeName::as_str);
                let read = reader.record(slot, update);
                Some(read.map_err(|unfit| refuse(format!("the record of node `{node}`"), unfit))?)
            }
            TaskRecord::Started { .. }
            | TaskRecord::Failed { .. }
            | TaskRecord::Interrupted { .. }
            | TaskRecord::Cancelled { .. }
            | TaskRecord::Handled { .. } => None,
        };
        restored.push(RestoredTask { slot, record, update });
    }
    require(&reader.state, reader.present.union(written), Some((thread, id)))?;
    let ThreadDecoder { state, unknown, made, .. } = reader;
    Ok(Restored { meta, head, applied, state, present, tasks: restored, since_snapshot, unknown, made })
}

/// Returns the checkpoints of the subgraphs that those of a checkpoint's finished tasks called whose result
/// remains, if their superstep is incomplete.
pub(crate) async fn left_by<S: State>(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
    topology: &Topology,
    restored: (&CheckpointMeta, &[RestoredTask<S>]),
    is_kept: impl Fn(&RestoredTask<S>) -> bool,
) -> Result<Bound, CheckpointError> {
    let (meta, tasks) = restored;
    let finished = tasks.iter().filter(|task| task.update.is_some() && is_kept(task));
    let finished = finished.map(|task| (task.slot, task.author(topology, &meta.control)));
    left_by_slots(checkpointer, thread, topology, meta, &finished.collect::<Vec<_>>()).await
}

/// Like [`left_by`], for the finished tasks in these slots, each with the author of its update. The node of a task that its
/// error handler finished leaves nothing.
pub(crate) async fn left_by_slots(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
    topology: &Topology,
    meta: &CheckpointMeta,
    finished: &[(u32, NodeName)],
) -> Result<Bound, CheckpointError> {
    let is_input = meta.control.next.first().is_some_and(|node| node.as_str() == START);
    let mut left = Bound::new();
    if finished.is_empty() || is_input {
        return Ok(left);
    }
    let origins = Origins::of(meta);
    for child in checkpointer.children(thread).await? {
        let Some((_, segment)) = child.parent().filter(|(parent, _)| parent == thread) else { continue };
        if segment.task.is_some() {
            continue;
        }
        for (slot, _) in finished.iter().filter(|(_, author)| topology.is_same(author, &segment.node)) {
            if let Some(at) = after_call(checkpointer, &child, origins.caller(*slot)).await? {
                left.insert(segment.to_string(), at);
            }
        }
    }
    Ok(left)
}
