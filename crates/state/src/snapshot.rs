//! The full value of every channel.
//!
//! Start at [`Snapshot`].

use std::{any::Any, borrow::Cow, fmt, sync::Arc};

use crate::{
    ChannelValue, State,
    encode::{self, UnencodedChannel},
};

/// The full value of every channel: as JSON, or as a typed state from which the JSON is made on demand, in the process that
/// stored it.
#[derive(Clone)]
pub struct Snapshot(Form);

#[derive(Clone)]
enum Form {
    Json(Vec<ChannelValue>),
    Typed(Arc<dyn AnyState>),
}

/// A state whose type only its readers know.
trait AnyState: Any + Send + Sync {
    fn bytes(&self) -> usize;

    fn encode(&self) -> Result<Vec<ChannelValue>, UnencodedChannel>;
}

struct TypedState<S: State> {
    state: S,
    bytes: usize,
}

impl<S: State> AnyState for TypedState<S> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn encode(&self) -> Result<Vec<ChannelValue>, UnencodedChannel> {
        encode::snapshot(&self.state)
    }
}

impl Snapshot {
    /// Creates the typed form. `bytes` is about the length of its JSON.
    pub(crate) fn typed<S: State>(state: S, bytes: usize) -> Self {
        Self(Form::Typed(Arc::new(TypedState { state, bytes })))
    }

    /// Returns the value of every channel as JSON.
    ///
    /// # Errors
    /// If the snapshot is typed, and the `Serialize` of a channel fails that did not fail when the snapshot was made.
    pub fn channels(&self) -> Result<Cow<'_, [ChannelValue]>, serde_json::Error> {
        match &self.0 {
            Form::Json(channels) => Ok(Cow::Borrowed(channels)),
            Form::Typed(state) => state.encode().map(Cow::Owned).map_err(|refused| refused.source),
        }
    }

    /// Returns the length of its JSON in bytes; of a typed snapshot only about.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Form::Json(channels) => channels.iter().map(|value| value.json.len()).sum(),
            Form::Typed(state) => state.bytes(),
        }
    }

    /// Returns the typed state, if it has the channels of `state`.
    pub(crate) fn get<S: State>(&self, state: &S) -> Option<&S> {
        let Form::Typed(typed) = &self.0 else { return None };
        let typed = &(&**typed as &dyn Any).downcast_ref::<TypedState<S>>()?.state;
        std::ptr::eq(typed.channels(), state.channels()).then_some(typed)
    }
}

impl From<Vec<ChannelValue>> for Snapshot {
    fn from(channels: Vec<ChannelValue>) -> Self {
        Self(Form::Json(channels))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.channels() {
            Ok(channels) => channels.fmt(f),
            Err(error) => write!(f, "<{error}>"),
        }
    }
}

/// Compares the JSON.
impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        match (self.channels(), other.channels()) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        }
    }
}
