//! Values on their path from the storage.
//!
//! Start at [`Opener`].

use std::collections::BTreeMap;

use superstep_checkpoint::{
    AppliedTask, CheckpointId, CheckpointMeta, Commit, Loaded, Question, RecordedTarget, TaskRecord, ThreadId,
};
use superstep_engine::NodeName;
use superstep_state::{ChannelValue, RawJson, Snapshot, StoredUpdate};

use super::{Finished, Interrupted, Sealed, columns_of, parse, path, position};
use crate::{
    form::{Fault, Opened, Part, Place, Position, SEALED, is_sealed, open},
    keys::DataKeys,
    options::SealOptions,
    path::PathDigest,
};

/// Opens the values of one thread.
pub(crate) struct Opener<'a> {
    pub(crate) options: &'a SealOptions,
    pub(crate) keys: Option<&'a DataKeys>,
    pub(crate) thread: &'a ThreadId,
}

/// A fault with the part of the thread that has it.
pub(crate) struct Located {
    pub(crate) part: String,
    pub(crate) fault: Fault,
}

/// The part of a checkpoint's metadata that is not for its reader: the tasks that it applied, in fold order, and the path to it.
struct Bound {
    applied: Vec<(u32, NodeName)>,
    path: Option<PathDigest>,
}

/// A snapshot that was opened.
struct OpenSnapshot {
    channels: Vec<ChannelValue>,
    /// The checkpoint of the value, if it is encrypted.
    at: Option<u64>,
    path: Option<PathDigest>,
}

/// A result of an [`Opener`].
pub(crate) type Read<T> = Result<T, Located>;

fn located(part: impl Into<String>) -> impl FnOnce(Fault) -> Located {
    let part = part.into();
    move |fault| Located { part, fault }
}

impl Opener<'_> {
    /// Returns whether the values of a checkpoint must be encrypted.
    fn must_be_encrypted(&self, id: CheckpointId) -> bool {
        let from = self.keys.map(|keys| keys.from);
        // The checkpoints of subgraphs have numbers of their own.
        self.options.required
            || from.is_some_and(|from| if self.thread.is_child() { from == 1 } else { from <= id.0 })
    }

    fn open(&self, part: Part, name: &str, position: Position, text: &str) -> Result<Opened, Fault> {
        let place = Place { part, path: path(self.thread), name, position };
        open(self.options, self.keys.map_or(&[], |keys| &keys.all), &place, text)
    }

    /// Opens a value at a known position in a checkpoint.
    fn open_at(
        &self,
        part: Part,
        name: &str,
        at: CheckpointId,
        slot: u32,
        text: &str,
    ) -> Result<String, Fault> {
        let opened = self.open(part, name, position(Some(at.0), None, Some(slot)), text)?;
        if !opened.is_encrypted && self.must_be_encrypted(at) {
            return Err(Fault::Plain);
        }
        Ok(opened.text)
    }

    /// Opens the sealed metadata of a checkpoint; `None` if it is readable.
    pub(super) fn sealed(&self, meta: &CheckpointMeta) -> Result<Option<Sealed>, Fault> {
        let Some(sealed) = meta.metadata.get(SEALED) else {
            return if self.must_be_encrypted(meta.id) { Err(Fault::Plain) } else { Ok(None) };
        };
        let position = position(Some(meta.id.0), None, None);
        let opened = self.open(Part::Checkpoint, &columns_of(meta).text(), position, &sealed.to_string())?;
        if !opened.is_encrypted {
            return Err(Fault::Plain);
        }
        parse(&opened.text).map(Some)
    }

    /// Opens the metadata of a checkpoint.
    pub(crate) fn meta(&self, meta: &CheckpointMeta) -> Read<CheckpointMeta> {
        Ok(self.meta_and_bound(meta)?.0)
    }

    /// Returns the path to a checkpoint, if it is known.
    pub(crate) fn path_to(&self, meta: &CheckpointMeta) -> Read<Option<PathDigest>> {
        let sealed = self.sealed(meta).map_err(located(format!("checkpoint {}", meta.id)))?;
        Ok(sealed.and_then(|sealed| sealed.path))
    }

    /// Opens the metadata of a checkpoint, with what is bound to it, unless it is from the time before encryption.
    fn meta_and_bound(&self, meta: &CheckpointMeta) -> Read<(CheckpointMeta, Option<Bound>)> {
        let sealed = self.sealed(meta).map_err(located(format!("checkpoint {}", meta.id)))?;
        let mut meta = meta.clone();
        for (slot, item) in &mut meta.control.items {
            let opened = self.open_at(Part::WorkerItem, "", meta.id, *slot, item);
            *item = opened.map_err(located(format!("the item of task {slot} of checkpoint {}", meta.id)))?;
        }
        let bound = sealed.map(|sealed| {
            meta.metadata = sealed.metadata;
            Bound { applied: sealed.applied, path: sealed.path }
        });
        Ok((meta, bound))
    }

    /// Opens a loaded checkpoint. `has_path` is `true` if the path to its state was loaded as well.
    pub(crate) fn loaded(&self, loaded: &Loaded, has_path: bool) -> Read<Loaded> {
        let id = loaded.meta.id;
        let (meta, bound) = self.meta_and_bound(&loaded.meta)?;
        self.check_applied(id, bound.as_ref(), loaded.applied.iter().cloned())?;
        let (snapshot, at, begin) = match &loaded.snapshot {
            Some(snapshot) => {
                let part = || located(format!("the snapshot of checkpoint {id}, or of one before it,"));
                let OpenSnapshot { channels, at, path } = self.snapshot(snapshot).map_err(part())?;
                let is_own = loaded.commits.is_empty();
                if at.is_none() && is_own && self.must_be_encrypted(id) {
                    return Err(part()(Fault::Plain));
                }
                if at.is_some_and(|at| if is_own { at != id.0 } else { at >= id.0 }) {
                    return Err(part()(Fault::Moved("it is of another checkpoint".to_owned())));
                }
                (Some(Snapshot::from(channels)), at, path)
            }
            None if self.is_encrypted_from_its_beginning() => (None, None, Some(PathDigest::start())),
            None => (None, None, None),
        };
        let path = begin.zip(bound.and_then(|bound| bound.path)).filter(|_| has_path);
        let commits = self
            .commits(loaded, at, path)
            .map_err(located(format!("an update on the path to checkpoint {id}")))?;
        let tasks = loaded.tasks.iter().map(|(slot, record)| Ok((*slot, self.record(id, *slot, record)?)));
        Ok(Loaded {
            meta,
            head: loaded.head,
            applied: loaded.applied.clone(),
            snapshot,
            commits,
            tasks: tasks.collect::<Read<_>>()?,
            fingerprints: loaded.fingerprints.clone(),
        })
    }

    /// Compares the tasks that a checkpoint applied with those that are bound to its metadata.
    fn check_applied(
        &self,
        id: CheckpointId,
        bound: Option<&Bound>,
        found: impl Iterator<Item = (u32, NodeName)>,
    ) -> Read<()> {
        match bound {
            Some(bound) if !found.eq(bound.applied.iter().cloned()) => {
                let fault = Fault::Moved("its tasks are other ones".to_owned());
                Err(Located { part: format!("checkpoint {id}"), fault })
            }
            _ => Ok(()),
        }
    }

    /// Opens the updates since a snapshot, and checks that none is missing, moved, or of another branch, as far as they show it.
    /// `at` is the checkpoint of the snapshot, if it is known, and `path` the path to it and to the loaded one.
    fn commits(
        &self,
        loaded: &Loaded,
        at: Option<u64>,
        path: Option<(PathDigest, PathDigest)>,
    ) -> Result<Vec<Vec<StoredUpdate>>, Fault> {
        let moved = |why: &str| Fault::Moved(why.to_owned());
        let from = self.keys.map_or(u64::MAX, |keys| keys.from);
        let mut commits = Vec::with_capacity(loaded.commits.len());
        let (mut path, end) = path.unzip();
        // The checkpoint before, if it is known: without a snapshot the path begins with the thread.
        let mut before = if loaded.snapshot.is_none() { Some(0) } else { at };
        // A number that the next one does not fall below; whether the one before was readable.
        let (mut least, mut was_plain) = (at.unwrap_or(0), loaded.snapshot.is_some() && at.is_none());
        let mut is_encrypted_from_here = false;
        for (nth, stored) in loaded.commits.iter().enumerate() {
            let is_last = nth + 1 == loaded.commits.len();
            let (mut updates, mut slots) = (Vec::with_capacity(stored.len()), Vec::new());
            let (mut own, mut parent, mut is_plain) = (None, None, false);
            for update in stored {
                let (update, found) = self.update(update)?;
                updates.push(update);
                let Some(Position { at, of, slot }) = found else {
                    let must = is_encrypted_from_here || (is_last && self.must_be_encrypted(loaded.meta.id));
                    if must || (from == 1 && self.keys.is_some()) {
                        return Err(Fault::Plain);
                    }
                    is_plain = true;
                    continue;
                };
                let of = of.ok_or_else(|| moved("it names no task"))?;
                slots.push(slot.ok_or_else(|| moved("it names no task"))?);
                if parent.is_some_and(|parent| parent != of) || own.zip(at).is_some_and(|(own, at)| own != at)
                {
                    return Err(moved("it is beside updates of another checkpoint"));
                }
                (own, parent) = (own.or(at), Some(of));
            }
            if let Some(parent) = parent {
                let follows = before.map_or(parent >= least, |before| before == parent);
                let is_replaced = was_plain && parent >= from && !self.thread.is_child();
                let is_own = own.is_none_or(|own| own > parent);
                if !follows || !is_own {
                    return Err(moved("it does not follow the update before it"));
                }
                if is_replaced || is_plain {
                    return Err(Fault::Plain);
                }
                if is_last {
                    let is_here = parent == loaded.meta.parent.map_or(0, |parent| parent.0)
                        && own.is_none_or(|own| own == loaded.meta.id.0);
                    let applied = loaded.applied.iter().map(|(slot, _)| *slot);
                    if !is_here || !applied.eq(slots.iter().copied()) {
                        return Err(moved("it is of another checkpoint"));
                    }
                }
                (least, is_encrypted_from_here) = (own.unwrap_or(parent + 1), true);
            }
            path = path.map(|path| path.after(slots));
            // A checkpoint without updates, such as a fork, does not show its number.
            before = own;
            was_plain = is_plain;
            commits.push(updates);
        }
        if path == end {
            Ok(commits)
        } else {
            Err(moved("an update before it is missing, or is another one"))
        }
    }

    /// Opens an update, and returns its position if it is encrypted.
    fn update(&self, update: &StoredUpdate) -> Result<(StoredUpdate, Option<Position>), Fault> {
        let json = update.json().map_err(Fault::malformed)?;
        if !is_sealed(&json) && !self.options.required {
            return Ok((update.clone(), None));
        }
        let opened = self.open(Part::Update, "", Position::default(), &json)?;
        let position = opened.position.filter(|_| opened.is_encrypted);
        Ok((opened.text.into(), position))
    }

    /// Returns whether every checkpoint of the thread must be encrypted, and is written with its path.
    fn is_encrypted_from_its_beginning(&self) -> bool {
        self.keys.is_some_and(|keys| keys.from == 1)
    }

    fn snapshot(&self, snapshot: &Snapshot) -> Result<OpenSnapshot, Fault> {
        let channels = snapshot.channels().map_err(Fault::malformed)?;
        let json = match &*channels {
            [ChannelValue { channel, json }] if channel == SEALED => json,
            _ if self.options.required => return Err(Fault::Plain),
            _ => return Ok(OpenSnapshot { channels: channels.into_owned(), at: None, path: None }),
        };
        let opened = self.open(Part::Snapshot, "", Position::default(), json)?;
        let mut pairs: Vec<(String, RawJson)> = parse(&opened.text)?;
        let path = pairs.pop_if(|(name, _)| opened.is_encrypted && name == SEALED);
        let path = path.map(|(_, path)| parse(&path)).transpose()?;
        let channels = pairs.into_iter().map(|(channel, json)| ChannelValue { channel, json }).collect();
        let at = opened.position.filter(|_| opened.is_encrypted).and_then(|position| position.at);
        Ok(OpenSnapshot { channels, at, path })
    }

    /// Opens a checkpoint as it was committed.
    pub(crate) fn commit(&self, id: CheckpointId, commit: &Commit) -> Read<Commit> {
        let Commit { parent, source, control, created_ms, metadata, .. } = commit;
        let meta = CheckpointMeta {
            id,
            parent: *parent,
            parent_pruned: false,
            source: *source,
            control: control.clone(),
            created_ms: *created_ms,
            metadata: (**metadata).clone(),
        };
        let (meta, bound) = self.meta_and_bound(&meta)?;
        let found = commit.applied.iter().map(|task| (task.slot, task.node.clone()));
        self.check_applied(id, bound.as_ref(), found)?;
        let of = parent.map_or(0, |parent| parent.0);
        let applied = commit.applied.iter().map(|task| {
            let part = || located(format!("the update of task {} of checkpoint {id}", task.slot));
            // The update was deleted with the parent, which left a snapshot.
            let is_deleted = commit.snapshot.is_some() || !self.must_be_encrypted(id);
            if is_deleted && task.update == StoredUpdate::empty() {
                return Ok(task.clone());
            }
            let (update, found) = self.update(&task.update).map_err(part())?;
            match found {
                None if self.must_be_encrypted(id) => return Err(part()(Fault::Plain)),
                Some(found) if !self.is_of(found, Some(id.0), of, task.slot) => {
                    return Err(part()(Fault::Moved("it is of another task".to_owned())));
                }
                _ => {}
            }
            Ok(AppliedTask { update, ..task.clone() })
        });
        let applied = applied.collect::<Read<_>>()?;
        let snapshot = match &commit.snapshot {
            Some(snapshot) => {
                let part = || located(format!("the snapshot of checkpoint {id}"));
                let OpenSnapshot { channels, at, .. } = self.snapshot(snapshot).map_err(part())?;
                match at {
                    None if self.must_be_encrypted(id) => return Err(part()(Fault::Plain)),
                    Some(at) if at != id.0 => {
                        return Err(part()(Fault::Moved("it is of another checkpoint".to_owned())));
                    }
                    _ => Some(channels.into()),
                }
            }
            None => None,
        };
        let records =
            commit.records.iter().map(|(slot, record)| Ok((*slot, self.record(id, *slot, record)?)));
        Ok(Commit {
            control: meta.control,
            metadata: meta.metadata.into(),
            applied,
            snapshot,
            records: records.collect::<Read<_>>()?,
            ..commit.clone()
        })
    }

    /// Returns whether an update is that of a task: as its record has it, or as the checkpoint `at` applied it.
    fn is_of(&self, found: Position, at: Option<u64>, of: u64, slot: u32) -> bool {
        let is_at = found.at.is_none_or(|found| at.map_or(found > of, |at| found == at));
        is_at && found.of == Some(of) && found.slot == Some(slot)
    }

    /// Opens the record of a task of a checkpoint.
    fn record(&self, at: CheckpointId, slot: u32, record: &TaskRecord) -> Read<TaskRecord> {
        let whole = format!("the record of task {slot} of checkpoint {at}");
        self.try_record(at, slot, record).map_err(located(whole))
    }

    fn try_record(&self, at: CheckpointId, slot: u32, record: &TaskRecord) -> Result<TaskRecord, Fault> {
        let must = self.must_be_encrypted(at);
        let plain = || if must { Err(Fault::Plain) } else { Ok(record.clone()) };
        let part = |name: &str, text: &str| self.open_at(Part::Record, name, at, slot, text);
        let effects = |once| self.effects(at, slot, once);
        Ok(match record {
            TaskRecord::Finished { update, targets, failure } => {
                let (update, found) = self.update(update)?;
                let Some(found) = found else {
                    if must {
                        return Err(Fault::Plain);
                    }
                    let (targets, failure) = (targets.clone(), failure.clone());
                    return Ok(TaskRecord::Finished { update, targets, failure });
                };
                if !self.is_of(found, None, at.0, slot) {
                    return Err(Fault::Moved("it is of another task".to_owned()));
                }
                match targets.as_slice() {
                    [RecordedTarget::Send { node, item }] if node.as_str() == SEALED => {
                        let rest: Finished = parse(&part("finished", item)?)?;
                        TaskRecord::Finished { update, targets: rest.targets, failure: rest.failure }
                    }
                    // A later checkpoint applied it.
                    [] if found.at.is_some() && failure.is_none() => {
                        TaskRecord::Finished { update, targets: Vec::new(), failure: None }
                    }
                    _ => return Err(Fault::Plain),
                }
            }
            TaskRecord::Started { attempts, once } => {
                TaskRecord::Started { attempts: *attempts, once: effects(once)? }
            }
            TaskRecord::Cancelled { once } => TaskRecord::Cancelled { once: effects(once)? },
            TaskRecord::Failed { attempts, error, once } => {
                let error = match self.keys.is_some() && is_sealed(error) {
                    true => parse(&part("failed", error)?)?,
                    false if must => return Err(Fault::Plain),
                    false => error.clone(),
                };
                TaskRecord::Failed { attempts: *attempts, error, once: effects(once)? }
            }
            TaskRecord::Interrupted { questions, attempts, once, answers, asked, error } => {
                let once = effects(once)?;
                let rest = match questions.as_slice() {
                    [Question { key, question, .. }] if self.keys.is_some() && key == SEALED => {
                        parse(&part("interrupted", question)?)?
                    }
                    _ if must => return plain(),
                    _ => Interrupted {
                        questions: questions.clone(),
                        answers: answers.clone(),
                        asked: asked.clone(),
                        error: error.clone(),
                    },
                };
                let Interrupted { questions, answers, asked, error } = rest;
                TaskRecord::Interrupted { questions, answers, asked, attempts: *attempts, error, once }
            }
            TaskRecord::Handled { failure, handler } => {
                let failure = match self.keys.is_some() && failure.node.as_str() == SEALED {
                    true => parse(&part("handled", &failure.message)?)?,
                    false if must => return plain(),
                    false => failure.clone(),
                };
                TaskRecord::Handled { failure, handler: Box::new(self.try_record(at, slot, handler)?) }
            }
        })
    }

    fn effects(
        &self,
        at: CheckpointId,
        slot: u32,
        once: &BTreeMap<String, RawJson>,
    ) -> Result<BTreeMap<String, RawJson>, Fault> {
        let effects = once.iter().map(|(name, result)| {
            let opened = self.open_at(Part::Effect, name, at, slot, result)?;
            Ok((name.clone(), opened.into()))
        });
        effects.collect()
    }
}
