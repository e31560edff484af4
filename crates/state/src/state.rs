//! The user's state: a struct of channels, and the updates that change it.
//!
//! Start at [`State`]; write `#[derive(State)]` instead of implementing it.

use std::{
    borrow::Cow,
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde::{Serialize, Serializer, de::DeserializeOwned, ser::Error as _};
use superstep_engine::ChannelSet;

use crate::{Channel, Panicked, ReduceError, derived_update::Fixed};

/// A struct whose fields are channels, each with a reducer.
///
/// Derive it. The derive also makes the update type, named after the state: `ChatUpdate` for `Chat`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no state",
    label = "does not implement `State`",
    note = "derive it, on a struct whose named fields are its channels: `#[derive(State, Clone, Debug, Default)]`"
)]
pub trait State: Clone + Default + Send + Sync + 'static {
    /// A partial state: for each channel a write or nothing.
    type Update: Update;

    /// An update that writes nothing yet.
    fn update() -> Self::Update {
        Self::Update::default()
    }

    /// The channels, in the order of the fields. They are the same for every state of a graph.
    fn channels(&self) -> &[Channel];

    /// The channels that `update` writes or clears.
    fn written(&self, update: &Self::Update) -> ChannelSet;

    /// Those of them that nobody else may write in the same superstep.
    fn exclusive(&self, update: &Self::Update) -> ChannelSet;

    /// Drops what `update` writes to, or clears of, any channel but these.
    fn restrict(&self, update: &mut Self::Update, channels: ChannelSet);

    /// Whether every write fits the state, asked before an update is folded for the first time.
    ///
    /// # Errors
    /// The first that does not. Of a state that is a struct every write does: the compiler saw to that.
    fn check(&self, _update: &Self::Update) -> Result<(), WriteError> {
        Ok(())
    }

    /// The part of `update` that is stored, if its serialized form is not that already.
    fn stored<'a>(&self, update: &'a Self::Update) -> Cow<'a, Self::Update> {
        Cow::Borrowed(update)
    }

    /// Reads an update that was stored.
    ///
    /// # Errors
    /// If it does not fit the types, or has a channel that the state does not have.
    fn read_update(&self, json: &[u8]) -> Result<Self::Update, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// The channels to which two updates write something else, as far as the types of their writes can be compared. Asked of an
    /// update and what is read back of it.
    #[doc(hidden)]
    fn differing(&self, _one: &Self::Update, _other: &Self::Update) -> ChannelSet {
        ChannelSet::EMPTY
    }

    /// Takes every ephemeral channel back to its default value.
    fn clear_ephemeral(&mut self);

    /// Takes every channel but these back to its default value.
    fn retain(&mut self, channels: ChannelSet);

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
    /// If the value has no JSON form, such as a map whose keys are structs, or the channel is untracked.
    fn encode(&self, channel: usize) -> Result<Vec<u8>, serde_json::Error>;

    /// Gives the value of a channel to a serializer; the same as [`State::encode`] writes.
    ///
    /// # Errors
    /// Those of [`State::encode`].
    fn serialize_channel<Z: Serializer>(&self, channel: usize, serializer: Z) -> Result<Z::Ok, Z::Error> {
        let json = self.encode(channel).map_err(Z::Error::custom)?;
        let value: serde_json::Value = serde_json::from_slice(&json).map_err(Z::Error::custom)?;
        value.serialize(serializer)
    }

    /// Sets a channel to a value that [`State::encode`] wrote.
    ///
    /// # Errors
    /// If `json` is not a value of the channel's type, or the channel is untracked.
    fn decode(&mut self, channel: usize, json: &[u8]) -> Result<(), serde_json::Error>;
}

/// A partial state: for each channel a write or nothing. Made by `#[derive(State)]`.
///
/// Its JSON form is an object with one entry per written channel, `clear` for channels that start over, and `$then` for
/// the updates that follow it; see [`Update::then`].
pub trait Update:
    Clone + Default + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
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

/// A write that does not fit a state whose channels are known only at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The state has no such channel.
    Undeclared {
        /// The channel.
        channel: String,
        /// Those that it has.
        declared: Vec<String>,
    },
    /// The value does not fit the channel's schema.
    Unfit {
        /// The channel.
        channel: String,
        /// Where in the value, as a JSON pointer; empty for the value itself.
        place: String,
        /// What is wrong there.
        reason: String,
    },
}

/// A write that a reducer refused.
#[derive(Debug, thiserror::Error)]
#[error("channel `{channel}` refused a write")]
pub struct FoldError {
    /// The channel's name.
    pub channel: Cow<'static, str>,
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
    clear_ephemeral(&mut next)?;
    for update in updates {
        fold(&mut next, update)?;
    }
    Ok(next)
}

/// Takes back what only one superstep was to see; a `Default` that panics refuses.
pub fn clear_ephemeral<S: State>(state: &mut S) -> Result<(), FoldError> {
    catch_unwind(AssertUnwindSafe(|| state.clear_ephemeral())).map_err(|panic| {
        let mut ephemeral = state.channels().iter().filter(|channel| channel.ephemeral);
        let channel = match (ephemeral.next(), ephemeral.next()) {
            (Some(only), None) => only.name.clone(),
            _ => "(one of several)".into(),
        };
        FoldError { channel, source: Box::new(Panicked::from_payload(&*panic)) }
    })
}

/// Folds one update; a reducer that panics refuses the write.
pub fn fold<S: State>(state: &mut S, update: S::Update) -> Result<(), FoldError> {
    let written = state.written(&update);
    catch_unwind(AssertUnwindSafe(|| state.fold(update))).unwrap_or_else(|panic| {
        let mut written = written.iter();
        let channel = match (written.next(), written.next()) {
            (Some(only), None) => state.channels()[only].name.clone(),
            _ => "(one of several)".into(),
        };
        Err(FoldError { channel, source: Box::new(Panicked::from_payload(&*panic)) })
    })
}

/// The channels of an update that start over from their default value before its writes are folded.
pub struct Cleared<U>(ChannelSet, PhantomData<fn() -> U>);

impl<U> Cleared<U> {
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

    /// Leaves out all but these.
    pub fn retain(&mut self, channels: ChannelSet) {
        self.0 = self.0.intersection(channels);
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

impl<U> Clone for Cleared<U> {
    fn clone(&self) -> Self {
        Self(self.0, PhantomData)
    }
}

impl<U> Default for Cleared<U> {
    fn default() -> Self {
        Self(ChannelSet::EMPTY, PhantomData)
    }
}

impl<U> PartialEq for Cleared<U> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<U: Fixed> fmt::Debug for Cleared<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|position| &*U::channels()[position].name)).finish()
    }
}
