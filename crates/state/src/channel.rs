//! The channels of a state.

use std::{borrow::Cow, error::Error};

use serde_json::Value;

use crate::RawJson;

/// The description of a channel, without its value.
#[derive(Clone, Debug)]
pub struct Channel {
    /// The field's name. Checkpoints refer to channels by name.
    pub name: Cow<'static, str>,
    /// The former names: data stored under them is read, and stored under the current name from then on.
    pub was: Cow<'static, [Cow<'static, str>]>,
    /// `true` if it accepts one write per superstep.
    pub exclusive: bool,
    /// `true` if only the next superstep sees its writes.
    pub ephemeral: bool,
    /// The version of its stored data, from 1.
    pub version: u32,
    /// The migration from older versions to the current one; set if `version` is not 1.
    pub migrate: Option<Migrate>,
    /// `true` if a thread must have a value of it.
    pub required: bool,
    /// `true` if it is never stored, so that only the run that writes it sees it.
    pub untracked: bool,
}

impl Channel {
    /// Returns whether this is the channel's name or one of its former names.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.was.iter().any(|was| was == name)
    }
}

/// A function that migrates the JSON of a channel from an older version to the current one; see
/// [`Channel::migrate`].
///
/// Its arguments are the JSON, the version that wrote it, and whether it is a value or a write.
///
/// # Determinism
/// The result depends on the arguments only. The stored data is not changed; it is migrated again at each
/// load.
pub type Migrate = fn(Value, u32, Stored) -> Result<Value, Box<dyn Error + Send + Sync>>;

/// The two stored forms of a channel. Their JSON may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    /// The value, in the form of snapshots.
    Value,
    /// One write, in the form of updates; it is folded after its migration.
    Write,
}

/// The full value of a channel. A name that begins with `$` marks a driver's entry, stored with the channels;
/// a checkpointer treats both alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelValue {
    /// The channel's name.
    pub channel: String,
    /// The value of the channel as JSON.
    pub json: RawJson,
}
