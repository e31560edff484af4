//! What is stored, as JSON.

mod floats;

use std::{borrow::Cow, cell::Cell, io};

use serde::Serialize as _;
use serde_json::{Serializer, ser::Formatter};
use superstep_engine::{ChannelSet, NodeName};

use crate::{Channel, ChannelValue, RunError, State, WriteError, evolve};

/// An update as it is stored: its JSON form, with the versions of its channels in front.
///
/// `scratch` is where it is written first: what is returned has the size it needs and was allocated once.
pub(crate) fn encode<S: State>(
    state: &S,
    update: &S::Update,
    step: i64,
    node: &NodeName,
    scratch: &mut Vec<u8>,
) -> Result<Vec<u8>, RunError> {
    check(state, update, step, node)?;
    let update = &*state.stored(update);
    scratch.clear();
    evolve::write_versions(state.channels(), state.written(update), scratch);
    let versions = scratch.len();
    write(state, update, scratch).map_err(|source| {
        let channel = unfit(state, update);
        RunError::Encode { node: node.clone(), channel, step, source }
    })?;
    if versions > 0 {
        // The object goes on with its channels. There are some, for the versions are theirs.
        scratch[versions] = b',';
    }
    Ok(scratch.as_slice().to_vec())
}

/// Writes the JSON form of an update behind what is written already.
fn write<S: State>(state: &S, update: &S::Update, written: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let (begin, nulls) = (written.len(), Cell::new(false));
    update.serialize(&mut Serializer::with_formatter(&mut *written, NoteNulls(&nulls)))?;
    if nulls.get() && floats::has_no_number(update) {
        state.read_update(&written[begin..])?;
    }
    Ok(())
}

/// The channel to which an update writes what has no JSON form: the first whose write has none by itself.
fn unfit<S: State>(state: &S, update: &S::Update) -> Option<Cow<'static, str>> {
    let written = state.written(update);
    let found = state.channels().iter().enumerate().find(|&(position, _)| {
        let mut alone = update.clone();
        state.restrict(&mut alone, ChannelSet::from_iter([position]));
        written.contains(position) && write(state, &alone, &mut Vec::new()).is_err()
    });
    found.map(|(_, channel)| channel.name.clone())
}

/// Refuses an update that does not fit the state.
pub(crate) fn check<S: State>(
    state: &S,
    update: &S::Update,
    step: i64,
    node: &NodeName,
) -> Result<(), RunError> {
    state.check(update).map_err(|error| {
        let node = node.clone();
        match error {
            WriteError::Undeclared { channel, declared } => {
                RunError::UndeclaredChannel { node, step, channel, declared }
            }
            WriteError::Unfit { channel, place, reason } => {
                RunError::UnfitWrite { node, step, channel, place, reason }
            }
        }
    })
}

/// Writes compact JSON and notes what may have lost something: floats that are no numbers are written as `null`, which
/// is no float when it is read. What was stored so could never be loaded again. Most nulls were meant, and only a walk
/// through the value can tell.
struct NoteNulls<'a>(&'a Cell<bool>);

impl Formatter for NoteNulls<'_> {
    fn write_null<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.set(true);
        writer.write_all(b"null")
    }
}

/// Whether a JSON text may have such a `null`.
fn has_null(json: &[u8]) -> bool {
    // A text is searched many bytes at a time, a slice is not.
    str::from_utf8(json).is_ok_and(|json| json.contains("null"))
}

/// The full value of every channel, and their versions.
pub(crate) fn snapshot<S: State>(state: &S, step: i64) -> Result<Vec<ChannelValue>, RunError> {
    let channel = |(position, channel): (usize, &Channel)| {
        let json = state.encode(position).and_then(|json| {
            if has_null(&json) {
                state.clone().decode(position, &json)?;
            }
            Ok(json)
        });
        let json =
            json.map_err(|source| RunError::EncodeChannel { channel: channel.name.clone(), step, source })?;
        Ok(ChannelValue { channel: channel.name.to_string(), json })
    };
    let stored = state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked);
    let channels = stored.map(channel);
    channels.chain(evolve::versions(state.channels()).map(Ok)).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_float_is_read_as_it_was_written() {
        // Digits that are read one off by a parser that is quick rather than exact.
        let written = 0.10003720659228472_f64;
        let json = serde_json::to_vec(&written).expect("a float has a JSON form");
        let read: f64 = serde_json::from_slice(&json).expect("it was just written");
        assert_eq!(read.to_bits(), written.to_bits());
    }
}
