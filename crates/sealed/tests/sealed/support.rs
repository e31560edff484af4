//! Keys, randomness and databases for tests.

use std::{
    error::Error,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use superstep_graph::{Checkpointer, MemoryCheckpointer, checkpoint::CheckpointError};
use superstep_sealed::{KeyRing, MasterKey, Random, SealOptions, SealedCheckpointer};
use superstep_sqlite::SqliteCheckpointer;
use tempfile::TempDir;

/// Bytes that only look random, the same in each test.
#[derive(Default)]
pub(crate) struct Counted(AtomicU64);

impl Random for Counted {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        let nth = self.0.fetch_add(1, Ordering::Relaxed);
        for (position, byte) in bytes.iter_mut().enumerate() {
            *byte = nth.to_le_bytes().get(position).copied().unwrap_or(7);
        }
        Ok(())
    }
}

/// Returns one of several keys.
pub(crate) fn key(nth: u8) -> MasterKey {
    let mut bytes = [nth; 32];
    bytes[0] = 99;
    MasterKey::new(bytes)
}

/// Returns options with these keys, the current one first.
pub(crate) fn with_keys(keys: &[u8]) -> SealOptions {
    let mut ring = KeyRing::new(key(keys[0]));
    for old in &keys[1..] {
        ring = ring.with_old(key(*old));
    }
    SealOptions::encrypted(ring)
}

/// Returns the same with nonces and data keys that are the same in each test.
pub(crate) fn counted(keys: &[u8]) -> SealOptions {
    SealOptions { random: Arc::new(Counted::default()), ..with_keys(keys) }
}

pub(crate) fn sealed(inner: &Arc<MemoryCheckpointer>, options: SealOptions) -> SealedCheckpointer {
    SealedCheckpointer::new(inner.clone(), options)
}

/// A folder with a database.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.0.path().join("db")
    }

    pub(crate) fn open(&self) -> SqliteCheckpointer {
        SqliteCheckpointer::open(self.db()).unwrap()
    }

    pub(crate) fn open_sealed(&self, options: SealOptions) -> Arc<dyn Checkpointer> {
        Arc::new(SealedCheckpointer::new(self.open(), options))
    }
}

/// Returns an error with its causes.
pub(crate) fn text(error: &CheckpointError) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
