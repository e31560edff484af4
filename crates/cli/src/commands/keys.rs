//! `db key`, `db rekey` and `memory rekey`: the keys of encrypted databases.

use std::{
    io::{self, Write},
    sync::Arc,
};

use serde_json::json;
use superstep::{
    Checkpointer, History, Store, ThreadId,
    sealed::{
        KeyProvider, KeyRing, MasterKey, Rekeyed, SealOptions, SealedCheckpointer, SealedStore, SystemRandom,
    },
    sqlite::SqliteStore,
    store::StoreError,
};
use superstep_session::{
    config::{
        encryption::{KEY, OLD_KEY},
        location::Location,
        memory::Memory,
        place::Db,
    },
    error::{ErrorKind, SessionError},
    text::count,
};

use crate::output::{
    exit::Exit,
    note::print_note,
    table::{lines, print, written},
};

pub(crate) fn key() -> Result<Exit, SessionError> {
    let key = MasterKey::generate(&SystemRandom).map_err(|cause| SessionError::no_randomness(&cause))?;
    print_note(&format!(
        "key `{}`: set `{KEY}` to it, and store it apart from the database and its backups; without it the data is lost",
        key.id()
    ));
    let mut out = io::stdout();
    written(writeln!(out, "{}", *key.to_base64()).and_then(|()| out.flush()))
}

#[derive(Default)]
struct Rotation {
    changed: u64,
    current: u64,
    plain: u64,
    /// The exit code for what could not be changed.
    failed: Option<ErrorKind>,
}

struct Threads {
    all: SealedCheckpointer,
    /// Opens those that need no change: it has the current key alone.
    current: SealedCheckpointer,
}

/// Encrypts the data keys of all threads and items with the current key. A thread that another process runs is named, and the
/// others are changed.
pub(crate) async fn rekey(location: &Location, json: bool) -> Result<Exit, SessionError> {
    location.existing_database()?;
    let keys = keys(location)?;
    let (store, _) = location.open_unsealed()?;
    let threads = Threads::new(store, &**keys, location.sealing()).await?;
    let mut rotation = Rotation::default();
    for name in threads.all.names().await? {
        match threads.rekey(&name).await {
            Ok(Rekeyed::Changed) => rotation.changed += 1,
            Ok(Rekeyed::Current) => rotation.current += 1,
            Ok(Rekeyed::Plain) => rotation.plain += 1,
            Err(failure) => rotation.failed(&failure),
        }
    }
    let items = rekey_items(location).await.unwrap_or_else(|failure| {
        rotation.failed(&failure);
        false
    });
    rotation.print(items, json)
}

impl Threads {
    async fn new(
        store: Arc<dyn Checkpointer>,
        keys: &dyn KeyProvider,
        options: &SealOptions,
    ) -> Result<Self, SessionError> {
        let current = keys
            .current()
            .await
            .map_err(|cause| SessionError::new(ErrorKind::Database, cause.to_string()))?;
        let current =
            SealOptions { keys: Some(Arc::new(KeyRing::new(current))), required: false, ..options.clone() };
        Ok(Self {
            all: SealedCheckpointer::new(store.clone(), options.clone()),
            current: SealedCheckpointer::new(store, current),
        })
    }

    /// Changes a thread. Its lease excludes runs, which would encrypt new values with the data key of before.
    async fn rekey(&self, thread: &ThreadId) -> Result<Rekeyed, SessionError> {
        let newest = History { limit: Some(1), ..History::default() };
        let is_done = self.current.history(thread, newest).await.is_ok_and(|newest| !newest.is_empty());
        // With nothing to change, it may be running.
        let _lease = if is_done { None } else { Some(self.all.lease(thread).await?) };
        Ok(self.all.rekey(thread).await?)
    }
}

/// Changes the items in the database. Returns whether there were some to change.
async fn rekey_items(location: &Location) -> Result<bool, SessionError> {
    let sealed = |store: Arc<dyn Store>| SealedStore::new(store, location.sealing().clone());
    let rekeyed = match location.db() {
        Db::File(file) => {
            let store = SqliteStore::open_read_only(file).map_err(failed)?;
            if !sealed(Arc::new(store)).is_encrypted().await.map_err(failed)? {
                return Ok(false);
            }
            sealed(Arc::new(SqliteStore::open(file).map_err(failed)?)).rekey().await
        }
        Db::Server(server) => sealed(server.items()?).rekey().await,
        // A cluster has no items.
        Db::Cluster(_) => return Ok(false),
    };
    rekeyed.map_err(failed)
}

/// Encrypts the data keys of a memory with the current key.
pub(crate) async fn rekey_memory(
    memory: &Memory,
    location: &Location,
    json: bool,
) -> Result<Exit, SessionError> {
    keys(location)?;
    let is_changed = match memory.sealed_store(&location.cwd)? {
        Some(store) => store.rekey().await.map_err(failed)?,
        None => false,
    };
    if json {
        return print(&lines([json!({ "changed": is_changed })]));
    }
    print(if is_changed { "rekeyed the memory\n" } else { "nothing to rekey\n" })
}

impl Rotation {
    /// Names something that could not be changed. The exit code says that a repetition helps only if that is all.
    fn failed(&mut self, failure: &SessionError) {
        print_note(&format!("not rekeyed: {}", failure.message));
        if matches!(self.failed, None | Some(ErrorKind::Thread)) {
            self.failed = Some(failure.kind);
        }
    }

    /// Prints the results; `items` is `true` if items were changed.
    fn print(self, items: bool, json: bool) -> Result<Exit, SessionError> {
        let Self { changed, current, plain, failed } = self;
        let text = if json {
            lines([json!({
                "changed": changed,
                "current": current,
                "not_encrypted": plain,
                "items_changed": items,
                "failed": failed.is_some(),
            })])
        } else {
            let items = if items { "; rekeyed the items of the store" } else { "" };
            let changed = count(changed, "thread");
            format!("rekeyed {changed}, {current} had the key already, {plain} not encrypted{items}\n")
        };
        print(&text)?;
        Ok(failed.map_or(Exit::Ok, Exit::from))
    }
}

fn keys(location: &Location) -> Result<&Arc<dyn KeyProvider>, SessionError> {
    location.sealing().keys.as_ref().ok_or_else(|| {
        SessionError::usage(format!(
            "no key is set; set `{KEY}` to the new key and `{OLD_KEY}` to the one before, and repeat the command"
        ))
    })
}

fn failed(error: StoreError) -> SessionError {
    SessionError::caused(ErrorKind::Database, &error)
}
