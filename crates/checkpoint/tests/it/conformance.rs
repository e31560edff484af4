//! The contract, on files and in memory.

use std::sync::{Arc, Mutex};

use superstep_checkpoint::SqliteCheckpointer;
use superstep_graph::Checkpointer;
use superstep_testing::conformance::{check, check_operations};

use crate::support::Folder;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_conforms() {
    let folders = Mutex::new(Vec::new());
    check(async || {
        let folder = Folder::new();
        let store = folder.open();
        folders.lock().unwrap().push(folder);
        Arc::new(store) as Arc<dyn Checkpointer>
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_conforms() {
    check(async || Arc::new(SqliteCheckpointer::in_memory().unwrap()) as Arc<dyn Checkpointer>).await;
}

#[test]
fn a_file_conforms_under_any_operations_and_restarts() {
    check_operations(
        async || {
            let folder = Folder::new();
            (Arc::new(folder.open()) as Arc<dyn Checkpointer>, folder)
        },
        async |store, folder| {
            drop(store);
            Arc::new(folder.open()) as Arc<dyn Checkpointer>
        },
    );
}
