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
    fn encode(&self) -> Result<Vec<ChannelValue>, UnencodedChannel>;
}

struct TypedState<S>(S);

impl<S: State> AnyState for TypedState<S> {
    fn encode(&self) -> Result<Vec<ChannelValue>, UnencodedChannel> {
        encode::snapshot(&self.0)
    }
}

impl Snapshot {
    /// Returns the value of every channel as JSON.
    ///
    /// # Errors
    /// If the snapshot is typed, and a channel cannot be stored as JSON.
    pub fn channels(&self) -> Result<Cow<'_, [ChannelValue]>, serde_json::Error> {
        match &self.0 {
            Form::Json(channels) => Ok(Cow::Borrowed(channels)),
            Form::Typed(state) => state.encode().map(Cow::Owned).map_err(UnencodedChannel::into_error),
        }
    }

    /// Returns the length of its JSON in bytes; 0 for a typed snapshot.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Form::Json(channels) => channels.iter().map(|value| value.json.len()).sum(),
            Form::Typed(_) => 0,
        }
    }

    /// Returns the typed state, if it has the channels of `state`.
    pub(crate) fn get<S: State>(&self, state: &S) -> Option<&S> {
        let Form::Typed(typed) = &self.0 else { return None };
        let TypedState(typed) = (&**typed as &dyn Any).downcast_ref::<TypedState<S>>()?;
        std::ptr::eq(typed.channels(), state.channels()).then_some(typed)
    }
}

/// Returns a snapshot in its typed form. Debug builds check that it can be stored as JSON.
///
/// # Errors
/// Those of [`encode::snapshot`], in debug builds.
pub fn keep_snapshot<S: State>(state: &S) -> Result<Snapshot, UnencodedChannel> {
    if cfg!(debug_assertions) {
        encode::snapshot(state)?;
    }
    let mut state = state.clone();
    if state.channels().iter().any(|channel| channel.untracked) {
        let stored = state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked);
        let stored = stored.map(|(position, _)| position).collect();
        state.retain(stored);
    }
    Ok(Snapshot(Form::Typed(Arc::new(TypedState(state)))))
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
