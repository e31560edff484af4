//! Reads, writes, exports and copies without keys, and names that are free again.

use std::sync::Arc;

use serde_json::json;
use superstep_graph::{
    CheckpointId, Checkpointer, MemoryCheckpointer, MemoryStore, Question, Store, ThreadId,
    checkpoint::{
        CheckpointError, Prune, Segment, TaskKey, TaskRecord,
        text::{ExportOptions, TextError, export},
    },
    state::ChannelValue,
    store::{Namespace, Search, StoreError},
};
use superstep_sealed::{SealOptions, SealedStore};
use superstep_testing::lines::{line, load, superstep};

use crate::support::{Folder, sealed, text, with_keys};

fn thread() -> ThreadId {
    "t".into()
}

/// Returns a prune that adds a snapshot.
fn snapshot() -> Prune {
    let value = ChannelValue { channel: "c".to_owned(), json: "1".into() };
    Prune {
        keep: [CheckpointId(2)].into(),
        snapshots: [(CheckpointId(2), vec![value])].into(),
        ..Prune::default()
    }
}

/// Returns options that require encryption, and have no keys.
fn required() -> SealOptions {
    SealOptions { required: true, ..SealOptions::default() }
}

#[tokio::test]
async fn an_encrypted_thread_is_exported_only_through_the_layer() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let store = sealed(&inner, with_keys(&[1]));
    line(&store, &thread(), 2).await;
    let refused = export(&*inner, &thread(), &ExportOptions::default()).await.unwrap_err();
    assert!(matches!(refused, TextError::Unexportable { .. }), "{refused:?}");
    let refused = refused.to_string();
    assert!(refused.ends_with("it is encrypted; export it through `SealedCheckpointer`"), "{refused}");
    let exported = export(&store, &thread(), &ExportOptions::default()).await.unwrap();
    assert!(!exported.contains("$sealed") && !exported.contains("$keys"), "{exported}");
}

#[tokio::test]
async fn required_without_keys_stores_nothing_and_reads_nothing_readable() {
    let inner = Arc::new(MemoryCheckpointer::new());
    line(&*inner, &"old".into(), 1).await;
    let store = sealed(&inner, required());
    let refused = store.commit(&thread(), None, superstep(None, "1")).await.unwrap_err();
    assert!(text(&refused).contains("`SealOptions::required` needs `SealOptions::keys`"), "{refused}");
    let task = TaskKey { thread: "old".into(), checkpoint: CheckpointId(1), slot: 0 };
    let record = TaskRecord::Cancelled { once: Default::default() };
    let refused = store.record(&task, record).await.unwrap_err();
    assert!(matches!(refused, CheckpointError::Key { .. }), "{refused:?}");
    let refused = store.load(&"old".into(), None).await.unwrap_err();
    assert!(matches!(refused, CheckpointError::Unencrypted { .. }), "{refused:?}");

    let items = Arc::new(MemoryStore::new());
    let notes = Namespace::new(["notes"]).unwrap();
    items.put(&notes, "a", json!(1)).await.unwrap();
    let store = SealedStore::new(items, required());
    let refused = store.put(&notes, "b", json!(1)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Key { .. }), "{refused:?}");
    let refused = store.get(&notes, "a").await.unwrap_err();
    assert!(matches!(refused, StoreError::Unencrypted { .. }), "{refused:?}");
    let refused = store.search(Search::within(&notes)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unencrypted { .. }), "{refused:?}");
}

#[tokio::test]
async fn without_keys_an_encrypted_thread_is_neither_copied_nor_rekeyed() {
    let inner = Arc::new(MemoryCheckpointer::new());
    line(&sealed(&inner, with_keys(&[1])), &thread(), 2).await;
    let without = sealed(&inner, SealOptions::default());
    let refused = without.copy(&thread(), &"copy".into()).await.unwrap_err();
    assert!(matches!(refused, CheckpointError::Key { .. }), "{refused:?}");
    let refused = without.rekey(&thread()).await.unwrap_err();
    assert!(matches!(refused, CheckpointError::Key { .. }), "{refused:?}");
    assert_eq!(inner.names().await.unwrap(), [thread()]);

    let items = Arc::new(MemoryStore::new());
    let notes = Namespace::new(["notes"]).unwrap();
    SealedStore::new(items.clone(), with_keys(&[1])).put(&notes, "a", json!(1)).await.unwrap();
    let refused = SealedStore::new(items, SealOptions::default()).rekey().await.unwrap_err();
    assert!(matches!(refused, StoreError::Key { .. }), "{refused:?}");
}

#[tokio::test]
async fn without_keys_nothing_readable_is_stored_in_an_encrypted_thread() {
    let inner = Arc::new(MemoryCheckpointer::new());
    line(&sealed(&inner, with_keys(&[1])), &thread(), 2).await;
    let before = inner.load(&thread(), None).await.unwrap();
    let without = sealed(&inner, SealOptions::default());
    let at = Some(CheckpointId(2));
    let task = TaskKey { thread: thread(), checkpoint: CheckpointId(2), slot: 0 };
    let record = TaskRecord::Failed { attempts: 1, error: "readable".to_owned(), once: Default::default() };
    let child = thread().child(&Segment { node: "sub".into(), task: None, key: String::new() });
    for refused in [
        without.commit(&thread(), at, superstep(at, "3")).await.map(drop),
        without.commit(&child, None, superstep(None, "1")).await.map(drop),
        without.record(&task, record).await,
        without.prune(&thread(), CheckpointId(2), snapshot()).await.map(drop),
        without.add_effects(&task, [("pay".to_owned(), "1".into())].into()).await.map(drop),
    ] {
        assert!(matches!(refused, Err(CheckpointError::Key { .. })), "{refused:?}");
    }
    assert_eq!(inner.load(&thread(), None).await.unwrap(), before);
}

/// The layer without keys has stored readable checkpoints before.
#[tokio::test]
async fn without_keys_a_thread_that_another_process_encrypted_meanwhile_is_refused() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let without = sealed(&inner, SealOptions::default());
    line(&without, &thread(), 2).await;
    let at = Some(CheckpointId(2));
    sealed(&inner, with_keys(&[1])).commit(&thread(), at, superstep(at, "3")).await.unwrap();
    let before = inner.load(&thread(), None).await.unwrap();
    for refused in [
        without.prune(&thread(), CheckpointId(3), snapshot()).await.map(drop),
        without.copy(&thread(), &"copy".into()).await,
        without.rekey(&thread()).await.map(drop),
    ] {
        assert!(matches!(refused, Err(CheckpointError::Key { .. })), "{refused:?}");
    }
    assert_eq!(inner.load(&thread(), None).await.unwrap(), before);
    assert_eq!(inner.names().await.unwrap(), [thread()]);
}

#[tokio::test]
async fn concurrent_copies_of_a_thread_are_all_read() {
    let folder = Folder::new();
    let store = folder.open_sealed(with_keys(&[1]));
    line(&*store, &thread(), 2).await;
    let (one, other) = (ThreadId::from("one"), ThreadId::from("other"));
    let from = thread();
    let (a, b) = futures::join!(store.copy(&from, &one), store.copy(&from, &other));
    a.unwrap();
    b.unwrap();
    for copy in [one, other] {
        assert_eq!(load(&*folder.open_sealed(with_keys(&[1])), &copy).await.head, CheckpointId(2));
    }
}

/// A process stored the data keys of a new thread, and ended before the first checkpoint.
#[tokio::test]
async fn lost_keys_of_a_thread_that_was_never_stored_do_not_block_its_name() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let full = Arc::new(MemoryCheckpointer::new());
    line(&sealed(&full, with_keys(&[1])), &thread(), 1).await;
    let keys = ThreadId::from("t\u{1f}$keys");
    let record = full.read_commit(&keys, CheckpointId(1)).await.unwrap().unwrap();
    inner.commit(&keys, None, record.clone()).await.unwrap();
    let store = sealed(&inner, with_keys(&[2]));
    line(&store, &thread(), 2).await;
    assert_eq!(load(&sealed(&inner, with_keys(&[2])), &thread()).await.head, CheckpointId(2));

    // One that has a checkpoint remains as it is.
    let refused = sealed(&full, with_keys(&[2])).commit(&thread(), None, superstep(None, "1")).await;
    assert!(matches!(refused, Err(CheckpointError::Key { .. })), "{refused:?}");
    assert_eq!(load(&sealed(&full, with_keys(&[1])), &thread()).await.head, CheckpointId(1));
}

#[tokio::test]
async fn texts_that_look_sealed_are_read_without_keys() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let store = sealed(&inner, SealOptions::default());
    line(&store, &thread(), 1).await;
    let at = CheckpointId(1);
    let once = Default::default;
    let question = || Question {
        key: "$sealed".to_owned(),
        question: "{\"$sealed\":1}".into(),
        schema: None,
        within: None,
        replaces: None,
    };
    let records = vec![
        (0, TaskRecord::Failed { attempts: 1, error: "{\"$sealed\":1}".to_owned(), once: once() }),
        (
            1,
            TaskRecord::Interrupted {
                questions: vec![question()],
                attempts: 1,
                once: once(),
                answers: once(),
                asked: Default::default(),
                error: None,
            },
        ),
    ];
    store.record_all(&thread(), at, records.clone()).await.unwrap();
    assert_eq!(load(&store, &thread()).await.tasks, records);
}

#[tokio::test]
async fn a_readable_checkpoint_behind_an_encrypted_one_names_the_backup() {
    let inner = Arc::new(MemoryCheckpointer::new());
    line(&*inner, &thread(), 1).await;
    for required in [false, true] {
        let store = sealed(&inner, SealOptions { required, ..with_keys(&[1]) });
        if required {
            let refused = text(&store.load(&thread(), None).await.unwrap_err());
            assert!(refused.ends_with("restore the thread from a backup"), "{refused}");
            let before = text(&store.load(&thread(), Some(CheckpointId(1))).await.unwrap_err());
            assert!(before.ends_with("seal it by an export and an import"), "{before}");
            continue;
        }
        let at = Some(CheckpointId(1));
        store.commit(&thread(), at, superstep(at, "2")).await.unwrap();
        let at = Some(CheckpointId(2));
        inner.commit(&thread(), at, superstep(at, "3")).await.unwrap();
        let refused = text(&store.load(&thread(), None).await.unwrap_err());
        assert!(refused.ends_with("restore the thread from a backup"), "{refused}");
    }
}
