//! One thread in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use superstep_state::{RawJson, Snapshot};

use crate::{
    AppliedTask, CheckpointError, CheckpointId, CheckpointMeta, Commit, HeadState, History, Loaded, Prune,
    Source, TaskKey, TaskRecord, ThreadId, history::has_input,
};

/// The checkpoints of a thread by id. Ids count up from 1 without gaps, unless checkpoints were pruned.
#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    checkpoints: Vec<Stored>,
    /// The state of the head, until the next commit.
    head_state: Option<HeadState>,
}

/// A checkpoint and the records of its tasks.
#[derive(Clone, Debug)]
struct Stored {
    id: CheckpointId,
    commit: Arc<Commit>,
    /// The records by slot. They grow while the checkpoint is the head.
    records: Vec<(u32, TaskRecord)>,
    /// The newest checkpoint of a superstep that folded its tasks.
    applied_by: Option<CheckpointId>,
}

impl Thread {
    pub(super) fn record(&mut self, task: &TaskKey, record: TaskRecord) -> Result<(), CheckpointError> {
        if self.head() != Some(task.checkpoint) {
            return Err(CheckpointError::conflict(&task.thread, Some(task.checkpoint)));
        }
        let head = self.checkpoints.last_mut().expect("a thread with a head has a checkpoint");
        put(&mut head.records, task.slot, record);
        Ok(())
    }

    pub(super) fn add_effects(
        &mut self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> Result<bool, CheckpointError> {
        let head = self.checkpoints.last_mut().filter(|head| head.id == task.checkpoint);
        let head = head.ok_or_else(|| CheckpointError::conflict(&task.thread, Some(task.checkpoint)))?;
        let found = head.records.binary_search_by_key(&task.slot, |(slot, _)| *slot);
        let once = found.ok().and_then(|at| head.records[at].1.once_mut());
        Ok(once.map(|once| once.extend(results)).is_some())
    }

    pub(super) fn head(&self) -> Option<CheckpointId> {
        self.checkpoints.last().map(|head| head.id)
    }

    pub(super) fn remember(&mut self, head: CheckpointId, state: HeadState) {
        if self.head() == Some(head) {
            self.head_state = Some(state);
        }
    }

    /// Returns the state of the head, if it is remembered.
    pub(super) fn head_state(&self) -> Option<HeadState> {
        self.head_state.clone()
    }

    /// Returns the number of checkpoints.
    pub(super) fn count(&self) -> usize {
        self.checkpoints.len()
    }

    /// Returns whether a checkpoint has the id of an input.
    pub(super) fn has_input(&self, id: &str) -> bool {
        self.checkpoints.iter().any(|stored| has_input(&stored.commit.metadata, id))
    }

    /// Returns the checkpoints there are.
    pub(super) fn ids(&self) -> BTreeSet<CheckpointId> {
        self.checkpoints.iter().map(|stored| stored.id).collect()
    }

    fn position(&self, id: CheckpointId) -> Option<usize> {
        let direct = usize::try_from(id.0).ok()?.checked_sub(1)?;
        if self.checkpoints.get(direct).is_some_and(|stored| stored.id == id) {
            return Some(direct);
        }
        self.checkpoints.binary_search_by_key(&id, |stored| stored.id).ok()
    }

    fn get(&self, id: CheckpointId) -> Option<&Stored> {
        self.checkpoints.get(self.position(id)?)
    }

    /// Returns a checkpoint as it was committed, with the records of its tasks so far.
    pub(super) fn commit(&self, id: CheckpointId) -> Option<Commit> {
        let stored = self.get(id)?;
        Some(Commit { records: stored.records.clone(), ..(*stored.commit).clone() })
    }

    pub(super) fn push(
        &mut self,
        thread: &ThreadId,
        mut next: Arc<Commit>,
    ) -> Result<CheckpointId, CheckpointError> {
        let id = CheckpointId(self.head().map_or(1, |head| head.0 + 1));
        let parent = next
            .parent
            .map(|parent| self.position(parent).ok_or_else(|| CheckpointError::no_parent(thread, parent)));
        let parent = parent.transpose()?;
        let records = parent.map(|parent| &self.checkpoints[parent].records);
        let is_recorded = |task: &AppliedTask| records.is_some_and(|records| is_finished(records, task.slot));
        if let Some(missing) = next.applied.iter().find(|task| task.recorded && !is_recorded(task)) {
            return Err(CheckpointError::not_recorded(thread, next.parent, missing.slot));
        }
        let mut records = Vec::with_capacity(next.records.len());
        if !next.records.is_empty() {
            for (slot, record) in std::mem::take(&mut Arc::make_mut(&mut next).records) {
                put(&mut records, slot, record);
            }
        }
        if let (Source::Loop, Some(parent)) = (next.source, parent) {
            self.checkpoints[parent].applied_by = Some(id);
        }
        self.head_state = None;
        self.checkpoints.push(Stored { id, commit: next, records, applied_by: None });
        Ok(id)
    }

    pub(super) fn push_all(&mut self, thread: &ThreadId, next: Vec<Commit>) -> Result<(), CheckpointError> {
        let before = self.checkpoints.len();
        let applied_by: Vec<_> = next
            .iter()
            .filter_map(|next| self.position(next.parent?))
            .map(|parent| (parent, self.checkpoints[parent].applied_by))
            .collect();
        for next in next {
            if let Err(error) = self.push(thread, Arc::new(next)) {
                self.checkpoints.truncate(before);
                for (parent, applied_by) in applied_by {
                    self.checkpoints[parent].applied_by = applied_by;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn prune(
        &mut self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> Result<usize, CheckpointError> {
        let Prune { mut keep, mut snapshots, mut metadata, .. } = prune;
        keep.insert(head);
        for id in &keep {
            let stored = self.get(*id).ok_or_else(|| CheckpointError::unknown_retained(thread, *id))?;
            let has_path = stored.commit.parent.is_none_or(|parent| keep.contains(&parent));
            if !has_path && stored.commit.snapshot.is_none() && !snapshots.contains_key(id) {
                return Err(CheckpointError::unreachable_retained(thread, *id));
            }
        }
        let mut kept: Vec<Stored> =
            self.checkpoints.iter().filter(|stored| keep.contains(&stored.id)).cloned().collect();
        for stored in &mut kept {
            if let Some(gone) = stored.applied_by.filter(|child| !keep.contains(child)) {
                add_applied(&mut stored.records, self.get(gone).map(|child| &*child.commit));
                let follows = |child: &&Stored| {
                    child.commit.source == Source::Loop
                        && child.commit.parent == Some(stored.id)
                        && keep.contains(&child.id)
                };
                stored.applied_by = self.checkpoints.iter().rev().find(follows).map(|child| child.id);
            }
            if let (None, Some(snapshot)) = (&stored.commit.snapshot, snapshots.remove(&stored.id)) {
                Arc::make_mut(&mut stored.commit).snapshot = Some(snapshot.into());
            }
            if let Some(metadata) = metadata.remove(&stored.id) {
                Arc::make_mut(&mut stored.commit).metadata = metadata.into();
            }
        }
        // Snapshots are due elsewhere afterwards.
        self.head_state = None;
        let before = std::mem::replace(&mut self.checkpoints, kept).len();
        Ok(before - self.checkpoints.len())
    }

    pub(super) fn meta(&self, id: CheckpointId) -> Option<CheckpointMeta> {
        let commit = &self.get(id)?.commit;
        Some(CheckpointMeta {
            id,
            parent: commit.parent,
            parent_pruned: commit.parent.is_some_and(|parent| self.position(parent).is_none()),
            source: commit.source,
            control: commit.control.clone(),
            created_ms: commit.created_ms,
            metadata: (*commit.metadata).clone(),
        })
    }

    pub(super) fn history(&self, range: &History) -> Vec<CheckpointMeta> {
        let end = range.before.map_or(self.checkpoints.len(), |before| {
            self.checkpoints.partition_point(|stored| stored.id < before)
        });
        let metas = self.checkpoints[..end].iter().rev().filter_map(|stored| self.meta(stored.id));
        metas.filter(|meta| range.has(meta)).take(range.limit.unwrap_or(usize::MAX)).collect()
    }

    /// Returns the parts of a load of the head without the path to its state.
    pub(super) fn tip(&self) -> Option<CheckpointPath> {
        let head = self.checkpoints.last()?;
        let (commits, records) = (vec![head.commit.clone()], head.records.clone());
        Some(CheckpointPath {
            meta: self.meta(head.id)?,
            head: head.id,
            commits,
            records,
            applied: None,
            folds: false,
        })
    }

    /// Returns the parts of a load without their values, which are copied after the lock on the thread is
    /// released.
    pub(super) fn path(&self, at: Option<CheckpointId>) -> Option<CheckpointPath> {
        let head = self.head()?;
        let id = at.unwrap_or(head);
        let meta = self.meta(id)?;
        let stored = self.get(id)?;
        let mut commits = Vec::new();
        let mut next = Some(id);
        while let Some(step) = next.and_then(|id| self.get(id)) {
            commits.push(step.commit.clone());
            next = if step.commit.snapshot.is_some() { None } else { step.commit.parent };
        }
        let applied = stored.applied_by.and_then(|child| self.get(child)).map(|child| child.commit.clone());
        Some(CheckpointPath { meta, head, commits, records: stored.records.clone(), applied, folds: true })
    }
}

/// The path from a checkpoint back to its nearest snapshot.
pub(super) struct CheckpointPath {
    meta: CheckpointMeta,
    head: CheckpointId,
    /// The commits, newest first; the last one has the snapshot, if there is any.
    commits: Vec<Arc<Commit>>,
    records: Vec<(u32, TaskRecord)>,
    /// The superstep that folded the checkpoint's own tasks.
    applied: Option<Arc<Commit>>,
    /// `false` if the state is remembered, so that no commit is folded.
    folds: bool,
}

impl CheckpointPath {
    pub(super) fn read(self) -> Loaded {
        let folded = if self.folds { &*self.commits } else { &[] };
        let snapshot: Option<Snapshot> = folded.last().and_then(|oldest| oldest.snapshot.clone());
        let commits = folded
            .iter()
            .rev()
            .skip(usize::from(snapshot.is_some()))
            .map(|commit| commit.applied.iter().map(|task| task.update.clone()).collect())
            .collect();
        let mut tasks = self.records;
        add_applied(&mut tasks, self.applied.as_deref());
        let named = |task: &AppliedTask| (task.slot, task.node.clone());
        let applied = self.commits.first().map_or_else(Vec::new, |it| it.applied.iter().map(named).collect());
        let fingerprints = self.commits.first().and_then(|commit| commit.fingerprints.clone());
        Loaded { meta: self.meta, head: self.head, applied, snapshot, commits, tasks, fingerprints }
    }
}

/// Adds tasks without records that a superstep folded.
fn add_applied(tasks: &mut Vec<(u32, TaskRecord)>, superstep: Option<&Commit>) {
    for task in superstep.iter().flat_map(|commit| &commit.applied) {
        if !is_finished(tasks, task.slot) {
            let update = task.update.clone();
            put(tasks, task.slot, TaskRecord::Finished { update, targets: Vec::new(), failure: None });
        }
    }
}

fn put(records: &mut Vec<(u32, TaskRecord)>, slot: u32, record: TaskRecord) {
    match records.binary_search_by_key(&slot, |(slot, _)| *slot) {
        Ok(at) => records[at].1 = record,
        Err(at) => records.insert(at, (slot, record)),
    }
}

fn is_finished(records: &[(u32, TaskRecord)], slot: u32) -> bool {
    let found = records.binary_search_by_key(&slot, |(slot, _)| *slot);
    found.is_ok_and(|at| matches!(records[at].1, TaskRecord::Finished { .. }))
}
