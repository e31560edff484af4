//! A run's hold on its thread.

use std::{error::Error, sync::Arc};

use serde_json::{Map, Value};
use superstep_engine::Control;

use crate::{
    AppliedTask, ChannelValue, CheckpointId, CheckpointMeta, Checkpointer, Clock, Commit, Lease, RunError,
    Source, TaskKey, TaskRecord, ThreadId, evolve::Kept, load::SinceSnapshot,
};

/// The thread that a run writes: it alone, as long as it lives.
pub(crate) struct Hold {
    checkpointer: Arc<dyn Checkpointer>,
    thread: ThreadId,
    /// `None` for a graph that another one called: the lease of the thread's root is its caller's.
    _lease: Option<Lease>,
    clock: Arc<dyn Clock>,
    /// The newest checkpoint of the thread.
    head: Option<CheckpointId>,
    /// The checkpoint that the run stands at, and when it was made; another one than the head only before the run's
    /// first commit.
    at: Option<(CheckpointId, i64)>,
    since_snapshot: SinceSnapshot,
    /// See [`RunConfig::snapshot_every`](crate::RunConfig::snapshot_every).
    pub(crate) snapshot_every: Option<usize>,
    kept: Kept,
}

/// What a commit is about.
pub(crate) struct NewCheckpoint {
    pub(crate) source: Source,
    pub(crate) control: Control,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) applied: Vec<AppliedTask>,
    pub(crate) records: Vec<(u32, TaskRecord)>,
}

impl Hold {
    pub(crate) fn new(
        checkpointer: Arc<dyn Checkpointer>,
        thread: ThreadId,
        lease: Option<Lease>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (since_snapshot, kept) = (SinceSnapshot::default(), Kept::default());
        Self {
            checkpointer,
            thread,
            _lease: lease,
            clock,
            head: None,
            at: None,
            since_snapshot,
            snapshot_every: None,
            kept,
        }
    }

    /// The checkpoint that the run stands at.
    pub(crate) fn at(&self) -> Option<CheckpointId> {
        self.at.map(|(id, _)| id)
    }

    /// The error for a part of that checkpoint which is not what this program stored.
    pub(crate) fn unreadable(&self, what: String, source: Box<dyn Error + Send + Sync>) -> RunError {
        let checkpoint = self.at().unwrap_or(CheckpointId(0));
        RunError::Decode { thread: self.thread.clone(), checkpoint, what, source }
    }

    /// The same, and when it was made.
    pub(crate) fn place(&self) -> Option<(CheckpointId, i64)> {
        self.at
    }

    pub(crate) fn stand_at(
        &mut self,
        head: CheckpointId,
        at: &CheckpointMeta,
        since_snapshot: SinceSnapshot,
        kept: Kept,
    ) {
        (self.head, self.at) = (Some(head), Some((at.id, at.created_ms)));
        (self.since_snapshot, self.kept) = (since_snapshot, kept);
    }

    /// Adds a checkpoint. `snapshot` makes the full state, and is asked if one is due. Returns what is known of the
    /// checkpoint if `describe`.
    pub(crate) async fn commit(
        &mut self,
        new: NewCheckpoint,
        snapshot: Option<impl FnOnce() -> Result<Vec<ChannelValue>, RunError>>,
        describe: bool,
    ) -> Result<Option<CheckpointMeta>, RunError> {
        let NewCheckpoint { source, control, metadata, applied, records } = new;
        let (parent, created_ms) = (self.at(), self.clock.now_ms());
        self.since_snapshot.count(!applied.is_empty(), applied.iter().map(|task| task.update.len()).sum());
        self.kept.commit(source, &applied, &records);
        let snapshot = snapshot
            .filter(|_| self.since_snapshot.is_due(self.snapshot_every))
            .map(|make| make())
            .transpose()?;
        let snapshot =
            snapshot.map(|channels| channels.into_iter().chain(self.kept.entry()).collect::<Vec<_>>());
        let since_snapshot = snapshot.as_deref().map_or(self.since_snapshot, SinceSnapshot::taken);
        let describe = describe.then(|| (control.clone(), metadata.clone()));
        let commit = Commit { parent, source, control, created_ms, metadata, applied, snapshot, records };
        let id = self.checkpointer.commit(&self.thread, self.head, commit).await?;
        (self.head, self.at, self.since_snapshot) = (Some(id), Some((id, created_ms)), since_snapshot);
        Ok(describe.map(|(control, metadata)| CheckpointMeta {
            id,
            parent,
            parent_pruned: false,
            source,
            control,
            created_ms,
            metadata,
        }))
    }

    /// Stores how a task of the present checkpoint ended.
    pub(crate) async fn record(&self, slot: u32, record: TaskRecord) -> Result<(), RunError> {
        let checkpoint = self.at().expect("tasks run only after the input is committed");
        let key = TaskKey { thread: self.thread.clone(), checkpoint, slot };
        Ok(self.checkpointer.record(&key, record).await?)
    }
}
