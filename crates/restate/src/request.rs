//! The requests of a checkpointer as data, and their replies. Stable format: a journal has requests of earlier versions.
//!
//! Start at [`Request`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};
use superstep_checkpoint::{
    CheckpointError, CheckpointId, CheckpointMeta, Commit, History, Loaded, Prune, Source, ThreadId,
    internal::stored::{NewCheckpoint, NewRecord, NewRecords, snapshot_text},
};

/// The largest request in bytes, below the limit of a message of Restate, 32 MiB.
pub(crate) const MAX_REQUEST_BYTES: usize = 30 << 20;

/// A request of a checkpointer about one thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Commit {
        thread: ThreadId,
        expected: Option<CheckpointId>,
        commits: Vec<NewCommit>,
        /// A new thread is compared with the object beside, which earlier versions did not do.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        looks_beside: bool,
    },
    Record {
        thread: ThreadId,
        checkpoint: CheckpointId,
        records: Vec<(u32, Box<RawValue>)>,
    },
    Effects {
        thread: ThreadId,
        checkpoint: CheckpointId,
        slot: u32,
        record: Box<RawValue>,
    },
    Prune {
        thread: ThreadId,
        head: CheckpointId,
        prune: NewPrune,
    },
    Delete {
        thread: ThreadId,
    },
    Load {
        thread: ThreadId,
        at: Option<CheckpointId>,
    },
    ReadCommit {
        thread: ThreadId,
        at: CheckpointId,
    },
    History {
        thread: ThreadId,
        range: Range,
    },
    Count {
        thread: ThreadId,
    },
    HasInput {
        thread: ThreadId,
        id: String,
    },
    Children {
        thread: ThreadId,
    },
    /// Only in journals of versions whose nonces were the numbers of deletions.
    Nonce {
        thread: ThreadId,
    },
}

/// A new checkpoint with the texts of its parts, which are those of the columns of databases.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NewCommit {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<CheckpointId>,
    pub(crate) source: Source,
    pub(crate) created_ms: i64,
    pub(crate) control: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<Box<RawValue>>,
    pub(crate) applied: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<Box<RawValue>>,
    /// The slots of the applied tasks with records under the parent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) recorded: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) records: Vec<(u32, Box<RawValue>)>,
}

/// A [`Prune`] with the texts of its snapshots.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NewPrune {
    pub(crate) keep: BTreeSet<CheckpointId>,
    pub(crate) snapshots: BTreeMap<CheckpointId, Box<RawValue>>,
    pub(crate) callers: BTreeSet<CheckpointId>,
    pub(crate) metadata: BTreeMap<CheckpointId, Map<String, Value>>,
}

/// A [`History`] as data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Range {
    limit: Option<usize>,
    before: Option<CheckpointId>,
    source: Option<Source>,
    step: Option<i64>,
    next: Option<String>,
    metadata: Map<String, Value>,
}

/// The reply to a request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Stored.
    Done,
    Id(CheckpointId),
    Is(bool),
    Count(usize),
    Loaded(Option<Box<Loaded>>),
    Commit(Option<Box<Commit>>),
    History(Vec<CheckpointMeta>),
    Threads(Vec<ThreadId>),
}

impl Request {
    pub(crate) fn commit(
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: &[Commit],
    ) -> Result<Self, CheckpointError> {
        let new = |commit| Ok(NewCommit::of(NewCheckpoint::new(thread.clone(), expected, commit)?));
        let commits = next.iter().map(new).collect::<Result<_, CheckpointError>>()?;
        let looks_beside = expected.is_none() && !thread.is_child();
        Ok(Self::Commit { thread: thread.clone(), expected, commits, looks_beside })
    }

    pub(crate) fn record(new: NewRecords) -> Self {
        let NewRecords { thread, checkpoint, texts } = new;
        let records = texts.into_iter().map(|(slot, text)| (slot, raw(text))).collect();
        Self::Record { thread, checkpoint, records }
    }

    pub(crate) fn effects(new: NewRecord) -> Self {
        let NewRecord { task, text } = new;
        Self::Effects { thread: task.thread, checkpoint: task.checkpoint, slot: task.slot, record: raw(text) }
    }

    pub(crate) fn prune(
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> Result<Self, CheckpointError> {
        let Prune { keep, snapshots, callers, metadata } = prune;
        let snapshot = |(id, channels): (_, Vec<_>)| Ok((id, raw(snapshot_text(thread, &channels)?)));
        let snapshots = snapshots.into_iter().map(snapshot).collect::<Result<_, CheckpointError>>()?;
        let prune = NewPrune { keep, snapshots, callers, metadata };
        Ok(Self::Prune { thread: thread.clone(), head, prune })
    }

    /// Returns the thread that it is about.
    pub(crate) fn thread(&self) -> &ThreadId {
        match self {
            Self::Commit { thread, .. }
            | Self::Record { thread, .. }
            | Self::Effects { thread, .. }
            | Self::Prune { thread, .. }
            | Self::Delete { thread }
            | Self::Load { thread, .. }
            | Self::ReadCommit { thread, .. }
            | Self::History { thread, .. }
            | Self::Count { thread }
            | Self::HasInput { thread, .. }
            | Self::Children { thread }
            | Self::Nonce { thread } => thread,
        }
    }

    /// Returns whether it changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        !matches!(
            self,
            Self::Commit { .. }
                | Self::Record { .. }
                | Self::Effects { .. }
                | Self::Prune { .. }
                | Self::Delete { .. }
        )
    }

    /// Encodes it for a journal.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if it is larger than [`MAX_REQUEST_BYTES`].
    pub(crate) fn encode(&self) -> Result<Vec<u8>, CheckpointError> {
        let text = serde_json::to_vec(self).expect("requests have text keys only");
        if text.len() <= MAX_REQUEST_BYTES {
            return Ok(text);
        }
        let what = format!(
            "a write of thread `{}` has {} MiB, and Restate stores at most {} MiB at once; store less in the state, such as \
             the name of a file",
            self.thread(),
            text.len() >> 20,
            MAX_REQUEST_BYTES >> 20
        );
        Err(CheckpointError::Storage { what, source: None })
    }
}

impl NewCommit {
    fn of(new: NewCheckpoint) -> Self {
        let NewCheckpoint { parent, source, created_ms, control, metadata, applied, snapshot, .. } = new;
        Self {
            parent,
            source,
            created_ms,
            control: raw(control),
            metadata: metadata.map(raw),
            applied: raw(applied),
            snapshot: snapshot.map(raw),
            recorded: new.recorded,
            records: new.records.into_iter().map(|(slot, text)| (slot, raw(text))).collect(),
        }
    }
}

impl From<History> for Range {
    fn from(history: History) -> Self {
        let History { limit, before, source, step, next, metadata } = history;
        Self { limit, before, source, step, next: next.map(|node| node.as_str().to_owned()), metadata }
    }
}

impl From<Range> for History {
    fn from(range: Range) -> Self {
        let Range { limit, before, source, step, next, metadata } = range;
        Self { limit, before, source, step, next: next.map(|node| node.as_str().into()), metadata }
    }
}

fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("what is stored was checked to be JSON")
}
