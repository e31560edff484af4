//! Prunes.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::value::RawValue;
use superstep_checkpoint::{
    CheckpointError, CheckpointId, Prune, Source, TaskRecord,
    internal::stored::{Known, PrunePlan, record_text},
};

use super::{Head, Ranges, Stored, write::text};
use crate::{keys::Keys, kv::Entry, request::NewPrune};

impl Stored<'_, '_> {
    /// Deletes the checkpoints that are not retained, and returns their number.
    pub(super) async fn prune(
        &mut self,
        expected: CheckpointId,
        prune: NewPrune,
    ) -> Result<usize, CheckpointError> {
        let head = self.head().await?.filter(|head| head.head == expected);
        let head = head.ok_or_else(|| CheckpointError::conflict(self.name, Some(expected)))?;
        let NewPrune { keep, snapshots, callers, metadata } = prune;
        // The plan reads which checkpoints get a snapshot, not the values.
        let planned = snapshots.keys().map(|id| (*id, Vec::new())).collect();
        let planned = Prune { keep, snapshots: planned, callers, metadata };
        let metas = self.metas(head).await?;
        let plan = PrunePlan::new(self.name, expected, &planned, self.known(&metas)?)?;
        for parent in plan.lost_results() {
            self.keep_results(head, parent).await?;
        }
        for child in self.children().await?.iter().filter(|child| plan.deletes(self.name, child)) {
            for key in self.view.keys().await?.into_iter().filter(|key| Keys::of(child).has(key)) {
                self.view.clear(key);
            }
        }
        let (mut paths, mut branched): (BTreeMap<CheckpointId, Ranges>, u64) = (BTreeMap::new(), 0);
        for (id, entry) in &metas {
            if !plan.keep.contains(id) {
                self.clear(*id).await?;
                continue;
            }
            let mut meta = self.decoded(*id, entry)?;
            if let Some(snapshot) = snapshots.get(id).filter(|_| plan.adds_snapshot(*id)) {
                self.view.set(self.keys.snapshot(*id), snapshot.get().to_owned());
                meta.snapshot = true;
            }
            if let Some(metadata) = planned.metadata.get(id) {
                let metadata = RawValue::from_string(text(metadata)).expect("an object is JSON");
                self.put_inputs(*id, Some(&metadata));
                meta.metadata = Some(Cow::Owned(metadata));
            }
            meta.parent_pruned |= plan.is_orphan(*id);
            let path = meta.parent.and_then(|parent| paths.get(&parent)).filter(|_| !meta.snapshot);
            meta.path = path.cloned().unwrap_or_default();
            meta.path.add(id.0);
            branched += u64::from(meta.parent.is_some_and(|parent| parent.0 + 1 != id.0));
            paths.insert(*id, meta.path.clone());
            self.put_meta(*id, &meta);
            let branches = self.branches(*id).await?;
            let kept: Vec<_> = branches.iter().filter(|branch| plan.keep.contains(branch)).collect();
            if kept.len() < branches.len() {
                self.view.set(self.keys.branches(*id), text(&kept));
            }
        }
        let checkpoints = paths.len() as u64;
        self.view.set(self.keys.head(), text(&Head { head: expected, checkpoints, branched }));
        Ok(metas.len() - paths.len())
    }

    /// Returns the entries of the metadata of all checkpoints.
    async fn metas(&mut self, head: Head) -> Result<BTreeMap<CheckpointId, Entry>, CheckpointError> {
        let ids: Vec<_> = (1..=head.head.0).map(CheckpointId).collect();
        let keys = ids.iter().map(|id| self.keys.meta(*id)).collect();
        let entries = ids.into_iter().zip(self.view.get_all(keys).await?);
        let found: BTreeMap<_, _> = entries.filter_map(|(id, entry)| Some((id, entry?))).collect();
        if found.len() as u64 != head.checkpoints {
            return Err(self.thread().lost_checkpoints());
        }
        Ok(found)
    }

    fn known(
        &self,
        metas: &BTreeMap<CheckpointId, Entry>,
    ) -> Result<BTreeMap<CheckpointId, Known>, CheckpointError> {
        let known = |(id, entry): (&CheckpointId, &Entry)| {
            let meta = self.decoded(*id, entry)?;
            let is_loop = meta.source == Source::Loop;
            Ok((*id, Known { parent: meta.parent, is_loop, has_snapshot: meta.snapshot }))
        };
        metas.iter().map(known).collect()
    }

    /// Records the writes of a retained checkpoint's tasks, whose superstep is about to be deleted.
    async fn keep_results(&mut self, head: Head, parent: CheckpointId) -> Result<(), CheckpointError> {
        for (slot, record) in self.tasks(head, parent).await? {
            if let TaskRecord::Finished { .. } = record {
                let record = record_text(self.name, slot, &record)?;
                let record = RawValue::from_string(record).expect("a record is JSON");
                self.upsert(parent, slot, &record).await?;
            }
        }
        Ok(())
    }

    /// Deletes the entries of a checkpoint.
    async fn clear(&mut self, id: CheckpointId) -> Result<(), CheckpointError> {
        for slot in self.slots(id).await?.slots() {
            let effects = self.effects(id, slot).await?.len();
            for (_, nth) in (0..effects).zip(0..) {
                self.view.clear(self.keys.effect(id, slot, nth));
            }
            self.view.clear(self.keys.record(id, slot));
        }
        let keys = self.keys;
        for key in [keys.meta(id), keys.updates(id), keys.snapshot(id), keys.slots(id), keys.branches(id)] {
            self.view.clear(key);
        }
        Ok(())
    }
}
