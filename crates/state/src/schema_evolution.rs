//! A reader for data stored by programs with other versions of the state.
//!
//! An update and a snapshot are stored as objects with an entry for each channel, and entries of the driver's own, see
//! [`keys`].
//!
//! Start at [`ThreadDecoder`].

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use superstep_engine::ChannelSet;

use crate::{
    Channel, ChannelValue, Panicked, RawJson, Snapshot, State, Stored, StoredUpdate, Update,
    encode::unpanicked,
    state::{clear_ephemeral, fold},
    stored_update::{
        StoredEntries, Versions, has_versions,
        keys::{self, CLEAR, KEPT, VERSIONS},
        split_versions, unknown_entry,
    },
    typed_update,
};

type Cause = Box<dyn Error + Send + Sync>;

/// A decoder of a thread's stored parts, in the order in which they were stored.
pub struct ThreadDecoder<S: State> {
    /// The state decoded so far.
    pub state: S,
    /// The data of channels that the state does not have.
    pub unknown: UnknownChannels,
    /// The channels that have a value or a write of a finished task.
    pub present: ChannelSet,
    /// The folded updates, if they are to be retained; see [`Made`].
    pub made: Option<Made<S>>,
    /// The channels whose version is not 1.
    versioned: ChannelSet,
}

/// The reason why stored data cannot be read.
pub enum Unreadable {
    /// A program with a later version of the channel stored it.
    Newer {
        /// The channel.
        channel: Cow<'static, str>,
        /// The stored version.
        stored: u32,
        /// The version of this program.
        known: u32,
    },
    /// The data does not fit the types, or cannot be migrated or folded.
    Decode(Cause),
}

/// Data of an older version that cannot be migrated to the current one.
#[derive(Debug, thiserror::Error)]
#[error("channel `{channel}` cannot be migrated from version {from} to {to}")]
struct MigrateError {
    channel: Cow<'static, str>,
    from: u32,
    to: u32,
    source: Cause,
}

/// A value in the form of snapshots.
struct ChannelJson {
    name: String,
    version: u32,
    json: RawJson,
    /// `true` if a program without the channel retained it. An ephemeral value has then expired.
    late: bool,
}

impl ChannelJson {
    fn new(name: String, json: RawJson, versions: &Versions) -> Self {
        Self { version: version_of(versions, &name), name, json, late: false }
    }
}

impl<S: State> ThreadDecoder<S> {
    /// Creates a decoder. `initial` is the state of a thread without writes.
    pub fn new(initial: S) -> Self {
        let versioned = initial.channels().iter().enumerate().filter(|(_, channel)| channel.version != 1);
        let versioned = versioned.map(|(position, _)| position).collect();
        Self {
            state: initial,
            unknown: UnknownChannels::default(),
            present: ChannelSet::EMPTY,
            made: None,
            versioned,
        }
    }

    /// Takes the state from a snapshot. An error names the channel at fault.
    pub fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), (String, Unreadable)> {
        if let Some(state) = snapshot.get(&self.state) {
            self.state = state.clone();
            self.present = (0..self.state.channels().len()).collect();
            return Ok(());
        }
        let channels = snapshot.channels().map_err(|cause| ("of a snapshot".to_owned(), cause.into()))?;
        self.encoded_snapshot(channels.into_owned())
    }

    fn encoded_snapshot(&mut self, channels: Vec<ChannelValue>) -> Result<(), (String, Unreadable)> {
        let (mut versions, mut unknown) = (Versions::new(), UnknownChannels::default());
        let mut values = Vec::with_capacity(channels.len());
        for ChannelValue { channel, json } in channels {
            let read = match channel.as_str() {
                VERSIONS => serde_json::from_str(&json).map(|read| versions = read),
                KEPT => serde_json::from_str(&json).map(|read| unknown = read),
                name if keys::is_own(name) => Err(unknown_entry(name)),
                _ => {
                    values.push((channel, json));
                    continue;
                }
            };
            read.map_err(|cause| (channel, cause.into()))?;
        }
        let mut values: Vec<_> =
            values.into_iter().map(|(name, json)| ChannelJson::new(name, json, &versions)).collect();
        for (name, json) in unknown.values.entries {
            values.push(ChannelJson {
                late: true,
                ..ChannelJson::new(name, json.into(), &unknown.values.versions)
            });
        }
        self.values(values)?;
        for update in unknown.updates {
            let folded = self.split(update, true).and_then(|(update, rest)| self.fold(update, rest));
            folded.map_err(|unfit| (KEPT.to_owned(), unfit))?;
        }
        Ok(())
    }

    /// Resets the ephemeral channels of the previous superstep.
    pub fn begin_superstep(&mut self) -> Result<(), Unreadable> {
        if !self.made.as_ref().is_some_and(Made::is_empty) {
            clear_ephemeral(&mut self.state).map_err(|error| Unreadable::Decode(error.into()))?;
        }
        if let Some(made) = &mut self.made {
            made.begin_superstep();
        }
        Ok(())
    }

    /// Folds an update of a committed superstep.
    pub fn update(&mut self, stored: &StoredUpdate) -> Result<(), Unreadable> {
        let (update, rest) = self.read(stored)?;
        self.fold(update, rest)
    }

    /// Decodes the update of a finished task of an incomplete superstep.
    pub fn record(&mut self, slot: u32, stored: &StoredUpdate) -> Result<S::Update, Unreadable> {
        let (update, rest) = self.read(stored)?;
        self.present = self.present.union(self.state.written(&update));
        if !rest.is_empty() {
            self.unknown.tasks.insert(slot, rest);
        }
        Ok(update)
    }

    fn fold(&mut self, update: S::Update, rest: StoredEntries) -> Result<(), Unreadable> {
        self.present = self.present.union(self.state.written(&update));
        if !rest.is_empty() {
            self.unknown.updates.push(rest);
        }
        if let Some(made) = &mut self.made {
            made.push(update.clone());
        }
        fold(&mut self.state, update).map_err(|error| Unreadable::Decode(error.into()))
    }

    /// Decodes the values of a snapshot.
    fn values(&mut self, values: Vec<ChannelJson>) -> Result<(), (String, Unreadable)> {
        // A channel may be stored under two names if an older program continued after a rename. The current
        // name counts; the other is retained.
        let is_present = |value: &ChannelJson| position(self.state.channels(), &value.name).is_some();
        let (now, before): (Vec<_>, Vec<_>) = values.into_iter().partition(is_present);
        for ChannelJson { name, version, json, late } in now.into_iter().chain(before) {
            match find(self.state.channels(), &name) {
                Some((_, channel)) if late && channel.ephemeral => {}
                Some((position, _)) if !self.present.contains(position) => {
                    self.value(position, version, &json).map_err(|unfit| (name, unfit))?;
                }
                _ => match serde_json::from_str(&json) {
                    Ok(json) => self.unknown.values.put(name, version, json),
                    Err(error) => return Err((name, error.into())),
                },
            }
        }
        Ok(())
    }

    fn value(&mut self, position: usize, version: u32, json: &str) -> Result<(), Unreadable> {
        let channel = &self.state.channels()[position];
        if version == channel.version {
            unpanicked("Deserialize", || self.state.decode(position, json.as_bytes()))?;
        } else {
            let json = migrate(channel, version, Stored::Value, serde_json::from_str(json)?)?;
            unpanicked("Deserialize", || self.state.decode(position, json.get().as_bytes()))?;
        }
        self.present.insert(position);
        Ok(())
    }

    /// Reads an update, and the part of it that the state does not know.
    fn read(&self, stored: &StoredUpdate) -> Result<(S::Update, StoredEntries), Unreadable> {
        if let Some(update) = typed_update::get(stored, &self.state) {
            return Ok((update.clone(), StoredEntries::default()));
        }
        let json = stored.json()?;
        let direct = match self.without_versions(&json)? {
            Some((listed, json)) => self.read_present(listed, &json),
            None if has_versions(&json) => Ok(None),
            None => self.read_present(ChannelSet::EMPTY, json.as_bytes()),
        };
        if let Ok(Some(update)) = direct {
            return Ok((update, StoredEntries::default()));
        }
        let entries: StoredEntries = serde_json::from_str(&json)?;
        let of_today = entries.is_unversioned(&|name| position(self.state.channels(), name).is_some());
        match (self.split(entries, false), direct) {
            // It names the place in the stored data.
            (Err(Unreadable::Decode(cause)), Err(error)) if of_today && cause.is::<serde_json::Error>() => {
                Err(error.into())
            }
            (split, _) => split,
        }
    }

    /// Reads an update in which the channels of `listed` have their current version, and all others have
    /// version 1. `None` if one of these is not the channel's current version.
    fn read_present(&self, listed: ChannelSet, json: &[u8]) -> serde_json::Result<Option<S::Update>> {
        let update = unpanicked("Deserialize", || self.state.read_update(json))?;
        let written = self.state.written(&update);
        Ok((written.intersection(self.versioned) == listed).then_some(update))
    }

    /// Splits an update into the channels of its versions and the rest. `None` if it does not begin with
    /// versions, or if a version differs from this program's.
    fn without_versions(&self, stored: &RawJson) -> Result<Option<(ChannelSet, Vec<u8>)>, Unreadable> {
        let Some((versions, rest)) = split_versions(stored)? else { return Ok(None) };
        let mut listed = ChannelSet::EMPTY;
        for (name, version) in versions {
            match position(self.state.channels(), &name) {
                Some(position) if self.state.channels()[position].version == version => {
                    listed.insert(position)
                }
                _ => return Ok(None),
            }
        }
        Ok(Some((listed, rest)))
    }

    /// Splits an update into the known part, migrated to its current form, and the unknown part. For `late`,
    /// see [`ChannelJson`].
    fn split(&self, update: StoredEntries, late: bool) -> Result<(S::Update, StoredEntries), Unreadable> {
        let StoredEntries { versions, mut entries, then } = update;
        let (mut known, mut rest) = (BTreeMap::new(), StoredEntries::default());
        if let Some(cleared) = entries.remove(CLEAR) {
            let names: Vec<String> = serde_json::from_str(cleared.get())?;
            let names = names.into_iter().map(|name| (find(self.state.channels(), &name), name));
            let names =
                names.filter(|(found, _)| !found.is_some_and(|(_, channel)| late && channel.ephemeral));
            let (ours, others): (Vec<_>, Vec<_>) = names.partition(|(found, _)| found.is_some());
            for (names, entries) in [(ours, &mut known), (others, &mut rest.entries)] {
                let names: Vec<_> = names.into_iter().map(|(_, name)| name).collect();
                if !names.is_empty() {
                    entries.insert(CLEAR.to_owned(), to_raw_value(&names)?);
                }
            }
        }
        for (name, json) in entries {
            let version = version_of(&versions, &name);
            match find(self.state.channels(), &name) {
                Some((_, channel)) if late && channel.ephemeral => {}
                Some((_, channel)) => {
                    let json = migrate(channel, version, Stored::Write, json)?;
                    if known.insert(channel.name.to_string(), json).is_some() {
                        let twice = format!("channel `{}` is written under two of its names", channel.name);
                        return Err(Unreadable::Decode(twice.into()));
                    }
                }
                None => rest.put(name, version, json),
            }
        }
        let json = serde_json::to_vec(&known)?;
        let mut known: S::Update = unpanicked("Deserialize", || serde_json::from_slice(&json))?;
        for mut later in then {
            for (name, version) in &versions {
                later.versions.entry(name.clone()).or_insert(*version);
            }
            let (update, unknown) = self.split(later, late)?;
            known = Update::then(known, update);
            if !unknown.is_empty() {
                rest.then.push(unknown);
            }
        }
        Ok((known, rest))
    }
}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self::Decode(error.into())
    }
}

/// Stored data of channels that the state does not have. It is copied from snapshot to snapshot, so that a
/// program with those channels can read it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnknownChannels {
    #[serde(default, skip_serializing_if = "StoredEntries::is_empty")]
    values: StoredEntries,
    /// The writes after the snapshot that had their values, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    updates: Vec<StoredEntries>,
    /// The writes of finished tasks whose superstep is incomplete, by slot.
    #[serde(skip)]
    tasks: BTreeMap<u32, StoredEntries>,
}

impl UnknownChannels {
    /// Returns whether there is no such data.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.updates.is_empty() && self.tasks.is_empty()
    }

    /// Returns the names of the channels.
    pub fn channels(&self) -> Vec<String> {
        let objects = [&self.values].into_iter().chain(&self.updates).chain(self.tasks.values());
        let names: BTreeSet<String> = objects.flat_map(StoredEntries::channels).collect();
        names.into_iter().collect()
    }

    /// Advances to the next checkpoint. Writes of the tasks in the slots of `folded` become an update; others
    /// are retained only if their slot is `carried`.
    pub fn commit(&mut self, folded: impl IntoIterator<Item = u32>, carried: impl Fn(u32) -> bool) {
        if self.tasks.is_empty() {
            return;
        }
        for slot in folded {
            self.updates.extend(self.tasks.remove(&slot));
        }
        self.tasks.retain(|slot, _| carried(*slot));
    }

    /// Returns the entry of a snapshot for it, if there is anything.
    pub fn entry(&self) -> Option<ChannelValue> {
        if self.values.is_empty() && self.updates.is_empty() {
            return None;
        }
        let json = serde_json::to_vec(self).expect("what was read as JSON becomes JSON");
        let json = RawJson::written(json);
        Some(ChannelValue { channel: KEPT.to_owned(), json })
    }
}

fn version_of(versions: &Versions, name: &str) -> u32 {
    versions.get(name).copied().unwrap_or(1)
}

/// Returns the stored channel that has this name now.
fn position(channels: &[Channel], name: &str) -> Option<usize> {
    channels.iter().position(|channel| channel.name == name && !channel.untracked)
}

/// Returns the stored channel with this name or former name. Data under the name of an untracked channel is
/// outdated and ignored.
fn find<'a>(channels: &'a [Channel], name: &str) -> Option<(usize, &'a Channel)> {
    channels.iter().enumerate().find(|(_, channel)| channel.is_called(name) && !channel.untracked)
}

/// Returns the JSON in the present version of the channel. A migration that panics fails.
fn migrate(
    channel: &Channel,
    from: u32,
    stored: Stored,
    json: Box<RawValue>,
) -> Result<Box<RawValue>, Unreadable> {
    let to = channel.version;
    if from == to {
        return Ok(json);
    }
    if from > to {
        return Err(Unreadable::Newer { channel: channel.name.clone(), stored: from, known: to });
    }
    let failed = |source: Cause| {
        Unreadable::Decode(MigrateError { channel: channel.name.clone(), from, to, source }.into())
    };
    let migrate = channel.migrate.ok_or_else(|| failed("it has no `migrate`".into()))?;
    let json = serde_json::from_str(json.get())?;
    let migrated = catch_unwind(AssertUnwindSafe(|| migrate(json, from, stored)));
    let migrated = migrated.unwrap_or_else(|panic| Err(Box::new(Panicked::from_payload(&*panic))));
    Ok(to_raw_value(&migrated.map_err(failed)?)?)
}

/// The updates since a graph started with its caller's state.
pub struct Made<S: State> {
    updates: Vec<S::Update>,
    /// The index where the last superstep begins.
    last: usize,
}

impl<S: State> Made<S> {
    /// Begins another superstep.
    pub fn begin_superstep(&mut self) {
        self.last = self.updates.len();
    }

    /// Adds a folded update.
    pub fn push(&mut self, update: S::Update) {
        self.updates.push(update);
    }

    /// Returns whether no update was folded, not even the input, so that ephemeral values are still visible.
    pub fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    /// Returns all updates in fold order, without expired ephemeral writes. `state` is any state of the
    /// graph.
    pub fn into_updates(self, state: &S) -> Vec<S::Update> {
        let Self { mut updates, last } = self;
        let channels = (0..).zip(state.channels());
        let lasting: ChannelSet =
            channels.filter(|(_, channel)| !channel.ephemeral).map(|(position, _)| position).collect();
        for update in &mut updates[..last] {
            state.restrict(update, lasting);
        }
        updates
    }
}

impl<S: State> Default for Made<S> {
    fn default() -> Self {
        Self { updates: Vec::new(), last: 0 }
    }
}
