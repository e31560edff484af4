//! The typed form of a stored update.
//!
//! Start at [`keep`].

use std::sync::Arc;

use serde::de::Error as _;

use crate::{
    State, StoredUpdate,
    encode::{Unencoded, UnencodedChannel, encode},
    stored_update::AnyUpdate,
};

struct TypedUpdate<S: State> {
    update: S::Update,
    /// Any state with the channels of the update.
    schema: Arc<S>,
}

impl<S: State> AnyUpdate for TypedUpdate<S> {
    fn encode(&self) -> serde_json::Result<StoredUpdate> {
        let encoded = encode(&*self.schema, &self.update, &mut Vec::new());
        encoded.map_err(|refused| match refused {
            // It was checked when it was made.
            Unencoded::Write(error) => serde_json::Error::custom(error),
            Unencoded::Json { channel: Some(channel), source } => {
                UnencodedChannel { channel, source }.into_error()
            }
            Unencoded::Json { channel: None, source } => source,
        })
    }
}

/// Returns an update in its typed form. `schema` is any state of the graph. Debug builds check that it can be stored as JSON.
pub fn keep<S: State>(
    state: &S,
    schema: &Arc<S>,
    update: &S::Update,
    scratch: &mut Vec<u8>,
) -> Result<StoredUpdate, Unencoded> {
    state.check(update).map_err(Unencoded::Write)?;
    if cfg!(debug_assertions) {
        encode(state, update, scratch)?;
    }
    let update = without_untracked(state.stored(update).into_owned(), &**schema);
    Ok(StoredUpdate::typed(Arc::new(TypedUpdate { update, schema: schema.clone() })))
}

/// Returns an update without its writes to untracked channels.
fn without_untracked<S: State>(mut update: S::Update, schema: &S) -> S::Update {
    let channels = schema.channels();
    let is_stored = |position: &usize| !channels[*position].untracked;
    let written = schema.written(&update);
    if !written.iter().all(|position| is_stored(&position)) {
        schema.restrict(&mut update, written.iter().filter(is_stored).collect());
    }
    update
}

/// Returns the typed update, if it is one for the channels of this state.
pub(crate) fn get<'u, S: State>(stored: &'u StoredUpdate, state: &S) -> Option<&'u S::Update> {
    let typed = stored.as_typed()?.downcast_ref::<TypedUpdate<S>>()?;
    std::ptr::eq(typed.schema.channels(), state.channels()).then_some(&typed.update)
}
