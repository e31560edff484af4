//! The stored form of updates and values, as JSON.
//!
//! Every stored value can be read back and is then equal; see [`checked`]. Debug builds verify this for each
//! write.

mod checked;

use std::{
    borrow::Cow,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde::{Serialize, de::DeserializeOwned, ser::Error as _};
use superstep_engine::ChannelSet;

use self::checked::{Mode, OTHER, Unstorable, same};
use crate::{
    Channel, ChannelValue, Panicked, RawJson, State, StoredUpdate, WriteError,
    fingerprint::{exact, exact_of},
    stored_update::{keys, versions},
};

pub use checked::MAX_DEPTH;
pub use checked::{check_depth, is_deeper, to_string, to_value, to_value_of};

/// The maximum nesting of readers while they read a value; a deeper reader would stop.
pub const READABLE: usize = 126;

/// An update that cannot be stored.
#[derive(Debug)]
pub enum Unencoded {
    /// The update does not fit the state.
    Write(WriteError),
    /// The value cannot be read back as equal from its JSON.
    Json {
        /// The channel at fault, if known.
        channel: Option<Cow<'static, str>>,
        /// The cause.
        source: serde_json::Error,
    },
}

/// A channel whose value cannot be read back as equal from its JSON.
#[derive(Debug)]
pub struct UnencodedChannel {
    /// The channel.
    pub channel: Cow<'static, str>,
    /// The cause.
    pub source: serde_json::Error,
}

impl UnencodedChannel {
    /// Converts to one error, which names the channel.
    pub(crate) fn into_error(self) -> serde_json::Error {
        serde_json::Error::custom(format!("channel `{}`: {}", self.channel, self.source))
    }
}

/// Encodes an update as it is stored. `scratch` is where it is written first, see `StoredUpdate::write`.
pub fn encode<S: State>(
    state: &S,
    update: &S::Update,
    scratch: &mut Vec<u8>,
) -> Result<StoredUpdate, Unencoded> {
    state.check(update).map_err(Unencoded::Write)?;
    let update = &*state.stored(update);
    let unencoded = |unstorable: Unstorable| {
        let channel = unstorable.path.first().cloned().map(Cow::Owned);
        Unencoded::Json { channel, source: unstorable.into_error(1) }
    };
    let write = |json: &mut Vec<u8>| write(state, update, json).map_err(unencoded);
    StoredUpdate::write(state.channels(), state.written(update), scratch, write)
}

/// Appends the JSON form of an update.
fn write<S: State>(state: &S, update: &S::Update, written: &mut Vec<u8>) -> Result<(), Unstorable> {
    let begin = written.len();
    let panics = |error| {
        let path = panicking(state, update).into_iter().collect();
        Err(Unstorable { path, error })
    };
    let doubtful = match unpanicked("Serialize", || Ok(checked::write(update, Mode::Update, written))) {
        Ok(doubtful) => doubtful.map_err(of_channel)?,
        Err(panic) => return panics(panic),
    };
    if doubtful || cfg!(debug_assertions) {
        match unpanicked("Deserialize", || Ok(survives(state, update, &written[begin..]))) {
            Ok(survives) => survives.map_err(of_channel)?,
            Err(panic) => return panics(panic),
        }
    }
    Ok(())
}

/// Returns the first channel whose write panics when it is encoded alone.
fn panicking<S: State>(state: &S, update: &S::Update) -> Option<String> {
    let written = state.written(update);
    let panics = |position: usize| {
        let mut alone = update.clone();
        state.restrict(&mut alone, ChannelSet::from_iter([position]));
        let write = || Ok(checked::write(&alone, Mode::Update, &mut Vec::new()).is_ok());
        unpanicked("Serialize", write).is_err()
    };
    let found = written.iter().find(|position| panics(*position))?;
    Some(state.channels()[found].name.to_string())
}

/// Runs code with a user's `Serialize` or `Deserialize`, and converts a panic into an error.
pub fn unpanicked<T>(of: &str, work: impl FnOnce() -> serde_json::Result<T>) -> serde_json::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let panicked = Panicked::from_payload(&*panic);
        Err(serde_json::Error::custom(format!("its `{of}` {panicked}")))
    })
}

/// Prefixes the path with the channel. For a chain of updates, the path starts with the position in the
/// chain.
fn of_channel(mut unstorable: Unstorable) -> Unstorable {
    if unstorable.path.first().is_some_and(|step| keys::is_own(step)) {
        unstorable.path.drain(..unstorable.path.len().min(2));
    }
    unstorable
}

/// Rejects an update that is not equal when read back.
fn survives<S: State>(state: &S, update: &S::Update, json: &[u8]) -> Result<(), Unstorable> {
    let read = state.read_update(json);
    let is_same = |written: &S::Update, read: &S::Update| {
        exact_of(written) == exact_of(read) && state.differing(written, read).is_empty()
    };
    if read.as_ref().is_ok_and(|read| is_same(update, read)) {
        return Ok(());
    }
    // Finds the channel by trying one after the other.
    let written = state.written(update);
    for (position, channel) in state.channels().iter().enumerate() {
        let only = ChannelSet::from_iter([position]);
        let mut alone = update.clone();
        state.restrict(&mut alone, only);
        let mut json = Vec::new();
        if !written.contains(position) || checked::write(&alone, Mode::Update, &mut json).is_err() {
            continue;
        }
        let path = vec![channel.name.to_string()];
        match state.read_update(&json) {
            Ok(read) if is_same(&alone, &read) => {}
            Ok(_) => {
                checked::write(&alone, Mode::Strict, &mut Vec::new())?;
                return Err(Unstorable { path, error: serde_json::Error::custom(OTHER) });
            }
            Err(error) => return Err(unreadable(&alone, path, error)),
        }
    }
    match read {
        Err(error) => Err(unreadable(update, Vec::new(), error)),
        // Each channel alone is read back as equal.
        Ok(_) => Ok(()),
    }
}

/// Returns the error of an update that cannot be read back.
fn unreadable<U: Serialize>(update: &U, path: Vec<String>, error: serde_json::Error) -> Unstorable {
    match checked::write(update, Mode::Strict, &mut Vec::new()) {
        Err(unstorable) => unstorable,
        Ok(_) => Unstorable { path, error },
    }
}

/// Returns the JSON of a value, and the value that is read back from it.
///
/// # Errors
/// If reading fails or returns another value.
pub fn read_back<T: Serialize + DeserializeOwned>(value: &T) -> Result<(T, RawJson), serde_json::Error> {
    let mut json = Vec::new();
    let doubtful = checked::write(value, Mode::Lenient, &mut json).map_err(|error| error.into_error(0))?;
    let read = match serde_json::from_slice(&json) {
        Ok(read) => read,
        // The error of the writer, if there is one, is clearer than the reader's.
        Err(error) => return Err(to_string(value).err().unwrap_or(error)),
    };
    if doubtful || cfg!(debug_assertions) {
        same(value, &read)?;
    }
    Ok((read, RawJson::written(json)))
}

/// Returns the full value of every channel, and their versions.
///
/// # Errors
/// The first channel that cannot be encoded.
pub fn snapshot<S: State>(state: &S) -> Result<Vec<ChannelValue>, UnencodedChannel> {
    let channel = |(position, channel): (usize, &Channel)| {
        let json = unpanicked("Serialize", || encode_channel(state, position));
        let json = json.map_err(|source| UnencodedChannel { channel: channel.name.clone(), source })?;
        Ok(ChannelValue { channel: channel.name.to_string(), json: RawJson::written(json) })
    };
    let stored = state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked);
    let channels = stored.map(channel);
    channels.chain(versions(state.channels()).map(Ok)).collect()
}

/// A writer with room for a number of bytes, of which it stores none. `None` after a byte more.
struct Room(Option<usize>);

impl Room {
    fn take(&mut self, bytes: usize) {
        self.0 = self.0.and_then(|room| room.checked_sub(bytes));
    }
}

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes.len());
        match self.0 {
            Some(_) => Ok(bytes.len()),
            None => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether a snapshot has at most about `most` bytes as JSON; `None` if it must be encoded to know whether it can be stored.
/// Reads no more of the state than that, so that a value behind it that cannot be stored is not found.
pub fn snapshot_fits<S: State>(state: &S, most: usize) -> Option<bool> {
    let mut room = Room(Some(most));
    for (position, channel) in state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked) {
        room.take(channel.name.len());
        let mut json = serde_json::Serializer::new(&mut room);
        let counted = || {
            Ok(checked::serialize(&mut json, Mode::Folded, |checked| {
                state.serialize_channel(position, checked)
            }))
        };
        let is_storable = matches!(unpanicked("Serialize", counted), Ok(Ok(((), false))));
        if room.0.is_none() {
            return Some(false);
        }
        if !is_storable {
            return None;
        }
    }
    Some(true)
}

/// Returns the first stored channel with different values in two states.
pub fn differing<S: State>(one: &S, other: &S) -> Option<Cow<'static, str>> {
    let print = |state: &S, position| exact(|printer| state.serialize_channel(position, printer));
    let mut stored = one.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked);
    let found = stored.find(|(position, _)| print(one, *position) != print(other, *position));
    found.map(|(_, channel)| channel.name.clone())
}

/// Returns the stored form of a channel's value.
fn encode_channel<S: State>(state: &S, channel: usize) -> Result<Vec<u8>, serde_json::Error> {
    let value = |state: &S, mode, json: &mut Vec<u8>| {
        let written = checked::write_with(mode, json, |checked| state.serialize_channel(channel, checked));
        written.map_err(|unstorable| unstorable.into_error(0))
    };
    let mut json = Vec::new();
    if value(state, Mode::Folded, &mut json)? || cfg!(debug_assertions) {
        let mut read = state.clone();
        let decoded = read.decode(channel, &json);
        let print = |state: &S| exact(|printer| state.serialize_channel(channel, printer));
        if decoded.is_err() || print(state) != print(&read) {
            value(state, Mode::Strict, &mut Vec::new())?;
            decoded?;
            return Err(serde_json::Error::custom(OTHER));
        }
    }
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::{Mode, checked};

    #[test]
    fn an_integer_that_some_readers_take_for_a_float_is_tried_always() {
        let doubtful = |value: i128| checked::write(&value, Mode::Lenient, &mut Vec::new()).unwrap();
        assert!(!doubtful(i64::MIN.into()) && !doubtful(7));
        assert!(doubtful(i128::from(i64::MIN) - 1) && doubtful(i128::MAX));
        let doubtful = |value: u128| checked::write(&value, Mode::Lenient, &mut Vec::new()).unwrap();
        assert!(!doubtful(u64::MAX.into()) && doubtful(u128::from(u64::MAX) + 1));
    }

    #[test]
    fn texts_are_written_as_serde_json_writes_them() {
        #[derive(serde::Serialize)]
        struct Texts {
            text: String,
            some: Option<String>,
            raw: Box<serde_json::value::RawValue>,
            tagged: Tagged,
            list: Vec<(String, std::path::PathBuf)>,
            #[serde(flatten)]
            more: serde_json::Map<String, serde_json::Value>,
        }
        #[derive(serde::Serialize)]
        #[serde(tag = "kind")]
        enum Tagged {
            Said { text: String },
        }
        let text = "a \"quoted\" text\nof several lines, \u{1} and a \\".repeat(3);
        let quoted = serde_json::to_string(&text).unwrap();
        let texts = Texts {
            text: text.clone(),
            some: Some(text.clone()),
            raw: serde_json::from_str(&format!("[ {quoted} ]")).unwrap(),
            tagged: Tagged::Said { text: text.clone() },
            list: vec![(text.clone(), "a/rather/long/path/of/a/file".into())],
            more: [(text.clone(), text.into())].into_iter().collect(),
        };
        let mut written = Vec::new();
        assert!(!checked::write(&texts, Mode::Lenient, &mut written).unwrap());
        assert_eq!(String::from_utf8(written).unwrap(), serde_json::to_string(&texts).unwrap());
    }

    #[test]
    fn a_map_whose_keys_and_values_do_not_pair_is_rejected() {
        struct Keys(&'static [bool]);
        impl serde::Serialize for Keys {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                for is_key in self.0 {
                    if *is_key { map.serialize_key("k")? } else { map.serialize_value(&1)? }
                }
                map.end()
            }
        }
        let is_written = |parts| checked::write(&Keys(parts), Mode::Lenient, &mut Vec::new()).is_ok();
        assert!(is_written(&[true, false, true, false]) && is_written(&[]));
        assert!(!is_written(&[true]) && !is_written(&[false]) && !is_written(&[true, true, false]));
    }

    #[test]
    fn a_float_is_read_as_it_was_written() {
        // Digits that a fast, inexact parser reads one off.
        let written = 0.10003720659228472_f64;
        let json = serde_json::to_vec(&written).expect("a float has a JSON form");
        let read: f64 = serde_json::from_slice(&json).expect("it was just written");
        assert_eq!(read.to_bits(), written.to_bits());
    }
}
