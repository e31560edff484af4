//! The decisions of a prune.
//!
//! Start at [`PrunePlan`].

use std::collections::{BTreeMap, BTreeSet};

use crate::{CheckpointError, CheckpointId, Prune, ThreadId};

/// A checkpoint of the thread.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub parent: Option<CheckpointId>,
    pub is_loop: bool,
    pub has_snapshot: bool,
}

/// A prune of a thread whose checkpoints are known.
pub struct PrunePlan<'a> {
    pub prune: &'a Prune,
    pub known: BTreeMap<CheckpointId, Known>,
    /// The checkpoints to retain.
    pub keep: BTreeSet<CheckpointId>,
}

impl<'a> PrunePlan<'a> {
    /// Checks that the retained checkpoints exist and remain readable.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if they do not.
    pub fn new(
        thread: &ThreadId,
        head: CheckpointId,
        prune: &'a Prune,
        known: BTreeMap<CheckpointId, Known>,
    ) -> Result<Self, CheckpointError> {
        let mut keep = prune.keep.clone();
        keep.insert(head);
        for id in &keep {
            let found = known.get(id).ok_or_else(|| CheckpointError::unknown_retained(thread, *id))?;
            let has_path = found.parent.is_none_or(|parent| keep.contains(&parent));
            if !has_path && !found.has_snapshot && !prune.snapshots.contains_key(id) {
                return Err(CheckpointError::unreachable_retained(thread, *id));
            }
        }
        Ok(Self { prune, known, keep })
    }

    /// Returns whether a retained checkpoint gets a snapshot.
    pub fn adds_snapshot(&self, id: CheckpointId) -> bool {
        !self.known[&id].has_snapshot && self.prune.snapshots.contains_key(&id)
    }

    /// Returns whether a retained checkpoint loses its parent.
    pub fn is_orphan(&self, id: CheckpointId) -> bool {
        self.known[&id].parent.is_some_and(|parent| !self.keep.contains(&parent))
    }

    /// Returns the retained checkpoints whose newest superstep, which has the results of their tasks, is deleted.
    pub fn lost_results(&self) -> Vec<CheckpointId> {
        let mut seen = BTreeSet::new();
        let supersteps = self.known.iter().rev().filter(|(_, known)| known.is_loop);
        let newest = supersteps.filter_map(|(id, known)| {
            let parent = known.parent.filter(|parent| seen.insert(*parent))?;
            Some((*id, parent))
        });
        let lost = newest.filter(|(id, parent)| self.keep.contains(parent) && !self.keep.contains(id));
        lost.map(|(_, parent)| parent).collect()
    }

    /// Returns whether a thread below the pruned one is deleted: its caller is.
    pub fn deletes(&self, thread: &ThreadId, child: &ThreadId) -> bool {
        let is_deleted = |caller| !self.keep.contains(&caller) && !self.prune.callers.contains(&caller);
        child.caller_under(thread).is_some_and(is_deleted)
    }
}
