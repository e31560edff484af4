//! Processes that are killed during their work.
//!
//! The other process is this test program again, running [`child`] alone.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use superstep_graph::{
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{CheckpointError, TaskKey, TaskRecord},
};

use crate::support::{Folder, line, load, superstep, updates};

/// The variable with the path of the database for the other process.
const DATABASE: &str = "SUPERSTEP_TEST_DATABASE";

/// Runs only in the other process: leases a thread, commits three checkpoints, records a task, reports this,
/// and waits to be killed.
#[test]
fn child() {
    let Some(database) = std::env::var_os(DATABASE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = superstep_sqlite::SqliteCheckpointer::open(database).unwrap();
        let thread = ThreadId::from("t");
        let _lease = store.lease(&thread).await.unwrap();
        line(&store, &thread, 3).await;
        let key = TaskKey { thread, checkpoint: CheckpointId(3), slot: 1 };
        let record = TaskRecord::Finished { update: "4".into(), targets: Vec::new(), failure: None };
        store.record(&key, record).await.unwrap();
        let mut out = std::io::stdout();
        out.write_all(b"\nstored\n").unwrap();
        out.flush().unwrap();
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    });
}

/// Starts the other process and waits until it has stored all data.
fn start(folder: &Folder) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture"])
        .env(DATABASE, folder.db())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "stored"), "the other process failed");
    child
}

#[tokio::test]
async fn a_killed_process_loses_nothing_and_frees_its_thread() {
    let folder = Folder::new();
    let mut child = start(&folder);
    let store = folder.open();
    let thread = ThreadId::from("t");
    let busy = store.lease(&thread).await;
    assert!(matches!(busy, Err(CheckpointError::Busy { .. })), "{busy:?}");
    let other = store.lease(&"other".into()).await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(other);
    let lease = store.lease(&thread).await.unwrap();
    let loaded = load(&store, &thread).await;
    assert_eq!(updates(&loaded), ["1", "2", "3"]);
    let record = TaskRecord::Finished { update: "4".into(), targets: Vec::new(), failure: None };
    assert_eq!(loaded.tasks, [(1, record)]);
    let head = Some(loaded.head);
    store.commit(&thread, head, superstep(head, "5")).await.unwrap();
    drop((lease, store));
    assert!(!folder.path().join("db-locks").exists());
}

#[tokio::test]
async fn the_file_of_a_killed_process_is_readable() {
    let folder = Folder::new();
    let mut child = start(&folder);
    child.kill().unwrap();
    child.wait().unwrap();
    let store = superstep_sqlite::SqliteCheckpointer::open_read_only(folder.db()).unwrap();
    assert_eq!(updates(&load(&store, &"t".into()).await), ["1", "2", "3"]);
}

#[tokio::test]
async fn a_request_is_executed_although_its_caller_is_gone() {
    let folder = Folder::new();
    let store = Arc::new(folder.open());
    let thread = ThreadId::from("t");
    let mut commit = store.commit(&thread, None, superstep(None, "1"));
    // Polled once, so that it is sent, and then dropped.
    let _ = futures::poll!(&mut commit);
    drop(commit);
    drop(store);
    assert_eq!(updates(&load(&folder.open(), &thread).await), ["1"]);
}
