//! Values that convert into an update.
//!
//! Start at [`IntoUpdate`].

use serde_json::Value;

use crate::{BadUpdate, JsonState, JsonUpdate, State, Update};

/// An update, nothing, or a `Result` of either, whose error becomes an `E`.
///
/// It is in this crate because only the crate of [`Update`] can separate updates from other types. Nodes
/// require it through `NodeOutput`.
pub trait IntoUpdate<S: State, E> {
    /// Returns the contained update.
    ///
    /// # Errors
    /// The contained error.
    fn into_update(self) -> Result<S::Update, E>;
}

#[diagnostic::do_not_recommend]
impl<U: Update, S: State<Update = U>, E> IntoUpdate<S, E> for U {
    fn into_update(self) -> Result<U, E> {
        Ok(self)
    }
}

impl<S: State, E> IntoUpdate<S, E> for () {
    fn into_update(self) -> Result<S::Update, E> {
        Ok(S::update())
    }
}

impl<S: State, O: IntoUpdate<S, E>, X: Into<E>, E> IntoUpdate<S, E> for Result<O, X> {
    fn into_update(self) -> Result<S::Update, E> {
        self.map_err(Into::into)?.into_update()
    }
}

/// Accepts an object as an update; see [`JsonUpdate`].
impl<E: Refuses> IntoUpdate<JsonState, E> for Value {
    fn into_update(self) -> Result<JsonUpdate, E> {
        JsonUpdate::try_from(self).map_err(E::refuse)
    }
}

/// The error for JSON that is not a valid update; a retry does not help.
#[doc(hidden)]
pub trait Refuses {
    fn refuse(error: BadUpdate) -> Self;
}
