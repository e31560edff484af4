//! The stored form of an update.
//!
//! ```text
//! {"$v": {"log": 2}, "log": […], "answer": …, "clear": ["log"], "$then": [{…}, …], "$recorded": {…}}
//!  versions          a write for each channel  reset channels   later updates       inputs of the task
//! ```
//!
//! All entries are optional. The names of the entries that are not channels are in [`keys`].
//!
//! Start at [`StoredUpdate`].

use std::{any::Any, borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use superstep_engine::ChannelSet;

use crate::{Channel, ChannelValue, RawJson};

/// The entries of a stored update, or of a snapshot, that are not channels.
pub mod keys {
    /// The versions of the channels whose version is not 1. In both.
    pub const VERSIONS: &str = "$v";
    /// The names of the channels that start over. In an update.
    pub const CLEAR: &str = "clear";
    /// The updates that are folded right after this one. In an update.
    pub const THEN: &str = "$then";
    /// The recorded inputs of the task that made the update. In an update.
    pub const RECORDED: &str = "$recorded";
    /// The only entry of an encrypted or compressed value, in place of the others. In both.
    pub const SEALED: &str = "$sealed";
    /// The stored parts of channels that the program does not know. In a snapshot.
    pub const KEPT: &str = "$kept";

    /// Returns whether a name belongs to the driver.
    pub fn is_own(name: &str) -> bool {
        name.starts_with('$')
    }

    /// Returns whether a channel cannot have this name.
    pub fn is_reserved(name: &str) -> bool {
        is_own(name) || name == CLEAR
    }
}

/// An update as it is stored: a JSON object with an entry for each write, or the typed update from which that object is made
/// on demand, in the process that stored it.
#[derive(Clone)]
pub struct StoredUpdate(Form);

#[derive(Clone)]
enum Form {
    Json(RawJson),
    Typed { update: Arc<dyn AnyUpdate>, recorded: Option<Arc<dyn RecordedInputs>> },
}

/// An update whose type only its readers know.
pub(crate) trait AnyUpdate: Any + Send + Sync {
    /// Returns its JSON form.
    fn encode(&self) -> serde_json::Result<StoredUpdate>;
}

/// The recorded inputs of a task, added to its update.
pub trait RecordedInputs: Send + Sync {
    /// Returns the entry of an update. Long texts that the update has as well may be references to it.
    ///
    /// # Errors
    /// If it cannot be stored.
    fn entry(&self, update: &RawJson) -> serde_json::Result<Value>;

    /// Returns whether it must be made to know whether it can be stored.
    fn is_doubtful(&self) -> bool;
}

/// The beginning of an update with versions.
const WITH_VERSIONS: &str = "{\"$v\":";

/// The versions of channels, by name; 1 if there is none.
pub(crate) type Versions = BTreeMap<String, u32>;

impl StoredUpdate {
    /// An update that writes nothing.
    pub fn empty() -> Self {
        Self::written(b"{}".to_vec())
    }

    fn written(json: Vec<u8>) -> Self {
        Self(Form::Json(RawJson::written(json)))
    }

    /// Creates the typed form of an update.
    pub(crate) fn typed(update: Arc<dyn AnyUpdate>) -> Self {
        Self(Form::Typed { update, recorded: None })
    }

    /// Writes an update: the versions of its channels, and the object that `write` appends.
    ///
    /// `scratch` is where it is written first: the result has the size it needs and was allocated once.
    pub(crate) fn write<E>(
        channels: &[Channel],
        written: ChannelSet,
        scratch: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Self, E> {
        scratch.clear();
        write_versions(channels, written, scratch);
        let begin = scratch.len();
        write(scratch)?;
        if begin > 0 {
            // The entries of the channels follow. There is at least one, because the versions are those of its entries.
            scratch[begin] = b',';
        }
        Ok(Self::written(scratch.as_slice().to_vec()))
    }

    /// Returns the JSON object.
    ///
    /// # Errors
    /// If the update is typed, and a write cannot be stored as JSON.
    pub fn json(&self) -> serde_json::Result<Cow<'_, RawJson>> {
        match &self.0 {
            Form::Json(json) => Ok(Cow::Borrowed(json)),
            Form::Typed { update, recorded } => {
                let mut encoded = update.encode()?;
                if let Some(recorded) = recorded {
                    encoded.add_recorded(recorded)?;
                }
                encoded.into_json().map(Cow::Owned)
            }
        }
    }

    fn into_json(self) -> serde_json::Result<RawJson> {
        match self.0 {
            Form::Json(json) => Ok(json),
            Form::Typed { .. } => self.json().map(Cow::into_owned),
        }
    }

    /// Returns the length of the JSON object in bytes; 0 for a typed update.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Form::Json(json) => json.len(),
            Form::Typed { .. } => 0,
        }
    }

    /// Returns the typed form.
    pub(crate) fn as_typed(&self) -> Option<&dyn Any> {
        match &self.0 {
            Form::Typed { update, .. } => Some(&**update),
            Form::Json(_) => None,
        }
    }

    /// Adds the recorded inputs of the task that made it.
    ///
    /// # Errors
    /// If they cannot be stored.
    pub fn add_recorded(&mut self, inputs: &Arc<dyn RecordedInputs>) -> serde_json::Result<()> {
        match &mut self.0 {
            Form::Json(json) => {
                let entry = inputs.entry(json)?;
                json.add_entry(keys::RECORDED, &entry);
            }
            Form::Typed { update, recorded } => {
                if inputs.is_doubtful() {
                    inputs.entry(&update.encode()?.into_json()?)?;
                }
                *recorded = Some(inputs.clone());
            }
        }
        Ok(())
    }

    /// Returns the recorded inputs of the task that made it, and the rest.
    ///
    /// # Errors
    /// If it is not a JSON object.
    pub fn split_recorded(&self) -> serde_json::Result<(Option<Value>, Value)> {
        let mut update: Value = serde_json::from_str(&self.json()?)?;
        let recorded = update.as_object_mut().and_then(|entries| entries.remove(keys::RECORDED));
        Ok((recorded, update))
    }

    /// Returns whether it, or an update that follows in it, writes or clears a channel; an update that is not an object does
    /// neither.
    pub fn touches(&self, channel: &str) -> bool {
        let update = self.json().and_then(|json| serde_json::from_str::<Value>(&json));
        update.is_ok_and(|update| touches(&update, channel))
    }
}

fn touches(update: &Value, channel: &str) -> bool {
    let list = |entry: &str| update[entry].as_array().into_iter().flatten();
    update.get(channel).is_some()
        || list(keys::CLEAR).any(|name| name == channel)
        || list(keys::THEN).any(|later| touches(later, channel))
}

/// Returns whether an update begins with versions, as `StoredUpdate::write` writes them.
pub(crate) fn has_versions(update: &RawJson) -> bool {
    update.starts_with(WITH_VERSIONS)
}

/// Returns the versions with which an update begins, and its JSON without them; `None` if it has none, or only those.
pub(crate) fn split_versions(update: &RawJson) -> serde_json::Result<Option<(Versions, Vec<u8>)>> {
    let Some(json) = update.strip_prefix(WITH_VERSIONS) else { return Ok(None) };
    let mut versions = serde_json::Deserializer::from_str(json).into_iter::<Versions>();
    let Some(read) = versions.next().transpose()? else { return Ok(None) };
    let mut rest = json.as_bytes()[versions.byte_offset()..].to_vec();
    match rest.first_mut() {
        Some(comma) if *comma == b',' => *comma = b'{',
        _ => return Ok(None),
    }
    Ok(Some((read, rest)))
}

impl From<RawJson> for StoredUpdate {
    fn from(json: RawJson) -> Self {
        Self(Form::Json(json))
    }
}

impl From<String> for StoredUpdate {
    fn from(json: String) -> Self {
        RawJson::from(json).into()
    }
}

impl From<&str> for StoredUpdate {
    fn from(json: &str) -> Self {
        RawJson::from(json).into()
    }
}

impl From<&RawValue> for StoredUpdate {
    fn from(json: &RawValue) -> Self {
        RawJson::from(json).into()
    }
}

/// Writes the JSON, or the error of one that cannot be encoded.
impl fmt::Display for StoredUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.json() {
            Ok(json) => json.fmt(f),
            Err(error) => write!(f, "<{error}>"),
        }
    }
}

impl fmt::Debug for StoredUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoredUpdate").field(&format_args!("{self}")).finish()
    }
}

/// Compares the JSON.
impl PartialEq for StoredUpdate {
    fn eq(&self, other: &Self) -> bool {
        match (self.json(), other.json()) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for StoredUpdate {}

impl Serialize for StoredUpdate {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        self.json().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for StoredUpdate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawJson::deserialize(deserializer).map(Self::from)
    }
}

impl PartialEq<&str> for StoredUpdate {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl PartialEq<str> for StoredUpdate {
    fn eq(&self, other: &str) -> bool {
        self.json().is_ok_and(|json| *json == *other)
    }
}

/// Begins an object with the versions of the written channels, if any is not 1. The object stays open.
fn write_versions(channels: &[Channel], written: ChannelSet, json: &mut Vec<u8>) {
    let mut begin = WITH_VERSIONS.as_bytes();
    for channel in written.iter().map(|position| &channels[position]).filter(|channel| channel.version != 1) {
        let is_first = json.is_empty();
        json.extend_from_slice(begin);
        json.extend_from_slice(if is_first { b"{\"" } else { b"\"" });
        json.extend_from_slice(channel.name.as_bytes());
        json.extend_from_slice(b"\":");
        json.extend_from_slice(channel.version.to_string().as_bytes());
        begin = b",";
    }
    if !json.is_empty() {
        json.push(b'}');
    }
}

/// Returns the entry of a snapshot with the versions of all channels, if any of them is not 1.
// The versions are in the stored text and not in a column: an update has writes to several channels, and
// checkpointers need not know that channels have versions. States whose channels are all at version 1 pay nothing.
pub(crate) fn versions(channels: &[Channel]) -> Option<ChannelValue> {
    let versions = channels.iter().filter(|channel| channel.version != 1);
    let versions: BTreeMap<_, _> = versions.map(|channel| (&*channel.name, channel.version)).collect();
    let json = || RawJson::written(serde_json::to_vec(&versions).expect("names and numbers become JSON"));
    (!versions.is_empty()).then(|| ChannelValue { channel: keys::VERSIONS.to_owned(), json: json() })
}

/// The entries of a stored update, or the values of a snapshot, with their versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredEntries {
    pub(crate) versions: Versions,
    pub(crate) entries: BTreeMap<String, Box<RawValue>>,
    /// The updates that are folded after this one.
    pub(crate) then: Vec<StoredEntries>,
}

impl StoredEntries {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.then.is_empty()
    }

    /// Returns whether each entry satisfies `is_present`, and no version but the first is in it.
    pub(crate) fn is_unversioned(&self, is_present: &impl Fn(&str) -> bool) -> bool {
        let present = |name: &String| name == keys::CLEAR || is_present(name);
        self.versions.is_empty()
            && self.entries.keys().all(present)
            && self.then.iter().all(|later| later.is_unversioned(is_present))
    }

    /// Reads an update without following ones.
    fn single(mut entries: BTreeMap<String, Box<RawValue>>) -> serde_json::Result<Self> {
        let versions = entries.remove(keys::VERSIONS);
        let versions = versions.map(|json| serde_json::from_str(json.get())).transpose()?;
        entries.remove(keys::RECORDED);
        match entries.keys().find(|name| keys::is_own(name)) {
            Some(name) => Err(unknown_entry(name)),
            None => Ok(Self { versions: versions.unwrap_or_default(), entries, then: Vec::new() }),
        }
    }

    pub(crate) fn put(&mut self, name: String, version: u32, json: Box<RawValue>) {
        if version != 1 {
            self.versions.insert(name.clone(), version);
        }
        self.entries.insert(name, json);
    }

    /// Returns the names of the channels.
    pub(crate) fn channels(&self) -> Vec<String> {
        let mut names: Vec<_> = self.entries.keys().filter(|name| *name != keys::CLEAR).cloned().collect();
        if let Some(cleared) = self.entries.get(keys::CLEAR) {
            names.extend(serde_json::from_str::<Vec<String>>(cleared.get()).unwrap_or_default());
        }
        names.extend(self.then.iter().flat_map(Self::channels));
        names
    }
}

impl Serialize for StoredEntries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let versions = (!self.versions.is_empty()).then(|| to_raw_value(&self.versions));
        let versions = versions.transpose().map_err(serde::ser::Error::custom)?;
        let versions = versions.as_ref().map(|versions| (keys::VERSIONS, versions));
        let then = (!self.then.is_empty()).then(|| to_raw_value(&self.then));
        let then = then.transpose().map_err(serde::ser::Error::custom)?;
        let then = then.as_ref().map(|then| (keys::THEN, then));
        let entries = self.entries.iter().map(|(name, json)| (name.as_str(), json));
        serializer.collect_map(versions.into_iter().chain(entries).chain(then))
    }
}

impl<'de> Deserialize<'de> for StoredEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut entries = BTreeMap::<String, Box<RawValue>>::deserialize(deserializer)?;
        let then = entries.remove(keys::THEN);
        let mut update = Self::single(entries).map_err(D::Error::custom)?;
        if let Some(then) = then {
            // Updates in the list cannot contain lists, so that stored data does not control recursion.
            let then: Vec<_> = serde_json::from_str(then.get()).map_err(D::Error::custom)?;
            let then: Result<_, _> = then.into_iter().map(Self::single).collect();
            update.then = then.map_err(D::Error::custom)?;
        }
        Ok(update)
    }
}

pub(crate) fn unknown_entry(name: &str) -> serde_json::Error {
    let message = match name {
        keys::SEALED => {
            "it is encrypted or compressed; open its database with `SealedCheckpointer`".to_owned()
        }
        name => format!("the entry `{name}` is not of this version of superstep; use a newer one"),
    };
    serde_json::Error::custom(message)
}
