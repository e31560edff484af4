//! The stored forms of updates and states, with the errors that name their node.

use serde::ser::Error as _;
use superstep_engine::NodeName;
use superstep_state::{
    ChannelValue, Snapshot, StoredUpdate, WriteError,
    internal::{Unencoded, UnencodedChannel, encode},
};

use crate::{RunError, State, run::thread_writer::SnapshotSource};

/// Returns the stored form of an update.
///
/// # Errors
/// [`RunError::UndeclaredChannel`], [`RunError::UnfitWrite`] and [`RunError::Encode`], in the name of `node`.
pub(crate) fn encode<S: State>(
    state: &S,
    update: &S::Update,
    step: i64,
    node: &NodeName,
    scratch: &mut Vec<u8>,
) -> Result<StoredUpdate, RunError> {
    encode::encode(state, update, scratch).map_err(|refused| unencoded(refused, step, node))
}

/// Creates the error of an update that has no stored form.
pub(super) fn unencoded(refused: Unencoded, step: i64, node: &NodeName) -> RunError {
    match refused {
        Unencoded::Write(error) => refused_write(error, step, node),
        Unencoded::Json { channel, source } => RunError::Encode { node: node.clone(), channel, step, source },
    }
}

/// Rejects an update that does not fit the state.
pub(super) fn check<S: State>(
    state: &S,
    update: &S::Update,
    step: i64,
    node: &NodeName,
) -> Result<(), RunError> {
    state.check(update).map_err(|error| refused_write(error, step, node))
}

fn refused_write(error: WriteError, step: i64, node: &NodeName) -> RunError {
    let node = node.clone();
    match error {
        WriteError::Undeclared { channel, declared } => {
            RunError::UndeclaredChannel { node, step, channel, declared }
        }
        WriteError::Unfit { channel, place, reason } => {
            RunError::UnfitWrite { node, step, channel, place, reason }
        }
        // This version of the program handles all variants.
        other => {
            let source = serde_json::Error::custom(other);
            RunError::Encode { node, channel: None, step, source }
        }
    }
}

/// A state of which a snapshot may be stored.
pub(super) struct DueSnapshot<'a, S> {
    pub(super) state: &'a S,
    pub(super) step: i64,
}

impl<S: State> SnapshotSource for DueSnapshot<'_, S> {
    fn fits(&self, most: usize) -> Option<bool> {
        encode::snapshot_fits(self.state, most)
    }

    fn typed(&self) -> Result<Snapshot, RunError> {
        encode::keep_snapshot(self.state).map_err(|refused| unencoded_channel(refused, self.step))
    }

    fn encoded(&self) -> Result<Vec<ChannelValue>, RunError> {
        snapshot(self.state, self.step)
    }
}

/// Returns the full value of every channel, and their versions.
pub(crate) fn snapshot<S: State>(state: &S, step: i64) -> Result<Vec<ChannelValue>, RunError> {
    encode::snapshot(state).map_err(|refused| unencoded_channel(refused, step))
}

fn unencoded_channel(refused: UnencodedChannel, step: i64) -> RunError {
    RunError::EncodeChannel { channel: refused.channel, step, source: refused.source }
}
