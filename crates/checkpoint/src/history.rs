//! Selections of a thread's checkpoints, to read or to retain.
//!
//! Start at [`History`] and [`Retention`].

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Map, Value};
use superstep_engine::NodeName;
use superstep_state::ChannelValue;

use crate::{CheckpointId, CheckpointMeta, Source, commit::own};

/// A selection of a thread's checkpoints. All fields that are set must match.
///
/// ```
/// # use superstep_graph::{History, checkpoint::Source};
/// let page = History { limit: Some(20), ..History::default() };
/// let before_tools = History { next: Some("tools".into()), ..History::default() };
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The maximum number; `None` for all.
    pub limit: Option<usize>,
    /// Selects checkpoints older than this one.
    pub before: Option<CheckpointId>,
    /// Selects checkpoints with this source.
    pub source: Option<Source>,
    /// Selects checkpoints of this superstep. Each branch may have one.
    pub step: Option<i64>,
    /// Selects checkpoints at which this node is pending.
    pub next: Option<NodeName>,
    /// Selects checkpoints whose metadata has all of these entries.
    pub metadata: Map<String, Value>,
}

impl History {
    /// Returns whether a checkpoint matches. The caller applies `limit`.
    pub fn has(&self, meta: &CheckpointMeta) -> bool {
        self.before.is_none_or(|before| meta.id < before)
            && self.source.is_none_or(|source| meta.source == source)
            && self.step.is_none_or(|step| meta.control.step == step)
            && self.next.as_ref().is_none_or(|node| meta.control.next.contains(node))
            && self.metadata.iter().all(|(name, value)| meta.metadata.get(name) == Some(value))
    }
}

/// A retention policy for the checkpoints of a thread. The newest one is always retained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retention {
    /// Retains this number of newest checkpoints.
    Last(usize),
    /// Retains checkpoints created at this time or later: UTC milliseconds, by the clock of their runs.
    Since(i64),
    /// Retains checkpoints that are older than the newest one by at most this.
    Within(Duration),
    /// Retains the last checkpoint of each branch.
    Leaves,
    /// Retains only the listed checkpoints.
    Only(BTreeSet<CheckpointId>),
}

impl Retention {
    /// Chooses the checkpoints to retain from a history, newest first.
    #[doc(hidden)]
    pub fn choose(&self, history: &[CheckpointMeta]) -> BTreeSet<CheckpointId> {
        let newest = history.first().map_or(0, |head| head.created_ms);
        let parents: BTreeSet<_> = history.iter().filter_map(|meta| meta.parent).collect();
        let keeps = |(nth, meta): &(usize, &CheckpointMeta)| {
            *nth == 0
                || match self {
                    Self::Last(count) => nth < count,
                    Self::Since(ms) => meta.created_ms >= *ms,
                    Self::Within(age) => {
                        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
                        newest.saturating_sub(meta.created_ms) <= age
                    }
                    Self::Leaves => !parents.contains(&meta.id),
                    Self::Only(ids) => ids.contains(&meta.id),
                }
        };
        history.iter().enumerate().filter(keeps).map(|(_, meta)| meta.id).collect()
    }
}

/// Returns the caller's metadata of the newest input, fork or resumed run on the path to a checkpoint, or the
/// metadata that a prune retained of it. `all` is the history, newest first.
pub fn input_metadata(all: &[CheckpointMeta], at: CheckpointId) -> Map<String, Value> {
    let mut wanted = Some(at);
    for meta in all {
        if wanted != Some(meta.id) {
            continue;
        }
        if meta.has_run_metadata() || meta.parent_pruned {
            return meta.clone().shown().metadata;
        }
        wanted = meta.parent;
    }
    Map::new()
}

/// Returns the ids of inputs in the metadata of a checkpoint: of its own, and of deleted ones.
pub fn input_ids(metadata: &Map<String, Value>) -> impl Iterator<Item = &str> {
    metadata.get(own::INPUT).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Returns whether the metadata of a checkpoint has the id of an input.
pub fn has_input(metadata: &Map<String, Value>, id: &str) -> bool {
    input_ids(metadata).any(|known| known == id)
}

/// A prune for a [`Checkpointer`](crate::Checkpointer). `Thread::prune` makes it from a
/// [`Retention`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prune {
    /// The checkpoints to retain. The head is always one of them.
    pub keep: BTreeSet<CheckpointId>,
    /// Snapshots for checkpoints without one, by id. A checkpoint needs one if its parent is deleted.
    pub snapshots: BTreeMap<CheckpointId, Vec<ChannelValue>>,
    /// Checkpoints whose subgraphs remain, even if the checkpoints are deleted: an external update left their
    /// tasks to a retained checkpoint.
    pub callers: BTreeSet<CheckpointId>,
    /// New metadata of checkpoints, by id.
    pub metadata: BTreeMap<CheckpointId, Map<String, Value>>,
}
