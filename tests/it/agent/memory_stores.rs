//! The contracts of the library's memories: those in a store, and those in files.

use std::sync::Arc;

use superstep::{
    MemoryStore,
    memory::{MemoryFiles, StoreMemory},
    sqlite::SqliteStore,
};
use superstep_testing::conformance::check_memory;

#[tokio::test]
async fn a_memory_in_a_store_conforms() {
    check_memory(async || Arc::new(StoreMemory::new(Arc::new(MemoryStore::new()))) as _).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_in_a_database_conforms() {
    let memory = |store| Arc::new(StoreMemory::new(Arc::new(store))) as _;
    check_memory(async || memory(SqliteStore::in_memory().unwrap())).await;
    let folder = tempfile::tempdir().unwrap();
    let files = std::sync::atomic::AtomicU32::new(0);
    check_memory(async || {
        let nth = files.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        memory(SqliteStore::open(folder.path().join(format!("{nth}.db"))).unwrap())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_in_files_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let nth = std::sync::atomic::AtomicU32::new(0);
    check_memory(async || {
        let nth = nth.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Arc::new(MemoryFiles::new(folder.path(), nth.to_string()).unwrap()) as _
    })
    .await;
}
