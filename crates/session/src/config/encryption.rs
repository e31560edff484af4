//! The keys of encrypted databases, from the environment.

use std::{env, sync::Arc};

pub use superstep::sealed::SealOptions;
use superstep::{
    Checkpointer, Store,
    convert::IntoShared,
    sealed::{KeyRing, MasterKey, SealedCheckpointer, SealedStore},
    store::Embed,
};

use crate::error::SessionError;

/// The variable with the key that encrypts. Commands of tools do not see variables whose names end with `KEY`.
pub const KEY: &str = "SUPERSTEP_KEY";

/// The variable with keys that only decrypt, separated by commas.
pub const OLD_KEY: &str = "SUPERSTEP_OLD_KEY";

/// The variable that refuses what is not encrypted.
pub const REQUIRED: &str = "SUPERSTEP_REQUIRE_ENCRYPTION";

/// Reads the variables. Without a key nothing is encrypted.
///
/// # Errors
/// A variable is not valid, or a key is required and missing. The message has no part of a key.
// Only from the environment: other users see command lines, and a configuration is copied together with the data that
// the key protects. A file is `$(cat FILE)`.
pub fn options() -> Result<SealOptions, SessionError> {
    let required = match variable(REQUIRED)?.as_deref().map(str::trim) {
        None | Some("false" | "0") => false,
        Some("true" | "1") => true,
        Some(_) => return Err(wrong(REQUIRED, "it is neither `true` nor `false`")),
    };
    let old = variable(OLD_KEY)?.filter(|text| !text.trim().is_empty());
    let Some(current) = variable(KEY)? else {
        return match (required, old) {
            (true, _) => Err(no_key(REQUIRED)),
            (false, Some(_)) => Err(no_key(OLD_KEY)),
            (false, None) => Ok(SealOptions::default()),
        };
    };
    let mut ring = KeyRing::new(key(KEY, &current)?);
    for old in old.iter().flat_map(|all| all.split(',')) {
        ring = ring.with_old(key(OLD_KEY, old)?);
    }
    Ok(SealOptions { required, ..SealOptions::encrypted(ring) })
}

/// Puts the encryption in front of a checkpointer. Without a key it refuses encrypted threads.
pub fn seal_threads(store: Arc<dyn Checkpointer>, options: &SealOptions) -> Arc<dyn Checkpointer> {
    Arc::new(SealedCheckpointer::new(store, options.clone()))
}

/// Puts the encryption in front of a store, with the embedding of the store. Without a key it refuses encrypted items.
pub(crate) fn seal_items(
    store: impl IntoShared<dyn Store>,
    embed: Option<Arc<dyn Embed>>,
) -> Result<Arc<dyn Store>, SessionError> {
    let store = SealedStore::new(store, options()?);
    Ok(Arc::new(match embed {
        Some(embed) => store.with_embed(embed),
        None => store,
    }))
}

/// Refuses to store something that is never encrypted, if encryption is required. `what` is the subject of the message.
///
/// # Errors
/// It is required, or a variable is not valid.
pub fn refuse_readable(what: &str, remedy: &str) -> Result<(), SessionError> {
    if options()?.required {
        return Err(SessionError::usage(format!("{what} not encrypted, and `{REQUIRED}` is set; {remedy}")));
    }
    Ok(())
}

/// Reads a variable. An empty key is not treated as none: nothing would be encrypted if the program that prints it fails.
fn variable(name: &str) -> Result<Option<String>, SessionError> {
    let Some(text) = env::var_os(name) else { return Ok(None) };
    text.into_string().map(Some).map_err(|_| wrong(name, "it is not Unicode"))
}

fn key(name: &str, text: &str) -> Result<MasterKey, SessionError> {
    if text.trim().is_empty() {
        return Err(wrong(name, "a key in it is empty; unset it for no encryption"));
    }
    text.parse()
        .map_err(|_| wrong(name, "a key is 32 random bytes in Base64, 44 characters; `db key` makes one"))
}

fn wrong(name: &str, why: &str) -> SessionError {
    SessionError::usage(format!("the variable `{name}` is not valid: {why}"))
}

fn no_key(because: &str) -> SessionError {
    SessionError::usage(format!(
        "the variable `{because}` is set, and `{KEY}` is not; set it to the key that encrypts, which `db key` makes"
    ))
}
