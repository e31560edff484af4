//! From faults to the errors of checkpointers and stores.

use superstep_checkpoint::{
    CheckpointError, ThreadId,
    store::{Namespace, StoreError},
};

use crate::{form::Fault, master::KeyError, options::SealOptions};

/// The remedy for an unknown key.
const REMEDY: &str = "provide that key in `SealOptions::keys`, or for the programs in the variable `SUPERSTEP_KEY` or \
                      `SUPERSTEP_OLD_KEY`";

/// The reason for which a data key cannot be used.
#[derive(Debug)]
pub(crate) enum KeyFault {
    /// The master key is unknown.
    Unknown(String),
    /// The provider failed, or there are no random bytes.
    Provider(KeyError),
    /// The record of the data keys was changed.
    Changed(String),
}

/// Creates the error of a value of a thread. `part` names it.
pub(crate) fn of_thread(thread: &ThreadId, part: &str, fault: Fault) -> CheckpointError {
    let whole = format!("{part} of thread `{thread}`");
    match fault {
        Fault::Plain => {
            let remedy =
                "open the database once without required encryption and seal it by an export and an import";
            CheckpointError::Unencrypted { what: plain(&whole, remedy) }
        }
        Fault::UnknownKey(id) => CheckpointError::Key { what: unknown_data_key(&whole, &id), source: None },
        Fault::Changed => CheckpointError::Corrupt { what: changed(&whole), source: None },
        Fault::Moved(why) | Fault::Malformed(why) => {
            CheckpointError::Corrupt { what: format!("{}: {why}", changed(&whole)), source: None }
        }
        Fault::Random(cause) => CheckpointError::Storage { what: no_random(), source: Some(cause) },
        Fault::NotJson(cause) => CheckpointError::Storage {
            what: format!("cannot store {whole}: it is not JSON"),
            source: Some(cause.into()),
        },
    }
}

/// Creates the error of the keys of a thread.
pub(crate) fn of_thread_keys(thread: &ThreadId, fault: KeyFault) -> CheckpointError {
    let whole = format!("thread `{thread}`");
    match fault {
        KeyFault::Unknown(id) => CheckpointError::Key { what: unknown_key(&whole, &id), source: None },
        KeyFault::Provider(cause) => CheckpointError::Key { what: no_key(&whole), source: Some(cause) },
        KeyFault::Changed(why) => CheckpointError::Corrupt { what: changed_keys(&whole, &why), source: None },
    }
}

/// Creates the error of a readable value behind the first encrypted checkpoint of a thread.
pub(crate) fn inserted(thread: &ThreadId, part: &str) -> CheckpointError {
    let what = format!(
        "{part} of thread `{thread}` is not encrypted, and an earlier checkpoint is, so someone without the key has written it; \
         restore the thread from a backup"
    );
    CheckpointError::Unencrypted { what }
}

/// The problem of a write with `SealOptions::required` that cannot be encrypted.
const NO_KEYS: &str = "nothing is stored: `SealOptions::required` needs `SealOptions::keys`";

/// Refuses a write that must be encrypted if there are no keys.
pub(crate) fn check_thread_keys(options: &SealOptions) -> Result<(), CheckpointError> {
    if options.required && options.keys.is_none() {
        Err(CheckpointError::Key { what: NO_KEYS.to_owned(), source: None })
    } else {
        Ok(())
    }
}

/// Refuses a write that must be encrypted if there are no keys.
pub(crate) fn check_store_keys(options: &SealOptions) -> Result<(), StoreError> {
    if options.required && options.keys.is_none() {
        Err(StoreError::Key { what: NO_KEYS.to_owned(), source: None })
    } else {
        Ok(())
    }
}

/// Creates the error of a thread that a program without keys reads.
pub(crate) fn no_keys(thread: &ThreadId, master: &str) -> CheckpointError {
    let whole = format!("thread `{thread}`");
    CheckpointError::Key { what: unknown_key(&whole, master), source: None }
}

/// Creates the error of a new readable thread in an encrypted database.
pub(crate) fn readable(thread: &ThreadId, master: &str) -> CheckpointError {
    let what = format!(
        "the database is encrypted with key `{master}`, so thread `{thread}` is not stored readable in it; {REMEDY}"
    );
    CheckpointError::Key { what, source: None }
}

/// Creates the error of a new readable item in an encrypted store.
pub(crate) fn readable_item(namespace: &Namespace, key: &str, master: &str) -> StoreError {
    let what = format!(
        "the store is encrypted with key `{master}`, so item `{key}` in `{namespace}` is not stored readable in it; {REMEDY}"
    );
    StoreError::Key { what, source: None }
}

/// Creates the error of an item whose store lost its data keys while it was encrypted.
pub(crate) fn no_data_key(namespace: &Namespace, key: &str) -> StoreError {
    let what = format!(
        "item `{key}` in `{namespace}` is not stored: someone deletes the data keys of the store, in the namespace `$keys`; find \
         out who does, and try again"
    );
    StoreError::Key { what, source: None }
}

/// Creates the error of an item that a program without keys reads.
pub(crate) fn no_item_keys(namespace: &Namespace, key: &str, master: Option<&str>) -> StoreError {
    let whole = format!("item `{key}` in `{namespace}`");
    // Without a record the data keys are gone.
    let what = unknown_key(&whole, master.unwrap_or("unknown"));
    StoreError::Key { what, source: None }
}

/// Creates the error of an item of a store.
pub(crate) fn of_item(namespace: &Namespace, key: &str, fault: Fault) -> StoreError {
    let whole = format!("item `{key}` in `{namespace}`");
    match fault {
        Fault::Plain => {
            let remedy = "read it once without required encryption and put it again";
            StoreError::Unencrypted { what: plain(&whole, remedy) }
        }
        Fault::UnknownKey(id) => StoreError::Key { what: unknown_data_key(&whole, &id), source: None },
        Fault::Changed => StoreError::Corrupt { what: changed(&whole), source: None },
        Fault::Moved(why) | Fault::Malformed(why) => {
            StoreError::Corrupt { what: format!("{}: {why}", changed(&whole)), source: None }
        }
        Fault::Random(cause) => StoreError::Storage { what: no_random(), source: Some(cause) },
        Fault::NotJson(source) => {
            StoreError::Unstorable { namespace: namespace.clone(), key: key.to_owned(), source }
        }
    }
}

/// Creates the error of the keys of a store.
pub(crate) fn of_store_keys(fault: KeyFault) -> StoreError {
    let whole = "the store";
    match fault {
        KeyFault::Unknown(id) => StoreError::Key { what: unknown_key(whole, &id), source: None },
        KeyFault::Provider(cause) => StoreError::Key { what: no_key(whole), source: Some(cause) },
        KeyFault::Changed(why) => StoreError::Corrupt { what: changed_keys(whole, &why), source: None },
    }
}

fn plain(whole: &str, remedy: &str) -> String {
    format!(
        "{whole} is not encrypted, and encryption is required, so someone else may have written it; to accept it, {remedy}"
    )
}

fn unknown_key(whole: &str, id: &str) -> String {
    format!("{whole} is encrypted with key `{id}`, which is not among the keys; {REMEDY}")
}

fn unknown_data_key(whole: &str, id: &str) -> String {
    format!(
        "{whole} is encrypted with the data key `{id}`, which is not stored with it; restore it from a backup, or open it with \
         the keys of its database"
    )
}

fn no_key(whole: &str) -> String {
    format!("the key of {whole} cannot be obtained; see the cause, and try again")
}

fn changed(whole: &str) -> String {
    format!(
        "{whole} cannot be decrypted at its place: it was damaged, changed or moved; restore it from a backup"
    )
}

fn changed_keys(whole: &str, why: &str) -> String {
    format!("the data keys of {whole} are damaged, changed or moved ({why}); restore it from a backup")
}

fn no_random() -> String {
    "this machine has no random numbers for the encryption; try again".to_owned()
}
