//! A build without encryption, which refuses the variables of its keys.

use std::{env, sync::Arc};

use superstep::{Checkpointer, Store, convert::IntoShared, store::Embed};

use crate::error::SessionError;

/// The variable with the key that encrypts.
pub const KEY: &str = "SUPERSTEP_KEY";

/// The variable with keys that only decrypt.
pub const OLD_KEY: &str = "SUPERSTEP_OLD_KEY";

/// The variable that refuses what is not encrypted.
pub const REQUIRED: &str = "SUPERSTEP_REQUIRE_ENCRYPTION";

/// The options of the encryption, of which this build has none.
#[derive(Clone, Default)]
pub struct SealOptions;

/// Refuses the variables, so that nothing is stored readable that should be encrypted.
///
/// # Errors
/// One of them is set.
pub fn options() -> Result<SealOptions, SessionError> {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| value != "false" && value != "0");
    match [KEY, OLD_KEY, REQUIRED].into_iter().find(|name| is_set(name)) {
        Some(name) => Err(SessionError::missing_feature(&format!("the variable `{name}`"), "encryption")),
        None => Ok(SealOptions),
    }
}

/// Returns the checkpointer. A graph refuses to run an encrypted thread of it.
pub fn seal_threads(store: Arc<dyn Checkpointer>, _: &SealOptions) -> Arc<dyn Checkpointer> {
    store
}

pub(crate) fn seal_items(
    store: impl IntoShared<dyn Store>,
    _: Option<Arc<dyn Embed>>,
) -> Result<Arc<dyn Store>, SessionError> {
    options().map(|_| store.into_shared())
}

/// Refuses to store something that is never encrypted, if encryption is required.
///
/// # Errors
/// It is required.
pub fn refuse_readable(_: &str, _: &str) -> Result<(), SessionError> {
    options().map(drop)
}
