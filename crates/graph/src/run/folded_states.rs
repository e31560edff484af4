//! The comparison of the states that a thread folds to with what was stored with its checkpoints.
//!
//! Start at [`mismatch`].

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::Serialize;
use serde_json::{Map, Value};
use superstep_checkpoint::{CheckpointMeta, Commit, TaskRecord, internal::own::STATE};
use superstep_engine::{ChannelSet, NodeName};
use superstep_state::{
    Channel, Snapshot, StoredUpdate,
    internal::{ThreadDecoder, UnknownChannels, Unreadable, encode::differing, keys::VERSIONS},
};

use super::{recording::has_fingerprint, restore::unfit_error};
use crate::{CheckpointId, Checkpointer, History, RunError, State, ThreadId, compiled::graph::Inner};

/// A checkpoint whose state folds to another value than was stored with it: the reducer or the type of the channel was changed, or
/// the stored thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StateMismatch {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The superstep of the checkpoint.
    pub step: i64,
    /// The last node that wrote the channel.
    pub node: NodeName,
    /// The channel.
    pub channel: String,
}

impl fmt::Display for StateMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { checkpoint, step, node, channel } = self;
        write!(
            f,
            "checkpoint {checkpoint}, superstep {step}: channel `{channel}`, written by node `{node}`, folds to another value than was \
             stored with it"
        )
    }
}

/// Folds every checkpoint of a thread once, on all its branches, and returns the first whose state is not the stored one. `None` also
/// for a redacted thread, whose values are missing.
///
/// # Errors
/// [`RunError::OtherGraph`], [`RunError::Decode`] and [`RunError::NewerChannel`], and those of the checkpointer.
pub(crate) async fn mismatch<S: State>(
    graph: &Inner<S>,
    store: &dyn Checkpointer,
    thread: &ThreadId,
) -> Result<Option<StateMismatch>, RunError> {
    let mut all = store.history(thread, History::default()).await?;
    all.reverse();
    all.iter().try_for_each(|meta| graph.owns(thread, meta))?;
    if all.iter().any(|meta| !meta.redacted().is_empty()) {
        return Ok(None);
    }
    // A state is retained until its last successor is folded: one at a time, without branches.
    let mut successors: BTreeMap<CheckpointId, usize> = BTreeMap::new();
    for parent in all.iter().filter_map(parent_of) {
        *successors.entry(parent).or_default() += 1;
    }
    let mut folded: BTreeMap<CheckpointId, Folded<S>> = BTreeMap::new();
    for meta in all {
        let before = parent_of(&meta).and_then(|parent| {
            let left = successors.get_mut(&parent)?;
            *left -= 1;
            if *left == 0 { folded.remove(&parent) } else { folded.get(&parent).cloned() }
        });
        // It is deleted meanwhile.
        let Some(commit) = store.read_commit(thread, meta.id).await? else { return Ok(None) };
        let before = before.unwrap_or_else(|| Folded::new((*graph.initial).clone()));
        let unfit = |(what, unfit): (String, Unreadable)| unfit_error(unfit, thread, meta.id, &what);
        match before.followed_by(&meta, commit).map_err(unfit)? {
            Ok(after) if successors.contains_key(&meta.id) => {
                folded.insert(meta.id, after);
            }
            Ok(_) => {}
            Err(mismatch) => return Ok(Some(mismatch)),
        }
    }
    Ok(None)
}

fn parent_of(meta: &CheckpointMeta) -> Option<CheckpointId> {
    meta.parent.filter(|_| !meta.parent_pruned)
}

/// The state of a checkpoint, and the updates of its tasks.
#[derive(Clone)]
struct Folded<S: State> {
    state: S,
    present: ChannelSet,
    unknown: UnknownChannels,
    step: i64,
    finished: BTreeMap<u32, StoredUpdate>,
}

impl<S: State> Folded<S> {
    fn new(initial: S) -> Self {
        let (present, unknown) = (ChannelSet::EMPTY, UnknownChannels::default());
        Self { state: initial, present, unknown, step: i64::MIN, finished: BTreeMap::new() }
    }

    /// Folds the checkpoint after this one, as a load does, and compares its state with the stored one.
    fn followed_by(
        self,
        meta: &CheckpointMeta,
        commit: Commit,
    ) -> Result<Result<Self, StateMismatch>, (String, Unreadable)> {
        let Commit { control, applied, snapshot, records, metadata, .. } = commit;
        let Self { state, present, unknown, step, finished } = self;
        let initial = state.clone();
        let mut reader = ThreadDecoder::new(state);
        (reader.present, reader.unknown) = (present, unknown);
        let mut updates = Vec::with_capacity(applied.len());
        for task in applied.iter().filter(|_| !meta.parent_pruned) {
            let recorded = finished.get(&task.slot).filter(|_| task.recorded);
            updates.push((task.node.clone(), recorded.unwrap_or(&task.update).clone()));
        }
        let in_update = |unfit| ("an update".to_owned(), unfit);
        if !updates.is_empty() {
            reader.begin_superstep().map_err(in_update)?;
        }
        for (_, update) in &updates {
            reader.update(update).map_err(in_update)?;
        }
        let mut different = None;
        if let Some(snapshot) = &snapshot {
            let mut stored = ThreadDecoder::new(initial);
            stored.snapshot(snapshot).map_err(|(channel, unfit)| (format!("channel `{channel}`"), unfit))?;
            // Without all updates since its parent, there is nothing to compare it with.
            let is_next = !meta.parent_pruned && control.step <= step.saturating_add(1);
            let is_current = stored.state.channels().iter().all(|channel| is_current(snapshot, channel));
            if is_next && is_current {
                different = differing(&reader.state, &stored.state).map(Cow::into_owned);
            }
            reader = stored;
        }
        let written: Vec<&StoredUpdate> = updates.iter().map(|(_, update)| update).collect();
        different = different.or_else(|| {
            let stored = metadata.get(STATE)?.as_object()?;
            let (position, _) = different_channel(&reader.state, stored, &written, snapshot.as_ref())?;
            Some(reader.state.channels()[position].name.to_string())
        });
        if let Some(channel) = different {
            let writer = updates.iter().rfind(|(_, update)| update.touches(&channel));
            let writer = writer.map(|(node, _)| node).or_else(|| applied.last().map(|task| &task.node));
            let node = writer.cloned().unwrap_or_else(|| superstep_engine::START.into());
            return Ok(Err(StateMismatch { checkpoint: meta.id, step: control.step, node, channel }));
        }
        let finished = records.into_iter().filter_map(|(slot, record)| match record {
            TaskRecord::Finished { update, .. } => Some((slot, update)),
            _ => None,
        });
        let ThreadDecoder { state, present, unknown, .. } = reader;
        Ok(Ok(Self { state, present, unknown, step: control.step, finished: finished.collect() }))
    }
}

/// Returns the first channel whose value does not have its stored fingerprint, by its position, and that fingerprint. `updates` are
/// those of the superstep. A channel that the state no longer has, or that was stored in another version, is not compared.
pub(super) fn different_channel<'a, S: State>(
    state: &S,
    stored: &'a Map<String, Value>,
    updates: &[&StoredUpdate],
    snapshot: Option<&Snapshot>,
) -> Option<(usize, &'a Value)> {
    let channels = state.channels();
    stored.iter().find_map(|(name, print)| {
        let position = channels.iter().position(|known| *known.name == *name)?;
        if has_fingerprint(state, position, print) {
            return None;
        }
        let channel = &channels[position];
        let is_migrated = updates.iter().any(|update| is_of_another_version(update, channel))
            || snapshot.is_some_and(|snapshot| !is_current(snapshot, channel));
        (!is_migrated).then_some((position, print))
    })
}

/// Returns whether an update has a write of this channel that was stored with another version of it.
fn is_of_another_version(update: &StoredUpdate, channel: &Channel) -> bool {
    if !update.touches(&channel.name) {
        return false;
    }
    let json = update.json().ok();
    let entries: Option<Map<String, Value>> = json.and_then(|json| serde_json::from_str(&json).ok());
    version_in(entries.as_ref().and_then(|entries| entries.get(VERSIONS)), channel)
        != u64::from(channel.version)
}

/// Returns whether a snapshot has the current version of this channel.
fn is_current(snapshot: &Snapshot, channel: &Channel) -> bool {
    let Ok(channels) = snapshot.channels() else { return false };
    let versions = channels.iter().find(|value| value.channel == VERSIONS);
    let versions: Option<Value> = versions.and_then(|versions| serde_json::from_str(&versions.json).ok());
    version_in(versions.as_ref(), channel) == u64::from(channel.version)
}

fn version_in(versions: Option<&Value>, channel: &Channel) -> u64 {
    versions.and_then(|versions| versions.get(&*channel.name)?.as_u64()).unwrap_or(1)
}
