//! What a state says about its channels.

use std::{borrow::Cow, error::Error};

use serde_json::Value;

/// What is known of a channel, apart from its value.
#[derive(Clone, Debug)]
pub struct Channel {
    /// The field's name. Checkpoints refer to channels by name.
    pub name: Cow<'static, str>,
    /// The names it had before: what is stored under them is read, and stored under the present one from then on.
    pub was: Cow<'static, [Cow<'static, str>]>,
    /// Whether it takes one write per superstep.
    pub exclusive: bool,
    /// Whether only the next superstep sees what is written to it.
    pub ephemeral: bool,
    /// The version of what is stored of it, from 1.
    pub version: u32,
    /// Brings what an older version stored to the present one; there if `version` is not 1.
    pub migrate: Option<Migrate>,
    /// Whether a thread cannot do without a value of it.
    pub required: bool,
    /// Whether it is never stored: only the run that writes it sees it.
    pub untracked: bool,
}

impl Channel {
    /// Whether this is, or was, the channel's name.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.was.iter().any(|was| was == name)
    }
}

/// A function that brings the JSON of a channel from an older version to the present one; see [`Channel::migrate`].
///
/// It is given the JSON, the version that wrote it, and whether it is a value or a write.
///
/// # Determinism
/// The result depends on the arguments only. What is stored stays as it is, and is migrated again when it is loaded.
pub type Migrate = fn(Value, u32, Stored) -> Result<Value, Box<dyn Error + Send + Sync>>;

/// Which of the two forms of a channel is stored. Their JSON often looks the same, and need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    /// The value, as snapshots have it.
    Value,
    /// One write, as updates have it; it is folded after it is migrated.
    Write,
}

/// The full value of a channel, or, under a name that begins with `$`, something that the driver keeps beside them. To a
/// checkpointer it is all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelValue {
    /// The channel's name.
    pub channel: String,
    /// Its value as JSON.
    pub json: Vec<u8>,
}
