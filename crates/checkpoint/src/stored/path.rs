//! The path from a checkpoint back to its nearest snapshot.
//!
//! Start at [`PathReader`].

use superstep_engine::NodeName;
use superstep_state::{Snapshot, StoredUpdate};

use super::{
    snapshot,
    thread::{StoredThread, named},
};
use crate::{AppliedTask, CheckpointError, CheckpointId, CheckpointMeta, Commit, Loaded, TaskRecord};

/// The part of a path that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The checkpoint without updates and snapshot.
    Tip,
    /// The checkpoint as it was committed.
    Commit,
    /// The checkpoint with those before it until a snapshot.
    Path,
}

/// The content of a checkpoint's row.
#[derive(Clone, Copy, Debug)]
pub struct ContentRow<'a> {
    pub id: CheckpointId,
    pub parent: Option<CheckpointId>,
    pub applied: &'a [u8],
    pub snapshot: Option<&'a [u8]>,
    /// The checksums of the whole row fit.
    pub is_intact: bool,
}

impl ContentRow<'_> {
    /// Creates a row that is not intact, so that its columns need not be read.
    pub fn damaged(id: CheckpointId) -> Self {
        Self { id, parent: None, applied: &[], snapshot: None, is_intact: false }
    }
}

/// Collects the rows of a path, newest first.
///
/// # Shape
/// The caller [pushes](Self::push) the row of the checkpoint [`next`](Self::next) as long as there is one,
/// [fills in](Self::fill) the updates that are in records, and converts the path with [`into_loaded`](Self::into_loaded)
/// or [`into_commit`](Self::into_commit).
pub struct PathReader<'a> {
    thread: StoredThread<'a>,
    meta: CheckpointMeta,
    depth: Depth,
    next: Option<CheckpointId>,
    applied: Vec<(u32, NodeName)>,
    snapshot: Option<Snapshot>,
    /// The updates of each checkpoint, newest first.
    commits: Vec<Vec<StoredUpdate>>,
    recorded: Vec<Recorded>,
}

/// An update that is in a record of the parent: its place in the path.
struct Recorded {
    id: CheckpointId,
    parent: Option<CheckpointId>,
    slot: u32,
    commit: usize,
    nth: usize,
}

impl<'a> PathReader<'a> {
    /// Begins the path from a checkpoint.
    pub fn new(thread: StoredThread<'a>, meta: CheckpointMeta, depth: Depth) -> Self {
        let next = Some(meta.id);
        let (applied, snapshot, commits, recorded) = (Vec::new(), None, Vec::new(), Vec::new());
        Self { thread, meta, depth, next, applied, snapshot, commits, recorded }
    }

    /// Returns the checkpoint whose row is read next; `None` at the end.
    pub fn next(&self) -> Option<CheckpointId> {
        self.next
    }

    /// Adds the row of the [next](Self::next) checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError::Corrupt`] if the row is damaged.
    pub fn push(&mut self, row: &ContentRow<'_>) -> Result<(), CheckpointError> {
        let ContentRow { id, parent, .. } = *row;
        if !row.is_intact {
            return Err(self.thread.changed(id, "its row"));
        }
        let applied = self.thread.applied(id, row.applied)?;
        if parent.is_some_and(|parent| parent >= id) {
            return Err(self.thread.damaged(id, "parent", "it is not older"));
        }
        if id == self.meta.id {
            self.applied = named(&applied);
        }
        self.next = None;
        if self.depth == Depth::Tip {
            return Ok(());
        }
        let channels = row.snapshot.map(snapshot).transpose();
        let channels = channels.map_err(|cause| self.thread.damaged(id, "snapshot", cause))?;
        self.snapshot = channels.map(Snapshot::from);
        if self.depth == Depth::Path {
            if self.snapshot.is_some() {
                return Ok(());
            }
            self.next = parent;
        }
        let commit = self.commits.len();
        let mut updates = Vec::with_capacity(applied.len());
        for (nth, task) in applied.into_iter().enumerate() {
            updates.push(task.update.map_or_else(StoredUpdate::empty, Into::into));
            if task.update.is_none() {
                self.recorded.push(Recorded { id, parent, slot: task.slot, commit, nth });
            }
        }
        self.commits.push(updates);
        Ok(())
    }

    /// Returns the tasks whose records have updates of the path, as checkpoint and slot.
    pub fn recorded(&self) -> impl Iterator<Item = (CheckpointId, u32)> {
        // With a pruned parent, its records are gone.
        let is_pruned = self.depth == Depth::Commit && self.meta.parent_pruned;
        let recorded = self.recorded.iter().filter(move |_| !is_pruned);
        recorded.filter_map(|recorded| Some((recorded.parent?, recorded.slot)))
    }

    /// Adds the updates of [recorded](Self::recorded) tasks.
    ///
    /// # Errors
    /// [`CheckpointError::Corrupt`] if `find` has no finished record of a task, and the errors of `find`.
    pub fn fill<E: From<CheckpointError>>(
        &mut self,
        mut find: impl FnMut(CheckpointId, u32) -> Result<Option<TaskRecord>, E>,
    ) -> Result<(), E> {
        if self.depth == Depth::Commit && self.meta.parent_pruned {
            return Ok(());
        }
        for &Recorded { id, parent, slot, commit, nth } in &self.recorded {
            let record = parent.map(|parent| find(parent, slot)).transpose()?.flatten();
            let Some(TaskRecord::Finished { update, .. }) = record else {
                let part = format!("the record of task {slot} it applied");
                return Err(self.thread.missing(id, &part).into());
            };
            self.commits[commit][nth] = update;
        }
        Ok(())
    }

    /// Completes the load of the checkpoint with the records of its tasks.
    ///
    /// # Errors
    /// [`CheckpointError::Corrupt`] if the path has no end.
    pub fn into_loaded(
        mut self,
        head: CheckpointId,
        tasks: Vec<(u32, TaskRecord)>,
    ) -> Result<Loaded, CheckpointError> {
        self.check_end()?;
        self.commits.reverse();
        let Self { meta, applied, snapshot, commits, .. } = self;
        Ok(Loaded { meta, head, applied, snapshot, commits, tasks, fingerprints: None })
    }

    /// Completes the commit of the checkpoint with the records of its tasks.
    ///
    /// # Errors
    /// [`CheckpointError::Corrupt`] if the checkpoint has no row.
    pub fn into_commit(mut self, records: Vec<(u32, TaskRecord)>) -> Result<Commit, CheckpointError> {
        self.check_end()?;
        let updates = self.commits.pop().unwrap_or_default();
        let tasks = self.applied.into_iter().zip(updates);
        let task = |((slot, node), update)| AppliedTask { slot, recorded: false, node, update };
        let mut applied: Vec<AppliedTask> = tasks.map(task).collect();
        for recorded in &self.recorded {
            applied[recorded.nth].recorded = true;
        }
        let CheckpointMeta { parent, source, control, created_ms, metadata, .. } = self.meta;
        let (metadata, snapshot, fingerprints) = (metadata.into(), self.snapshot, None);
        Ok(Commit { parent, source, control, created_ms, metadata, applied, snapshot, records, fingerprints })
    }

    fn check_end(&self) -> Result<(), CheckpointError> {
        let id = self.meta.id;
        match self.next {
            None => Ok(()),
            Some(next) if next == id => Err(self.thread.missing(id, "its row")),
            Some(next) => Err(self.thread.missing(id, &format!("its ancestor {next}"))),
        }
    }
}
