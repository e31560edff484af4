//! A run's exclusive writer of its thread.

use std::{
    collections::BTreeMap,
    error::Error,
    future::poll_fn,
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use serde_json::{Map, Value};
use superstep_checkpoint::{
    CheckpointMeta, Clock, Commit, HeadState, Lease, Source, TaskKey, TaskRecord,
    internal::own::{self, MEMORIES},
};
use superstep_engine::Control;
use superstep_state::{ChannelValue, RawJson, Snapshot, internal::UnknownChannels};

use crate::{
    CheckpointId, Checkpointer, Durability, RunError, RunOptions, State, ThreadId,
    compiled::{graph::Inner, owner::Mark},
    node::before_write::{BeforeWrite, PendingWrite},
    run::{
        durability::{Queue, UnstoredSuperstep, UnstoredSupersteps, Write, Writes, store_records},
        since_snapshot::SinceSnapshot,
    },
};

/// The exclusive writer of a thread, for the lifetime of a run.
pub(crate) struct ThreadWriter {
    checkpointer: Arc<dyn Checkpointer>,
    thread: ThreadId,
    /// `None` for a nested run and for a replay: the lease of the root's thread belongs to the caller.
    lease: Option<Lease>,
    clock: Arc<dyn Clock>,
    /// The destination of writes; the checkpointer until [`ThreadWriter::begin`].
    writes: Writes,
    /// The newest checkpoint of the thread, including queued writes.
    head: Option<CheckpointId>,
    /// The run's current checkpoint and its time. It differs from the head before the run's first commit, and
    /// is the one after it while supersteps are delayed.
    at: Option<(CheckpointId, i64)>,
    /// The number of tasks of that checkpoint.
    width: u32,
    since_snapshot: SinceSnapshot,
    /// See [`Thread::snapshot_every`](crate::Thread::snapshot_every).
    snapshot_every: Option<usize>,
    unknown: UnknownChannels,
    /// The ownership mark of the thread.
    mark: Mark,
    /// The metadata of a commit that has only the mark.
    marked: Arc<Map<String, Value>>,
    /// The caller's metadata of a resumed run, for its first checkpoint.
    resumed: Map<String, Value>,
    /// See [`Checkpointer::keeps_values`].
    keeps_values: bool,
    before_write: Option<Arc<BeforeWrite>>,
}

/// A state that makes a snapshot if one is due.
pub(crate) trait SnapshotSource: Sync {
    /// Returns whether the snapshot has at most about `most` bytes, if that can be known without one.
    fn fits(&self, most: usize) -> Option<bool>;

    /// Returns a snapshot in its typed form.
    ///
    /// # Errors
    /// [`RunError::EncodeChannel`].
    fn typed(&self) -> Result<Snapshot, RunError>;

    /// Returns the value of every channel as JSON.
    ///
    /// # Errors
    /// [`RunError::EncodeChannel`].
    fn encoded(&self) -> Result<Vec<ChannelValue>, RunError>;
}

impl ThreadWriter {
    /// Creates a writer; without a `lease` if the caller has it, or nothing is written.
    pub(crate) fn new<S: State>(
        graph: &Inner<S>,
        checkpointer: Arc<dyn Checkpointer>,
        thread: ThreadId,
        lease: Option<Lease>,
        config: &RunOptions,
    ) -> Self {
        let (clock, mark) = (config.clock.clone(), graph.mark(None));
        let (since_snapshot, unknown) = (SinceSnapshot::default(), UnknownChannels::default());
        let keeps_values = checkpointer.keeps_values();
        Self {
            checkpointer,
            thread,
            lease,
            clock,
            writes: Writes::Now,
            head: None,
            at: None,
            width: 0,
            since_snapshot,
            snapshot_every: config.snapshot_every,
            unknown,
            marked: mark.metadata(),
            resumed: Map::new(),
            mark,
            keeps_values,
            before_write: config.before_write.clone(),
        }
    }

    /// Returns whether updates and snapshots are stored in their typed form.
    pub(crate) fn keeps_values(&self) -> bool {
        self.keeps_values
    }

    /// Begins the run of nodes.
    pub(crate) fn begin(&mut self, durability: Durability) {
        self.writes = match durability {
            Durability::Sync => Writes::Now,
            Durability::Async => Writes::Queued(Queue::default()),
            Durability::Exit => Writes::AtExit(UnstoredSupersteps::default()),
        };
    }

    /// Returns whether supersteps are stored at the end only.
    pub(crate) fn holds(&self) -> bool {
        matches!(self.writes, Writes::AtExit(_))
    }

    /// Returns whether it writes to the thread of an outermost run.
    pub(crate) fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// Starts a new thread.
    pub(crate) async fn begin_thread(&mut self) -> Result<(), RunError> {
        let nonce = self.checkpointer.nonce(&self.thread).await?;
        self.set_nonce(nonce);
        Ok(())
    }

    /// Returns the nonce that distinguishes the thread from deleted threads of its name.
    pub(crate) fn nonce(&self) -> Option<&str> {
        self.mark.nonce.as_deref()
    }

    /// Returns the run's current checkpoint.
    pub(crate) fn at(&self) -> Option<CheckpointId> {
        self.at.map(|(id, _)| id)
    }

    /// Creates the error of a part of that checkpoint that this program did not store.
    pub(crate) fn unreadable(&self, what: String, source: Box<dyn Error + Send + Sync>) -> RunError {
        let checkpoint = self.at().unwrap_or(CheckpointId(0));
        RunError::Decode { thread: self.thread.clone(), checkpoint, what, source }
    }

    /// Returns the run's current checkpoint and its time.
    pub(crate) fn current_checkpoint(&self) -> Option<(CheckpointId, i64)> {
        self.at
    }

    pub(crate) fn set_current(
        &mut self,
        head: CheckpointId,
        at: &CheckpointMeta,
        since_snapshot: SinceSnapshot,
        unknown: UnknownChannels,
    ) {
        (self.head, self.at) = (Some(head), Some((at.id, at.created_ms)));
        self.width = width(&at.control);
        (self.since_snapshot, self.unknown) = (since_snapshot, unknown);
        self.set_nonce(at.nonce().map(str::to_owned));
    }

    /// Resumes with this metadata of the caller.
    pub(crate) fn resume_with(&mut self, metadata: &Map<String, Value>) {
        let users = metadata.iter().filter(|(name, _)| !own::is_own(name));
        self.resumed = users.map(|(name, value)| (name.clone(), value.clone())).collect();
    }

    fn set_nonce(&mut self, nonce: Option<String>) {
        self.mark.nonce = nonce;
        self.marked = self.mark.metadata();
    }

    /// Starts before any checkpoint of an existing thread, on a new branch.
    pub(crate) fn branch_before(&mut self, head: CheckpointId) {
        self.head = Some(head);
    }

    /// Returns the thread, and where it is stored.
    pub(crate) fn stored_in(&self) -> (&Arc<dyn Checkpointer>, &ThreadId) {
        (&self.checkpointer, &self.thread)
    }

    /// Remembers the state of the head for the next run, if it can be known without the stored data; `state` makes it of the
    /// thread's nonce and the data since its last snapshot.
    pub(crate) fn remember(&self, state: impl FnOnce(Option<&str>, SinceSnapshot) -> Option<HeadState>) {
        let (Some(head), Some(_), true) = (self.head, &self.lease, self.unknown.is_empty()) else { return };
        if let Some(state) = state(self.nonce(), self.since_snapshot) {
            self.checkpointer.remember(&self.thread, head, state);
        }
    }

    /// Creates a commit that is made now, without updates and records. [`commit`](Self::commit) adds the rest. Boxed, because
    /// each layer of the storage moves it.
    pub(crate) fn new_commit(
        &self,
        source: Source,
        control: Control,
        mut metadata: Map<String, Value>,
    ) -> Box<Commit> {
        let metadata = if metadata.is_empty() {
            self.marked.clone()
        } else {
            self.mark.put(&mut metadata);
            metadata.into()
        };
        let (created_ms, applied, records) = (self.clock.now_ms(), Vec::new(), Vec::new());
        let (parent, snapshot, fingerprints) = (None, None, None);
        Box::new(Commit {
            parent,
            source,
            control,
            created_ms,
            metadata,
            applied,
            snapshot,
            records,
            fingerprints,
        })
    }

    /// Appends a checkpoint after the current one, with a snapshot if one is due. Returns the stored checkpoints, if they are to
    /// be described.
    pub(crate) async fn commit(
        &mut self,
        mut new: Box<Commit>,
        snapshot: Option<&dyn SnapshotSource>,
        describe: bool,
    ) -> Result<Vec<CheckpointMeta>, RunError> {
        let created_ms = new.created_ms;
        new.parent = self.at();
        // Before it is stored, tasks name their checkpoint by its future number: ids increase by one, and a
        // run with the lease knows the next one. With `Durability::Exit` all supersteps after the stored
        // checkpoint share one number; the superstep is a part of a task's key, so keys differ.
        let mut after = CheckpointId(self.head.map_or(0, |head| head.0) + 1);
        let tasks = width(&new.control);
        // A fork copies records of its parent.
        let carried = |task| new.source == Source::Fork && new.records.iter().any(|(slot, _)| *slot == task);
        self.unknown.commit(new.applied.iter().map(|task| task.slot), carried);
        if let Writes::AtExit(held) = &mut self.writes {
            let Commit { parent, control, metadata, applied, .. } = *new;
            // Other entries apply to that superstep only.
            let memories = metadata.get(MEMORIES).map(|memories| (MEMORIES.to_owned(), memories.clone()));
            let metadata = memories.into_iter().collect();
            held.put(UnstoredSuperstep { parent, width: self.width, control, created_ms, metadata, applied });
            (self.at, self.width) = (Some((after, created_ms)), tasks);
            return Ok(Vec::new());
        }
        let bytes = new.applied.iter().map(|task| task.update.bytes()).sum();
        self.since_snapshot.count(!new.applied.is_empty(), bytes);
        new.snapshot = match snapshot.filter(|_| self.is_due(after)) {
            Some(source) => self.snapshot(source)?,
            None => None,
        };
        let since_snapshot = new.snapshot.as_ref().map_or(self.since_snapshot, SinceSnapshot::taken);
        self.add_resumed(&mut new);
        let description = describe.then(|| described(after, &new));
        self.prepare(Some(after)).await?;
        let mut stored = Vec::new();
        match &mut self.writes {
            Writes::Queued(queue) => {
                let description = description.map(Box::new);
                queue.push(Write::Commit { expected: self.head, commit: new, description });
                while queue.is_full() {
                    stored.extend(poll_fn(|cx| queue.poll(&self.checkpointer, &self.thread, cx)).await?);
                }
            }
            _ => {
                after = self.checkpointer.commit(&self.thread, self.head, *new).await?;
                stored.extend(description);
            }
        }
        (self.head, self.at, self.since_snapshot) = (Some(after), Some((after, created_ms)), since_snapshot);
        self.width = tasks;
        Ok(stored)
    }

    /// Adds the caller's metadata of a resumed run to its first checkpoint.
    // Not a checkpoint of its own: that would have to take over the questions, answers and results of waiting tasks,
    // whose ids contain their checkpoint. Nothing was done with the new metadata before.
    fn add_resumed(&mut self, commit: &mut Commit) {
        if !self.resumed.is_empty() {
            Arc::make_mut(&mut commit.metadata).extend(mem::take(&mut self.resumed));
        }
    }

    /// Returns whether snapshots are typed.
    fn keeps_snapshots(&self) -> bool {
        self.keeps_values && self.unknown.is_empty()
    }

    /// Returns whether a snapshot is due with the commit that is about to become checkpoint `id`.
    fn is_due(&self, id: CheckpointId) -> bool {
        let since = &self.since_snapshot;
        match self.snapshot_every {
            Some(every) => since.has_folded(every),
            None if self.keeps_snapshots() => since.is_far(id),
            None => since.is_due(),
        }
    }

    /// Makes a due snapshot, unless it is not worth its size.
    fn snapshot(&self, source: &dyn SnapshotSource) -> Result<Option<Snapshot>, RunError> {
        let since = &self.since_snapshot;
        if self.snapshot_every.is_some() || self.keeps_snapshots() {
            return self.made(source).map(Some);
        }
        let fits = source.fits(since.worth());
        if fits == Some(false) {
            return Ok(None);
        }
        let snapshot = self.made(source)?;
        Ok((fits.is_some() || snapshot.bytes() <= since.worth()).then_some(snapshot))
    }

    fn made(&self, source: &dyn SnapshotSource) -> Result<Snapshot, RunError> {
        if self.keeps_snapshots() {
            return source.typed();
        }
        let channels = source.encoded()?.into_iter().chain(self.unknown.entry());
        Ok(channels.collect::<Vec<_>>().into())
    }

    /// Stores the ends of tasks of the current checkpoint. Returns the stored checkpoints, if they are to be
    /// described.
    pub(crate) async fn record(
        &mut self,
        records: Vec<(u32, TaskRecord)>,
    ) -> Result<Vec<CheckpointMeta>, RunError> {
        if !self.holds() {
            self.prepare(None).await?;
        }
        let mut stored = Vec::new();
        let checkpoint = self.at().expect("tasks run only after the input is committed");
        match &mut self.writes {
            Writes::Now => store_records(&*self.checkpointer, &self.thread, checkpoint, records).await?,
            Writes::Queued(queue) => {
                queue.push(Write::Records { checkpoint, records });
                while queue.is_full() {
                    stored.extend(poll_fn(|cx| queue.poll(&self.checkpointer, &self.thread, cx)).await?);
                }
            }
            Writes::AtExit(held) => held.records.extend(records),
        }
        Ok(stored)
    }

    /// Does the work before a write, which creates a checkpoint or not.
    async fn prepare(&self, checkpoint: Option<CheckpointId>) -> Result<(), RunError> {
        let Some(prepare) = &self.before_write else { return Ok(()) };
        Ok(prepare(PendingWrite { thread: self.thread.clone(), checkpoint }).await?)
    }

    /// Adds results of effects to the stored record of a task of the current checkpoint; `false` if that is not
    /// possible. All earlier writes must have been [flushed](Self::flush).
    pub(crate) async fn add_effects(
        &self,
        slot: u32,
        results: BTreeMap<String, RawJson>,
    ) -> Result<bool, RunError> {
        let checkpoint = self.at().expect("tasks run only after the input is committed");
        let key = TaskKey { thread: self.thread.clone(), checkpoint, slot };
        Ok(self.checkpointer.add_effects(&key, results).await?)
    }

    /// Syncs all stored data to the disk.
    pub(crate) async fn sync(&self) -> Result<(), RunError> {
        Ok(self.checkpointer.sync().await?)
    }

    /// Stores queued writes while the run continues: if the run is `idle`, or if many wait, since they share a
    /// transaction. Ready after each transaction, with the checkpoints whose events are to be emitted.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        idle: bool,
    ) -> Poll<Result<Vec<CheckpointMeta>, RunError>> {
        let Writes::Queued(queue) = &mut self.writes else { return Poll::Pending };
        if !idle && !queue.is_due() {
            return Poll::Pending;
        }
        queue.poll(&self.checkpointer, &self.thread, cx).map(|written| Ok(written?))
    }

    /// Stores all remaining data. `snapshot` makes the full state of the last delayed superstep. Returns the
    /// checkpoints whose events are to be emitted.
    pub(crate) async fn flush<T: SnapshotSource>(
        &mut self,
        snapshot: impl FnOnce(i64) -> T,
        describe: bool,
    ) -> Result<Vec<CheckpointMeta>, RunError> {
        let mut stored = Vec::new();
        let held = match &mut self.writes {
            Writes::Now => return Ok(stored),
            Writes::Queued(queue) => {
                while !queue.is_idle() {
                    stored.extend(poll_fn(|cx| queue.poll(&self.checkpointer, &self.thread, cx)).await?);
                }
                return Ok(stored);
            }
            Writes::AtExit(held) => mem::take(held),
        };
        let Some(UnstoredSuperstep { parent, control, created_ms, metadata, applied, .. }) = held.superstep
        else {
            let checkpoint = self.at().expect("tasks run only after the input is committed");
            let records = held.records.into_iter().collect();
            self.prepare(None).await?;
            store_records(&*self.checkpointer, &self.thread, checkpoint, records).await?;
            return Ok(stored);
        };
        let snapshot = snapshot(control.step);
        let snapshot = self.made(&snapshot)?;
        self.since_snapshot = SinceSnapshot::taken(&snapshot);
        let mut commit = self.new_commit(Source::Loop, control, metadata);
        (commit.parent, commit.created_ms, commit.snapshot) = (parent, created_ms, Some(snapshot));
        (commit.applied, commit.records) = (applied, held.records.into_iter().collect());
        self.add_resumed(&mut commit);
        let id = CheckpointId(self.head.map_or(0, |head| head.0) + 1);
        stored.extend(describe.then(|| described(id, &commit)));
        self.prepare(Some(id)).await?;
        self.checkpointer.commit(&self.thread, self.head, *commit).await?;
        self.head = Some(id);
        Ok(stored)
    }
}

/// Returns the metadata that a checkpoint will have.
fn described(id: CheckpointId, commit: &Commit) -> CheckpointMeta {
    let meta = CheckpointMeta {
        id,
        parent: commit.parent,
        parent_pruned: false,
        source: commit.source,
        control: commit.control.clone(),
        created_ms: commit.created_ms,
        metadata: (*commit.metadata).clone(),
    };
    meta.shown()
}

fn width(control: &Control) -> u32 {
    u32::try_from(control.next.len()).expect("slots are counted in 32 bits")
}
