//! Values that become an update.
//!
//! Start at [`IntoUpdate`].

use serde_json::Value;

use crate::{BadUpdate, JsonState, JsonUpdate, State, Update};

/// An update, nothing, or a `Result` of either, whose error becomes an `E`.
///
/// It stands here because only the crate of [`Update`] can tell an update from what is none; nodes ask for it by the name of
/// `NodeOutput`.
pub trait IntoUpdate<S: State, E> {
    /// The update in it, or why there is none.
    ///
    /// # Errors
    /// The failure of whoever made it.
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

/// An object is an update; see [`JsonUpdate`].
impl<E: Refuses> IntoUpdate<JsonState, E> for Value {
    fn into_update(self) -> Result<JsonUpdate, E> {
        JsonUpdate::try_from(self).map_err(E::refuse)
    }
}

/// An error for JSON that is no update, which no other attempt makes one.
#[doc(hidden)]
pub trait Refuses {
    fn refuse(error: BadUpdate) -> Self;
}
