//! Loads and histories.

use std::collections::HashMap;

use superstep_checkpoint::{
    CheckpointError, CheckpointId, CheckpointMeta, Commit, History, Loaded, Source, TaskRecord, ThreadId,
    internal::stored::{
        ChildReader, ChildRow, ContentRow, Depth, EffectSlots, HistoryEnd, HistoryReader, MetaRow,
        PathReader, TaskReader, TaskRow,
    },
};

use super::{Head, Meta, Ranges, Stored};
use crate::kv::Entry;

/// The number of entries that are read at once, where their number is not known.
const PAGE: usize = 256;

/// The same of results of effects, of which most tasks have few.
const EFFECTS: u32 = 8;

impl<'v> Stored<'v, '_> {
    /// Loads a checkpoint; `None` if it does not exist.
    pub(super) async fn load(&mut self, at: Option<CheckpointId>) -> Result<Option<Loaded>, CheckpointError> {
        let Some(head) = self.head().await? else { return Ok(None) };
        let id = at.unwrap_or(head.head);
        let Some(path) = self.path(head, id, Depth::Path).await? else { return Ok(None) };
        let tasks = self.tasks(head, id).await?;
        path.into_loaded(head.head, tasks).map(Some)
    }

    /// Reads a checkpoint as it was committed.
    pub(super) async fn read_commit(&mut self, id: CheckpointId) -> Result<Option<Commit>, CheckpointError> {
        let Some(head) = self.head().await? else { return Ok(None) };
        let Some(path) = self.path(head, id, Depth::Commit).await? else { return Ok(None) };
        path.into_commit(self.own_tasks(id).await?).map(Some)
    }

    pub(super) async fn count(&mut self) -> Result<usize, CheckpointError> {
        let count = self.head().await?.map_or(0, |head| head.checkpoints);
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    pub(super) async fn children(&mut self) -> Result<Vec<ThreadId>, CheckpointError> {
        let keys = self.view.keys().await?;
        Ok(self.keys.children(&self.name.root(), &keys))
    }

    async fn path(
        &mut self,
        head: Head,
        from: CheckpointId,
        depth: Depth,
    ) -> Result<Option<PathReader<'v>>, CheckpointError> {
        if !head.counts().had(from) {
            return Ok(None);
        }
        let Some(entry) = self.view.get(self.keys.meta(from)).await? else {
            return if head.counts().may_lack(from) {
                Ok(None)
            } else {
                Err(self.thread().missing(from, "its entry"))
            };
        };
        let meta = self.decoded(from, &entry)?;
        let ids = if depth == Depth::Path {
            meta.path.iter().rev().map(CheckpointId).collect()
        } else {
            vec![from]
        };
        let mut path = PathReader::new(self.thread(), self.thread().meta(&row(from, &meta))?, depth);
        let oldest = *ids.last().expect("a path ends at its checkpoint");
        let mut keys: Vec<String> = ids.iter().map(|id| self.keys.updates(*id)).collect();
        keys.push(self.keys.snapshot(oldest));
        let mut entries = self.view.get_all(keys).await?;
        let snapshot = entries.pop().flatten();
        if snapshot.is_none() && meta.snapshot {
            return Err(self.thread().missing(from, "its snapshot"));
        }
        for (nth, (id, updates)) in ids.iter().zip(entries).enumerate() {
            let Some(updates) = updates else { break };
            let snapshot = snapshot.as_ref().filter(|_| *id == oldest);
            path.push(&ContentRow {
                id: *id,
                parent: if ids.len() == 1 { meta.parent } else { ids.get(nth + 1).copied() },
                applied: updates.text(),
                snapshot: snapshot.map(Entry::text),
                is_intact: updates.is_intact && snapshot.is_none_or(|snapshot| snapshot.is_intact),
            })?;
        }
        let recorded: Vec<_> = path.recorded().collect();
        let keys = recorded.iter().map(|(id, slot)| self.keys.record(*id, *slot)).collect();
        let mut records = HashMap::new();
        for ((id, slot), entry) in recorded.into_iter().zip(self.view.get_all(keys).await?) {
            let Some(entry) = entry else { continue };
            let record = self.thread().record(id, slot.into(), entry.text(), entry.is_intact)?;
            records.insert((id, slot), record);
        }
        path.fill(|id, slot| Ok::<_, CheckpointError>(records.remove(&(id, slot))))?;
        Ok(Some(path))
    }

    pub(super) fn decoded<'e>(
        &self,
        id: CheckpointId,
        entry: &'e Entry,
    ) -> Result<Meta<'e>, CheckpointError> {
        if !entry.is_intact {
            return Err(self.thread().changed(id, "its entry"));
        }
        serde_json::from_slice(entry.text()).map_err(|cause| self.thread().damaged(id, "entry", cause))
    }

    pub(super) async fn history(&mut self, range: &History) -> Result<Vec<CheckpointMeta>, CheckpointError> {
        let Some(head) = self.head().await? else { return Ok(Vec::new()) };
        let thread = self.thread();
        let mut reader = HistoryReader::new(thread, head.counts(), range);
        let mut newest = reader.newest().map_or(head.head.0, |id| id.0);
        while !reader.is_full() && newest > 0 {
            let page = reader.page(PAGE) as u64;
            let ids: Vec<_> = (newest.saturating_sub(page) + 1..=newest).rev().map(CheckpointId).collect();
            let keys = ids.iter().map(|id| self.keys.meta(*id)).collect();
            for (id, entry) in ids.iter().zip(self.view.get_all(keys).await?) {
                let Some(entry) = entry.filter(|_| !reader.is_full()) else { continue };
                if entry.is_intact {
                    reader.push(&row(*id, &self.decoded(*id, &entry)?))?;
                } else {
                    reader.push(&MetaRow::damaged(*id))?;
                }
            }
            newest -= ids.len() as u64;
        }
        match reader.end(newest == 0)? {
            HistoryEnd::Complete(found) => Ok(found),
            HistoryEnd::Partial(part) => {
                part.checked(thread, &Box::pin(self.history(&History::default())).await?)
            }
        }
    }

    /// Returns the records of the checkpoint's own tasks, with those that a superstep folded.
    pub(super) async fn tasks(
        &mut self,
        head: Head,
        id: CheckpointId,
    ) -> Result<Vec<(u32, TaskRecord)>, CheckpointError> {
        let tasks = self.own_tasks(id).await?;
        if id == head.head {
            return Ok(tasks);
        }
        let mut reader = ChildReader::new(self.thread(), &head.counts(), head.branched, id, tasks)?;
        let mut ids = self.branches(id).await?;
        ids.push(CheckpointId(id.0 + 1));
        let metas = self.view.get_all(ids.iter().map(|id| self.keys.meta(*id)).collect()).await?;
        let mut has_applied = false;
        for (child, entry) in ids.into_iter().zip(metas) {
            let Some(entry) = entry else { continue };
            let meta = self.decoded(child, &entry)?;
            let is_applied = !has_applied && meta.parent == Some(id) && meta.source == Source::Loop;
            let updates = if is_applied { self.view.get(self.keys.updates(child)).await? } else { None };
            has_applied |= is_applied;
            reader.push(&ChildRow {
                id: child,
                parent: meta.parent,
                source: meta.source.as_str().as_bytes(),
                applied: updates.as_ref().map_or(b"[]", Entry::text),
                is_intact: true,
                has_intact_content: updates.as_ref().is_some_and(|updates| updates.is_intact) || !is_applied,
            })?;
        }
        match reader.missing_next() {
            Some(next) if !head.counts().may_lack(next) => Err(self.thread().lost_checkpoints()),
            _ => Ok(reader.finish()),
        }
    }

    /// Returns the checkpoints that follow another on a branch, newest first.
    pub(super) async fn branches(&mut self, id: CheckpointId) -> Result<Vec<CheckpointId>, CheckpointError> {
        let Some(entry) = self.view.get(self.keys.branches(id)).await? else { return Ok(Vec::new()) };
        self.small(id, "the list of its branches", &entry)
    }

    /// Decodes a small entry.
    fn small<T: serde::de::DeserializeOwned>(
        &self,
        id: CheckpointId,
        part: &str,
        entry: &Entry,
    ) -> Result<T, CheckpointError> {
        let value = entry.is_intact.then(|| serde_json::from_slice(entry.text()).ok()).flatten();
        value.ok_or_else(|| self.thread().changed(id, part))
    }

    /// Returns the slots of the tasks of a checkpoint that have records.
    pub(super) async fn slots(&mut self, id: CheckpointId) -> Result<Ranges, CheckpointError> {
        match self.view.get(self.keys.slots(id)).await? {
            Some(entry) => self.small(id, "the list of its tasks", &entry),
            None => Ok(Ranges::default()),
        }
    }

    /// Returns the records of the checkpoint's own tasks.
    pub(super) async fn own_tasks(
        &mut self,
        id: CheckpointId,
    ) -> Result<Vec<(u32, TaskRecord)>, CheckpointError> {
        let slots: Vec<u32> = self.slots(id).await?.slots().collect();
        let keys = slots.iter().map(|slot| self.keys.record(id, *slot)).collect();
        let mut reader = TaskReader::new(self.thread(), id);
        let task = |slot: i64, entry: &Entry, reader: &mut TaskReader<'_>| {
            let is_intact = entry.is_intact;
            reader.push(&TaskRow { slot, record: entry.text(), share: 0, is_intact })
        };
        for (slot, entry) in slots.into_iter().zip(self.view.get_all(keys).await?) {
            let entry =
                entry.ok_or_else(|| self.thread().missing(id, &format!("the record of its task {slot}")))?;
            if !is_finished(&entry) {
                for (effect, nth) in self.effects(id, slot).await?.iter().zip(0..) {
                    task(EffectSlots::of(slot).first + nth, effect, &mut reader)?;
                }
            }
            task(slot.into(), &entry, &mut reader)?;
        }
        reader.finish(0)
    }

    /// Returns the further results of effects of an unfinished task.
    pub(super) async fn effects(
        &mut self,
        id: CheckpointId,
        slot: u32,
    ) -> Result<Vec<Entry>, CheckpointError> {
        let mut found = Vec::new();
        loop {
            let first = u32::try_from(found.len()).expect("each result was stored by one request");
            let keys = (first..first + EFFECTS).map(|nth| self.keys.effect(id, slot, nth)).collect();
            let page = self.view.get_all(keys).await?;
            let read: Vec<_> = page.into_iter().map_while(|entry| entry).collect();
            let is_all = read.len() < EFFECTS as usize;
            found.extend(read);
            if is_all {
                return Ok(found);
            }
        }
    }
}

/// Returns whether a record is that of a finished task: it begins with the kind of its task's end.
pub(super) fn is_finished(record: &Entry) -> bool {
    record.text().starts_with(br#"{"end":"finished""#)
}

fn row<'m>(id: CheckpointId, meta: &'m Meta<'_>) -> MetaRow<'m> {
    MetaRow {
        id,
        parent: meta.parent,
        source: meta.source.as_str().as_bytes(),
        created_ms: meta.created_ms,
        control: meta.control.get().as_bytes(),
        metadata: meta.metadata.as_ref().map(|metadata| metadata.get().as_bytes()),
        parent_pruned: meta.parent_pruned,
        parent_is_lost: meta.parent_pruned,
        is_intact: true,
    }
}
