//! Values on their path to the storage.
//!
//! Start at [`Sealer`].

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};
use superstep_checkpoint::{
    CheckpointError, CheckpointId, CheckpointMeta, Commit, FailureKind, NodeFailure, Question,
    RecordedTarget, TaskRecord, ThreadId,
};
use superstep_state::{ChannelValue, RawJson, StoredUpdate};

use super::{Columns, Finished, Interrupted, Opener, Sealed, columns_of, json, parse, path, position};
use crate::{
    error,
    form::{Fault, Part, Place, Position, SEALED, is_sealed, seal},
    keys::DataKeys,
    options::SealOptions,
    path::PathDigest,
};

/// Seals the values of one thread.
pub(crate) struct Sealer<'a> {
    pub(crate) options: &'a SealOptions,
    pub(crate) keys: Option<&'a DataKeys>,
    pub(crate) thread: &'a ThreadId,
}

impl Sealer<'_> {
    fn is_encrypted(&self) -> bool {
        self.keys.is_some()
    }

    fn seal(&self, part: Part, name: &str, position: Position, text: &str) -> Result<String, Fault> {
        let place = Place { part, path: path(self.thread), name, position };
        seal(self.options, self.keys.and_then(DataKeys::current), &place, text)
    }

    fn failed(&self, part: &str) -> impl Fn(Fault) -> CheckpointError + '_ {
        let part = part.to_owned();
        move |fault| error::of_thread(self.thread, &part, fault)
    }

    // The metadata is encrypted as a whole. Fingerprints of channels and the caller's metadata would reveal values. And a
    // changed `control` could name another pending node, such as the one behind an approval: the tag of the metadata covers it,
    // so that readable columns cannot be changed either.

    /// Seals the checkpoint that gets the number `id`. `path` leads to it, if it is known.
    pub(crate) fn commit(
        &self,
        id: CheckpointId,
        next: Commit,
        path: Option<&PathDigest>,
    ) -> Result<Commit, CheckpointError> {
        let whole = format!("checkpoint {id}");
        self.try_commit(id, next, path).map_err(self.failed(&whole))
    }

    fn try_commit(
        &self,
        id: CheckpointId,
        mut next: Commit,
        path: Option<&PathDigest>,
    ) -> Result<Commit, Fault> {
        for (slot, item) in &mut next.control.items {
            *item = self.seal(Part::WorkerItem, "", position(Some(id.0), None, Some(*slot)), item)?;
        }
        if self.is_encrypted() {
            let applied = next.applied.iter().map(|task| (task.slot, task.node.clone())).collect();
            let sealed =
                Sealed { metadata: Arc::unwrap_or_clone(next.metadata), applied, path: path.cloned() };
            let Commit { parent, source, ref control, created_ms, .. } = next;
            let columns = Columns { id, parent, source, created_ms, control };
            next.metadata = self.metadata(&columns, &sealed)?.into();
        }
        let of = next.parent.map_or(0, |parent| parent.0);
        for task in &mut next.applied {
            // That of a recorded task is as its record has it.
            let at = (!task.recorded).then_some(id.0);
            task.update = self.update(position(at, Some(of), Some(task.slot)), &task.update)?;
        }
        if let Some(snapshot) = &next.snapshot {
            let channels = snapshot.channels().map_err(Fault::NotJson)?;
            next.snapshot = Some(self.snapshot(id, &channels, path)?.into());
        }
        let records = next.records.into_iter();
        let records = records.map(|(slot, record)| Ok((slot, self.try_record(id, slot, record)?)));
        next.records = records.collect::<Result<_, Fault>>()?;
        Ok(next)
    }

    fn metadata(&self, columns: &Columns<'_>, sealed: &Sealed) -> Result<Map<String, Value>, Fault> {
        let position = position(Some(columns.id.0), None, None);
        let text = self.seal(Part::Checkpoint, &columns.text(), position, &json(sealed)?)?;
        Ok(Map::from_iter([(SEALED.to_owned(), parse(&text)?)]))
    }

    /// Seals new metadata of a stored checkpoint.
    pub(crate) fn new_metadata(
        &self,
        stored: &CheckpointMeta,
        opener: &Opener<'_>,
        metadata: Map<String, Value>,
    ) -> Result<Map<String, Value>, CheckpointError> {
        if !self.is_encrypted() {
            return Ok(metadata);
        }
        let whole = format!("checkpoint {}", stored.id);
        let sealed = match opener.sealed(stored).map_err(self.failed(&whole))? {
            Some(sealed) => Sealed { metadata, ..sealed },
            // It is from the time before encryption.
            None => return Ok(metadata),
        };
        self.metadata(&columns_of(stored), &sealed).map_err(self.failed(&whole))
    }

    /// Seals the metadata of a readable checkpoint that applied no task.
    pub(crate) fn metadata_of_post(
        &self,
        stored: &CheckpointMeta,
    ) -> Result<Map<String, Value>, CheckpointError> {
        let sealed = Sealed { metadata: stored.metadata.clone(), ..Sealed::default() };
        let whole = format!("checkpoint {}", stored.id);
        self.metadata(&columns_of(stored), &sealed).map_err(self.failed(&whole))
    }

    fn update(&self, position: Position, update: &StoredUpdate) -> Result<StoredUpdate, Fault> {
        let json = update.json().map_err(Fault::NotJson)?;
        let text = json.check().map_err(Fault::NotJson)?;
        Ok(self.seal(Part::Update, "", position, text)?.into())
    }

    /// Seals all channels as one value. A small snapshot remains as it is if there is no key.
    pub(crate) fn snapshot(
        &self,
        id: CheckpointId,
        channels: &[ChannelValue],
        path: Option<&PathDigest>,
    ) -> Result<Vec<ChannelValue>, Fault> {
        let path = match path.filter(|_| self.is_encrypted()) {
            Some(path) => Some((SEALED.to_owned(), RawJson::from(json(path)?))),
            None => None,
        };
        let pairs = channels.iter().map(|value| (&value.channel, &value.json));
        let pairs: Vec<_> = pairs.chain(path.iter().map(|(name, path)| (name, path))).collect();
        let text = json(&pairs)?;
        let sealed = self.seal(Part::Snapshot, "", position(Some(id.0), None, None), &text)?;
        if is_sealed(&sealed) {
            Ok(vec![ChannelValue { channel: SEALED.to_owned(), json: sealed.into() }])
        } else {
            Ok(channels.to_vec())
        }
    }

    /// Seals a snapshot for a stored checkpoint.
    pub(crate) fn new_snapshot(
        &self,
        id: CheckpointId,
        channels: &[ChannelValue],
        path: Option<&PathDigest>,
    ) -> Result<Vec<ChannelValue>, CheckpointError> {
        self.snapshot(id, channels, path).map_err(self.failed(&format!("the snapshot of checkpoint {id}")))
    }

    /// Seals the record of a task of a checkpoint.
    pub(crate) fn record(
        &self,
        at: CheckpointId,
        slot: u32,
        record: TaskRecord,
    ) -> Result<TaskRecord, CheckpointError> {
        let whole = format!("the record of task {slot} of checkpoint {at}");
        self.try_record(at, slot, record).map_err(self.failed(&whole))
    }

    fn try_record(&self, at: CheckpointId, slot: u32, record: TaskRecord) -> Result<TaskRecord, Fault> {
        let part = |name: &str, text: &str| {
            self.seal(Part::Record, name, position(Some(at.0), None, Some(slot)), text)
        };
        let effects = |once| self.try_effects(at, slot, once);
        Ok(match record {
            TaskRecord::Finished { update, targets, failure } => {
                let update = self.update(position(None, Some(at.0), Some(slot)), &update)?;
                if !self.is_encrypted() {
                    return Ok(TaskRecord::Finished { update, targets, failure });
                }
                let rest = part("finished", &json(&Finished { targets, failure })?)?;
                let rest = RecordedTarget::Send { node: SEALED.into(), item: rest.into() };
                TaskRecord::Finished { update, targets: vec![rest], failure: None }
            }
            TaskRecord::Started { attempts, once } => TaskRecord::Started { attempts, once: effects(once)? },
            TaskRecord::Cancelled { once } => TaskRecord::Cancelled { once: effects(once)? },
            TaskRecord::Failed { attempts, error, once } => {
                let error = if self.is_encrypted() { part("failed", &json(&error)?)? } else { error };
                TaskRecord::Failed { attempts, error, once: effects(once)? }
            }
            TaskRecord::Interrupted { questions, answers, asked, attempts, error, once } => {
                let once = effects(once)?;
                if !self.is_encrypted() {
                    return Ok(TaskRecord::Interrupted { questions, answers, asked, attempts, error, once });
                }
                let rest = part("interrupted", &json(&Interrupted { questions, answers, asked, error })?)?;
                let (key, question) = (SEALED.to_owned(), rest.into());
                let rest = Question { key, question, schema: None, within: None, replaces: None };
                let (questions, answers, asked, error) = (vec![rest], BTreeMap::new(), BTreeMap::new(), None);
                TaskRecord::Interrupted { questions, answers, asked, attempts, error, once }
            }
            TaskRecord::Handled { failure, handler } => {
                let failure = if self.is_encrypted() {
                    let sealed = part("handled", &json(&failure)?)?;
                    Box::new(NodeFailure::new(SEALED.into(), 0, FailureKind::Error, sealed))
                } else {
                    failure
                };
                TaskRecord::Handled { failure, handler: Box::new(self.try_record(at, slot, *handler)?) }
            }
        })
    }

    /// Seals the results of effects.
    pub(crate) fn effects(
        &self,
        at: CheckpointId,
        slot: u32,
        once: BTreeMap<String, RawJson>,
    ) -> Result<BTreeMap<String, RawJson>, CheckpointError> {
        let whole = format!("the effects of task {slot} of checkpoint {at}");
        self.try_effects(at, slot, once).map_err(self.failed(&whole))
    }

    fn try_effects(
        &self,
        at: CheckpointId,
        slot: u32,
        once: BTreeMap<String, RawJson>,
    ) -> Result<BTreeMap<String, RawJson>, Fault> {
        let position = position(Some(at.0), None, Some(slot));
        let effects = once.into_iter().map(|(name, result)| {
            let sealed = self.seal(Part::Effect, &name, position, result.as_str())?;
            Ok((name, sealed.into()))
        });
        effects.collect()
    }
}
