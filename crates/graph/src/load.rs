//! From what a checkpointer stores back to a typed state, by the same folds that made it.

use std::{error::Error, sync::Arc};

use superstep_engine::NodeName;

use crate::{
    ChannelValue, CheckpointId, CheckpointMeta, Checkpointer, Loaded, RunError, State, TaskRecord, ThreadId,
    state::fold,
};

/// A checkpoint as the driver works with it.
pub(crate) struct Restored<S: State> {
    pub(crate) meta: CheckpointMeta,
    pub(crate) head: CheckpointId,
    pub(crate) state: S,
    pub(crate) tasks: Vec<RestoredTask<S>>,
    pub(crate) since_snapshot: SinceSnapshot,
}

pub(crate) struct RestoredTask<S: State> {
    pub(crate) slot: u32,
    pub(crate) record: TaskRecord,
    /// The update of a finished task.
    pub(crate) update: Option<S::Update>,
}

/// How much was stored since the last snapshot: decides when the next one is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SinceSnapshot {
    commits: usize,
    bytes: usize,
    /// The size of the last snapshot, or of the largest commit if that is more: it tells what the next one will cost.
    snapshot_bytes: usize,
}

impl SinceSnapshot {
    /// The fewest commits between two snapshots.
    const EVERY: usize = 50;
    /// How many times the size of a snapshot is stored as updates before the next one, so that snapshots cost a
    /// constant share of each commit, however long the history is.
    const WEIGHT: usize = 4;
    /// What folding one commit costs when it is loaded, in bytes worth of the same time.
    const COMMIT_BYTES: usize = 256;

    pub(crate) fn count(&mut self, update_bytes: usize) {
        self.commits += 1;
        self.bytes += update_bytes;
        self.snapshot_bytes = self.snapshot_bytes.max(update_bytes);
    }

    pub(crate) fn is_due(&self) -> bool {
        self.commits >= Self::EVERY
            && self.bytes + self.commits * Self::COMMIT_BYTES >= self.snapshot_bytes * Self::WEIGHT
    }

    pub(crate) fn taken(channels: &[ChannelValue]) -> Self {
        Self { snapshot_bytes: channels.iter().map(|value| value.json.len()).sum(), ..Self::default() }
    }
}

/// Loads the checkpoint `at`, or the head. `None` if there is no such thread.
///
/// # Errors
/// [`RunError::UnknownCheckpoint`] if the thread does not have the one asked for, and those of [`restore`].
pub(crate) async fn load<S: State>(
    checkpointer: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    at: Option<CheckpointId>,
) -> Result<Option<Restored<S>>, RunError> {
    match (checkpointer.load(thread, at).await?, at) {
        (Some(loaded), _) => restore(thread, loaded).map(Some),
        (None, None) => Ok(None),
        (None, Some(checkpoint)) => Err(RunError::UnknownCheckpoint { thread: thread.clone(), checkpoint }),
    }
}

/// Folds a loaded checkpoint.
///
/// # Errors
/// [`RunError::Decode`] if something stored does not fit the state.
fn restore<S: State>(thread: &ThreadId, loaded: Loaded) -> Result<Restored<S>, RunError> {
    let Loaded { meta, head, snapshot, commits, tasks } = loaded;
    let id = meta.id;
    let decode = |what: String, source: Box<dyn Error + Send + Sync>| RunError::Decode {
        thread: thread.clone(),
        checkpoint: id,
        what,
        source,
    };
    let mut state = S::default();
    let mut since_snapshot = SinceSnapshot::default();
    if let Some(channels) = snapshot {
        since_snapshot = SinceSnapshot::taken(&channels);
        for ChannelValue { channel: name, json } in channels {
            let channel = S::CHANNELS.iter().position(|channel| channel.name == name);
            let channel = channel
                .ok_or_else(|| decode(format!("channel `{name}`"), "the state has no such channel".into()))?;
            state
                .decode(channel, &json)
                .map_err(|error| decode(format!("channel `{name}`"), error.into()))?;
        }
    }
    for updates in commits {
        // Accepting an input and forking fold nothing, so that what is ephemeral waits for its superstep.
        if !updates.is_empty() {
            state.clear_ephemeral();
        }
        let mut bytes = 0;
        for json in updates {
            bytes += json.len();
            let update: S::Update =
                serde_json::from_slice(&json).map_err(|error| decode("an update".into(), error.into()))?;
            fold(&mut state, update).map_err(|error| decode("an update".into(), error.into()))?;
        }
        since_snapshot.count(bytes);
    }
    let tasks = tasks.into_iter().map(|(slot, record)| {
        let update = match &record {
            TaskRecord::Finished { update, .. } => {
                let node = meta.control.next.get(slot as usize).map_or("?", NodeName::as_str);
                let what = || format!("the record of node `{node}`");
                Some(serde_json::from_str(update).map_err(|error| decode(what(), error.into()))?)
            }
            TaskRecord::Failed { .. } | TaskRecord::Cancelled => None,
        };
        Ok(RestoredTask { slot, record, update })
    });
    let tasks = tasks.collect::<Result<_, RunError>>()?;
    Ok(Restored { meta, head, state, tasks, since_snapshot })
}
