//! Commits, records, deletion.

use std::borrow::Cow;

use serde_json::value::RawValue;
use superstep_checkpoint::{
    CheckpointError, CheckpointId,
    internal::{input_ids, leftovers},
};

use super::{Head, Meta, Ranges, Stored, read::is_finished};
use crate::{keys::GENERATION, request::NewCommit};

impl Stored<'_, '_> {
    /// Appends checkpoints, and returns the id of the last one; that of the head if there are none.
    pub(super) async fn commit_all(
        &mut self,
        expected: Option<CheckpointId>,
        commits: &[NewCommit],
        looks_beside: bool,
    ) -> Result<CheckpointId, CheckpointError> {
        let mut head = self.head().await?;
        if head.map(|head| head.head) != expected && !commits.is_empty() {
            return Err(CheckpointError::conflict(self.name, expected));
        }
        for commit in commits {
            head = Some(self.commit(head, commit, looks_beside).await?);
        }
        let id = head.map_or(CheckpointId(0), |head| head.head);
        self.view.memory.forget_before(CheckpointId(id.0.saturating_sub(1)));
        Ok(id)
    }

    async fn commit(
        &mut self,
        head: Option<Head>,
        new: &NewCommit,
        looks_beside: bool,
    ) -> Result<Head, CheckpointError> {
        let before = head.map_or(0, |head| head.head.0);
        if before >= u64::from(u32::MAX) {
            return Err(CheckpointError::too_long(self.name));
        }
        let id = CheckpointId(before + 1);
        let path = match new.parent {
            Some(parent) => {
                let entry =
                    if parent.0 <= before { self.view.get(self.keys.meta(parent)).await? } else { None };
                let entry = entry.ok_or_else(|| CheckpointError::no_parent(self.name, parent))?;
                let mut path = self.decoded(parent, &entry)?.path;
                path.add(id.0);
                path
            }
            None => Ranges::of(id.0),
        };
        for slot in &new.recorded {
            let record = match new.parent {
                Some(parent) => self.view.get(self.keys.record(parent, *slot)).await?,
                None => None,
            };
            if !record.is_some_and(|record| is_finished(&record)) {
                return Err(CheckpointError::not_recorded(self.name, new.parent, *slot));
            }
        }
        if head.is_none() {
            self.check_unused(looks_beside).await?;
        }
        let meta = Meta {
            parent: new.parent,
            parent_pruned: false,
            source: new.source,
            created_ms: new.created_ms,
            control: Cow::Borrowed(&*new.control),
            metadata: new.metadata.as_deref().map(Cow::Borrowed),
            snapshot: new.snapshot.is_some(),
            path: if new.snapshot.is_some() { Ranges::of(id.0) } else { path },
        };
        self.put_meta(id, &meta);
        self.view.set(self.keys.updates(id), new.applied.get().to_owned());
        if let Some(snapshot) = &new.snapshot {
            self.view.set(self.keys.snapshot(id), snapshot.get().to_owned());
        }
        self.put_inputs(id, new.metadata.as_deref());
        for (slot, record) in &new.records {
            self.upsert(id, *slot, record).await?;
        }
        let branched = match new.parent {
            Some(parent) if parent.0 != before => {
                let mut branches = self.branches(parent).await?;
                branches.insert(0, id);
                self.view.set(self.keys.branches(parent), text(&branches));
                1
            }
            _ => 0,
        };
        let grown = Head {
            head: id,
            checkpoints: head.map_or(0, |head| head.checkpoints) + 1,
            branched: head.map_or(0, |head| head.branched) + branched,
        };
        self.view.set(self.keys.head(), text(&grown));
        Ok(grown)
    }

    /// Rejects the first checkpoint of a thread below which others are stored.
    async fn check_unused(&mut self, looks_beside: bool) -> Result<(), CheckpointError> {
        if self.name.is_child() {
            return Ok(());
        }
        let mut keys = self.view.keys().await?;
        if looks_beside {
            keys.extend(self.view.keys_beside().await?);
        }
        let children = leftovers(self.keys.children(&self.name.root(), &keys));
        if children.is_empty() {
            Ok(())
        } else {
            Err(CheckpointError::Leftovers { thread: self.name.clone(), children })
        }
    }

    pub(super) fn put_meta(&mut self, id: CheckpointId, meta: &Meta<'_>) {
        self.view.set(self.keys.meta(id), text(meta));
    }

    pub(super) fn put_inputs(&mut self, id: CheckpointId, metadata: Option<&RawValue>) {
        let metadata = metadata.and_then(|metadata| serde_json::from_str(metadata.get()).ok());
        for input in metadata.iter().flat_map(input_ids) {
            self.view.set(self.keys.input(input), id.to_string());
        }
    }

    /// Stores records of tasks of the head.
    pub(super) async fn record_all(
        &mut self,
        checkpoint: CheckpointId,
        records: &[(u32, Box<RawValue>)],
    ) -> Result<(), CheckpointError> {
        self.check_head(checkpoint).await?;
        for (slot, record) in records {
            self.upsert(checkpoint, *slot, record).await?;
        }
        Ok(())
    }

    /// Adds results of effects to the record of an unfinished task; `false` if there is none.
    pub(super) async fn add_effects(
        &mut self,
        checkpoint: CheckpointId,
        slot: u32,
        record: &RawValue,
    ) -> Result<bool, CheckpointError> {
        self.check_head(checkpoint).await?;
        let known = self.view.get(self.keys.record(checkpoint, slot)).await?;
        if known.is_none_or(|record| is_finished(&record)) {
            return Ok(false);
        }
        let nth = self.effects(checkpoint, slot).await?.len();
        let nth = u32::try_from(nth).expect("each result was stored by one request");
        self.view.set(self.keys.effect(checkpoint, slot, nth), record.get().to_owned());
        Ok(true)
    }

    async fn check_head(&mut self, checkpoint: CheckpointId) -> Result<(), CheckpointError> {
        match self.head().await? {
            Some(head) if head.head == checkpoint => Ok(()),
            _ => Err(CheckpointError::conflict(self.name, Some(checkpoint))),
        }
    }

    /// Stores a record, which replaces an earlier one of the task with all its effects.
    pub(super) async fn upsert(
        &mut self,
        id: CheckpointId,
        slot: u32,
        record: &RawValue,
    ) -> Result<(), CheckpointError> {
        let mut slots = self.slots(id).await?;
        if !slots.contains(slot.into()) {
            slots.add(slot.into());
            self.view.set(self.keys.slots(id), text(&slots));
        } else if self.view.get(self.keys.record(id, slot)).await?.is_some_and(|old| !is_finished(&old)) {
            let effects = self.effects(id, slot).await?.len();
            for (_, nth) in (0..effects).zip(0..) {
                self.view.clear(self.keys.effect(id, slot, nth));
            }
        }
        self.view.set(self.keys.record(id, slot), record.get().to_owned());
        Ok(())
    }

    /// Deletes the thread and those below it.
    pub(super) async fn delete(&mut self) -> Result<(), CheckpointError> {
        let keys = self.view.keys().await?;
        let own: Vec<_> = keys.into_iter().filter(|key| self.keys.has(key)).collect();
        if own.is_empty() {
            return Ok(());
        }
        for key in own {
            self.view.clear(key);
        }
        let generation = self.view.get(GENERATION.to_owned()).await?;
        let generation = generation.and_then(|entry| std::str::from_utf8(entry.text()).ok()?.parse().ok());
        self.view.set(GENERATION.to_owned(), (generation.unwrap_or(0) + 1_u64).to_string());
        Ok(())
    }
}

pub(super) fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("entries have text keys only")
}
