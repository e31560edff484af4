//! The user's state: a struct of channels, and the updates that change it.
//!
//! Start at [`State`]; write `#[derive(State)]` instead of implementing it.

use std::{
    error::Error,
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::Value;
use superstep_engine::ChannelSet;

use crate::{Panicked, ReduceError};

/// A struct whose fields are channels, each with a reducer.
///
/// Derive it. The derive also makes the update type, named after the state: `ChatUpdate` for `Chat`.
pub trait State: Clone + Default + Send + Sync + 'static {
    /// A partial state: for each channel a write or nothing.
    type Update: Update;

    /// The channels, in the order of the fields.
    const CHANNELS: &'static [Channel];

    /// An update that writes nothing yet.
    fn update() -> Self::Update {
        Self::Update::default()
    }

    /// Takes every ephemeral channel back to its default value.
    fn clear_ephemeral(&mut self);

    /// Folds one update, channel after channel.
    ///
    /// Use [`reduce`] to keep the old state.
    ///
    /// # Errors
    /// The first reducer that refuses. The state is half folded then and must be dropped.
    fn fold(&mut self, update: Self::Update) -> Result<(), FoldError>;

    /// The value of a channel as JSON.
    ///
    /// # Errors
    /// If the value has no JSON form, such as a map whose keys are structs.
    fn encode(&self, channel: usize) -> Result<Vec<u8>, serde_json::Error>;

    /// Sets a channel to a value that [`State::encode`] wrote.
    ///
    /// # Errors
    /// If `json` is not a value of the channel's type.
    fn decode(&mut self, channel: usize, json: &[u8]) -> Result<(), serde_json::Error>;
}

/// A partial state: for each channel a write or nothing. Made by `#[derive(State)]`.
///
/// Its JSON form is an object with one entry per written channel, `clear` for channels that start over, and `$then` for
/// the updates that follow it; see [`Update::then`].
pub trait Update:
    Clone + Default + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The channels of the state that it changes.
    const CHANNELS: &'static [Channel];

    /// The channels it writes or clears.
    fn written(&self) -> ChannelSet;

    /// Those of them that nobody else may write in the same superstep.
    fn exclusive(&self) -> ChannelSet;

    /// One update that folds as the two do, `self` first.
    ///
    /// As long as no channel is in both, the result is an ordinary update. Otherwise it goes on with a hidden list: the
    /// fields show the first part only, builder methods change the last one, and the JSON form has the others under
    /// `$then`.
    ///
    /// ```
    /// # use superstep_graph::{Log, State, Update as _, reduce};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Chat { #[channel(append)] messages: Log<String> }
    /// let update = Chat::update().messages(["a".to_owned()]).then(Chat::update().messages(["b".to_owned()]));
    /// assert_eq!(reduce(&Chat::default(), [update])?.messages, ["a".to_owned(), "b".to_owned()]);
    /// # Ok::<(), superstep_graph::FoldError>(())
    /// ```
    #[must_use]
    fn then(self, later: Self) -> Self;
}

/// What is known of a channel at compile time.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// The field's name. Checkpoints refer to channels by name.
    pub name: &'static str,
    /// The names it had before: what is stored under them is read, and stored under the present one from then on.
    pub was: &'static [&'static str],
    /// Whether only the next superstep sees what is written to it.
    pub ephemeral: bool,
    /// The version of what is stored of it, from 1.
    pub version: u32,
    /// Brings what an older version stored to the present one; there if `version` is not 1.
    pub migrate: Option<Migrate>,
    /// Whether a thread cannot do without a value of it.
    pub required: bool,
}

impl Channel {
    /// Whether this is, or was, the channel's name.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.was.contains(&name)
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

/// A write that a reducer refused.
#[derive(Debug, thiserror::Error)]
#[error("channel `{channel}` refused a write")]
pub struct FoldError {
    /// The channel's name.
    pub channel: &'static str,
    /// The reducer's reason.
    #[source]
    pub source: ReduceError,
}

/// The state after a superstep in which `updates` were made, in this order.
///
/// # Errors
/// [`FoldError`] with the first reducer that refuses; `state` is as before in any case.
///
/// # Determinism
/// Depends on its arguments only.
pub fn reduce<S: State>(state: &S, updates: impl IntoIterator<Item = S::Update>) -> Result<S, FoldError> {
    let mut next = state.clone();
    next.clear_ephemeral();
    for update in updates {
        fold(&mut next, update)?;
    }
    Ok(next)
}

/// Folds one update; a reducer that panics refuses the write.
pub(crate) fn fold<S: State>(state: &mut S, update: S::Update) -> Result<(), FoldError> {
    let written = update.written();
    catch_unwind(AssertUnwindSafe(|| state.fold(update))).unwrap_or_else(|panic| {
        let mut written = written.iter();
        let channel = match (written.next(), written.next()) {
            (Some(only), None) => S::CHANNELS[only].name,
            _ => "(one of several)",
        };
        Err(FoldError { channel, source: Box::new(Panicked::from_payload(&*panic)) })
    })
}

/// The channels of an update that start over from their default value before its writes are folded.
///
/// Its JSON form is the list of their names.
pub struct Cleared<S>(ChannelSet, PhantomData<fn() -> S>);

impl<S> Cleared<S> {
    /// Adds the channel at `position`.
    pub fn insert(&mut self, position: usize) {
        self.0.insert(position);
    }

    /// Whether the channel at `position` starts over.
    pub fn contains(&self, position: usize) -> bool {
        self.0.contains(position)
    }

    /// Adds those of another update.
    pub fn extend(&mut self, other: &Self) {
        self.0 = self.0.union(other.0);
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The channels as a set.
    pub fn channels(&self) -> ChannelSet {
        self.0
    }
}

impl<S> Clone for Cleared<S> {
    fn clone(&self) -> Self {
        Self(self.0, PhantomData)
    }
}

impl<S> Default for Cleared<S> {
    fn default() -> Self {
        Self(ChannelSet::EMPTY, PhantomData)
    }
}

impl<S> PartialEq for Cleared<S> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<S: State> fmt::Debug for Cleared<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|position| S::CHANNELS[position].name)).finish()
    }
}

impl<S: State> Serialize for Cleared<S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        serializer.collect_seq(self.0.iter().map(|position| S::CHANNELS[position].name))
    }
}

impl<'de, S: State> Deserialize<'de> for Cleared<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut cleared = Self::default();
        for name in Vec::<String>::deserialize(deserializer)? {
            let position = S::CHANNELS.iter().position(|channel| channel.is_called(&name));
            cleared
                .insert(position.ok_or_else(|| D::Error::custom(format!("no channel is named `{name}`")))?);
        }
        Ok(cleared)
    }
}

/// Deserializes a write that is there: `null` is the write `None` then, and not the absence of a write.
///
/// # Errors
/// If the value is not of type `T`.
pub fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
