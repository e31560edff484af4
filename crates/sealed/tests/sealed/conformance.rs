//! The contracts of checkpointers and stores, through the layer.

use std::sync::{Arc, OnceLock};

use superstep_checkpoint::IntoShared;
use superstep_graph::{MemoryCheckpointer, MemoryStore, Store, store::StoreOptions};
use superstep_postgres::{PostgresCheckpointer, PostgresOptions, PostgresStore};
use superstep_sealed::{Compression, SealOptions, SealedCheckpointer, SealedStore};
use superstep_sqlite::{SqliteOptions, SqliteStore};

use crate::{
    server::shared,
    support::{Folder, with_keys},
};

/// Returns options that refuse what is not encrypted.
fn required() -> SealOptions {
    SealOptions { required: true, ..with_keys(&[1]) }
}

superstep_testing::conformance!(
    checkpointer memory,
    place = Some(Arc::new(MemoryCheckpointer::new())),
    open = async |place: &Arc<MemoryCheckpointer>| SealedCheckpointer::new(place.clone(), required()),
    sequences = 64,
);

superstep_testing::conformance!(
    checkpointer sqlite,
    place = Some(Folder::new()),
    open = async |folder: &Folder| SealedCheckpointer::new(folder.open(), required()),
    sequences = 32,
);

superstep_testing::conformance!(
    checkpointer compressed,
    place = Some(Folder::new()),
    open = async |folder: &Folder| {
        let compression = Compression { level: 1, from_bytes: 1 };
        SealedCheckpointer::new(folder.open(), SealOptions::compressed(compression))
    },
    sequences = 32,
);

fn schema() -> Option<PostgresOptions> {
    let server = shared()?;
    Some(PostgresOptions::new(server.url()).schema(server.schema()).connections(4))
}

superstep_testing::conformance!(
    checkpointer postgres,
    place = schema(),
    open = async |options: &PostgresOptions| {
        SealedCheckpointer::new(PostgresCheckpointer::open(options.clone()).unwrap(), required())
    },
    sequences = 8,
);

/// A store in memory, once it was opened.
type Opened = OnceLock<Arc<MemoryStore>>;

/// Returns the layer in front of a store that was opened with `options`; its embedding is the layer's.
fn store(inner: impl IntoShared<dyn Store>, options: StoreOptions) -> SealedStore {
    let sealed = SealedStore::new(inner, required());
    match options.embed {
        Some(embed) => sealed.with_embed(embed),
        None => sealed,
    }
}

fn without_embed(options: &StoreOptions) -> StoreOptions {
    let mut options = options.clone();
    options.embed = None;
    options
}

superstep_testing::conformance!(
    store memory_store,
    place = Some(Opened::new()),
    open = async |place: &Opened, options: StoreOptions| {
        let inner = place.get_or_init(|| Arc::new(MemoryStore::with(without_embed(&options)))).clone();
        store(inner, options)
    },
    sequences = 48,
);

superstep_testing::conformance!(
    store sqlite_store,
    place = Some(Folder::new()),
    open = async |folder: &Folder, options: StoreOptions| {
        store(SqliteStore::open_with(folder.db(), SqliteOptions::default(), without_embed(&options)).unwrap(), options)
    },
    sequences = 24,
);

superstep_testing::conformance!(
    store postgres_store,
    place = schema(),
    open = async |postgres: &PostgresOptions, options: StoreOptions| {
        store(PostgresStore::open(postgres.clone(), without_embed(&options)).unwrap(), options)
    },
    sequences = 8,
);
