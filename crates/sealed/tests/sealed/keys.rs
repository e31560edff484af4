//! Keys: rotation, missing ones, and what is readable.

use std::sync::Arc;

use serde_json::json;
use superstep_graph::{
    CheckpointId, Checkpointer, History, MemoryCheckpointer, MemoryStore, Store, ThreadId,
    checkpoint::{CheckpointError, Segment, TaskKey, TaskRecord},
    store::{Namespace, Search, StoreError},
};
use superstep_sealed::{Rekeyed, SealOptions, SealedStore};
use superstep_testing::lines::{line, load, superstep, updates};

use crate::support::{Folder, counted, key, sealed, text, with_keys};

fn thread() -> ThreadId {
    "t".into()
}

#[tokio::test]
async fn a_thread_is_read_with_an_old_key_and_rekeyed_without_its_values() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let thread = thread();
    line(&sealed(&inner, with_keys(&[1])), &thread, 3).await;
    let before = inner.load(&thread, None).await.unwrap();
    let both = sealed(&inner, with_keys(&[2, 1]));
    let values = updates(&load(&both, &thread).await);
    assert_eq!(both.rekey(&thread).await.unwrap(), Rekeyed::Changed);
    assert_eq!(both.rekey(&thread).await.unwrap(), Rekeyed::Current);
    assert_eq!(inner.load(&thread, None).await.unwrap(), before, "the values remain as they are");

    let new = sealed(&inner, with_keys(&[2]));
    assert_eq!(updates(&load(&new, &thread).await), values);
    let at = Some(CheckpointId(3));
    new.commit(&thread, at, superstep(at, "9")).await.unwrap();
    assert_eq!(load(&new, &thread).await.head, CheckpointId(4));
    let old = sealed(&inner, with_keys(&[1])).load(&thread, None).await.unwrap_err();
    let (now, id) = (text(&old), key(2).id().to_owned());
    assert!(matches!(old, CheckpointError::Key { .. }), "{now}");
    assert!(now.starts_with(&format!("SS316: thread `t` is encrypted with key `{id}`")), "{now}");

    // The data key of new values is another one.
    let rows = inner.read_commit(&thread, CheckpointId(4)).await.unwrap().unwrap();
    let first = inner.read_commit(&thread, CheckpointId(1)).await.unwrap().unwrap();
    let named = |metadata: &serde_json::Map<_, serde_json::Value>| metadata["$sealed"]["key"].clone();
    assert_ne!(named(&rows.metadata), named(&first.metadata));
    assert_eq!(both.rekey(&"other".into()).await.unwrap(), Rekeyed::Plain);
}

#[tokio::test]
async fn a_running_process_continues_after_its_thread_was_rekeyed() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let (thread, running) = (thread(), sealed(&inner, with_keys(&[1])));
    line(&running, &thread, 2).await;
    sealed(&inner, with_keys(&[2, 1])).rekey(&thread).await.unwrap();
    let at = Some(CheckpointId(2));
    running.commit(&thread, at, superstep(at, "9")).await.unwrap();
    let new = sealed(&inner, with_keys(&[2]));
    assert_eq!(load(&new, &thread).await.head, CheckpointId(3));
}

#[tokio::test]
async fn a_program_that_opened_a_thread_finds_the_keys_of_its_successor() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let (one, other) = (sealed(&inner, with_keys(&[1])), sealed(&inner, with_keys(&[1])));
    line(&one, &thread(), 2).await;
    assert_eq!(load(&other, &thread()).await.head, CheckpointId(2));
    one.delete(&thread()).await.unwrap();
    line(&one, &thread(), 3).await;
    assert_eq!(load(&other, &thread()).await.head, CheckpointId(3));
}

#[tokio::test]
async fn a_thread_from_the_time_before_encryption_continues_encrypted_unless_encryption_is_required() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let thread = thread();
    line(&*inner, &thread, 2).await;
    let at = Some(CheckpointId(2));
    let required = sealed(&inner, SealOptions { required: true, ..with_keys(&[1]) });
    let refused = required.load(&thread, None).await.unwrap_err();
    assert!(matches!(refused, CheckpointError::Unencrypted { .. }), "{refused:?}");
    assert!(text(&refused).starts_with("SS317: checkpoint 2 of thread `t` is not encrypted"), "{refused}");
    let store = sealed(&inner, with_keys(&[1]));
    store.commit(&thread, at, superstep(at, "9")).await.unwrap();
    let loaded = load(&store, &thread).await;
    assert_eq!(loaded.commits.len(), 3);
    assert!(
        inner.read_commit(&thread, CheckpointId(3)).await.unwrap().unwrap().metadata.contains_key("$sealed")
    );
    // An attacker appends a readable checkpoint.
    let at = Some(CheckpointId(3));
    inner.commit(&thread, at, superstep(at, "7")).await.unwrap();
    let refused = store.load(&thread, None).await.unwrap_err();
    assert!(matches!(refused, CheckpointError::Unencrypted { .. }), "{refused:?}");
}

#[tokio::test]
async fn no_value_is_readable_in_the_database() {
    const SECRET: &str = "swordfish";
    let folder = Folder::new();
    let store = folder.open_sealed(with_keys(&[1]));
    let thread = thread();
    let mut first = superstep(None, &format!("{{\"c\":\"{SECRET}\"}}"));
    first.metadata = serde_json::Map::from_iter([("user".to_owned(), SECRET.into())]).into();
    first.control.items.insert(0, format!("\"{SECRET}\""));
    store.commit(&thread, None, first).await.unwrap();
    let task = TaskKey { thread: thread.clone(), checkpoint: CheckpointId(1), slot: 0 };
    let record = TaskRecord::Failed {
        attempts: 1,
        error: SECRET.to_owned(),
        once: [("pay".to_owned(), format!("\"{SECRET}\"").into())].into(),
    };
    store.record(&task, record.clone()).await.unwrap();
    let loaded = store.load(&thread, None).await.unwrap().unwrap();
    assert_eq!(loaded.tasks, [(0, record)]);
    assert_eq!(loaded.meta.metadata["user"], SECRET);
    let wanted = History { metadata: loaded.meta.metadata.clone(), ..History::default() };
    assert_eq!(store.history(&thread, wanted).await.unwrap().len(), 1);
    let other =
        History { metadata: [("user".to_owned(), "x".into())].into_iter().collect(), ..History::default() };
    assert_eq!(store.history(&thread, other).await.unwrap(), []);
    drop(store);
    for end in ["", "-wal"] {
        let file = std::fs::read(format!("{}{end}", folder.db().display())).unwrap_or_default();
        assert!(!file.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes()), "db{end}");
    }
}

#[tokio::test]
async fn a_copy_is_read_under_its_name_and_without_the_original() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let (from, to) = (thread(), ThreadId::from("copy"));
    let store = sealed(&inner, with_keys(&[1]));
    line(&store, &from, 3).await;
    store.copy(&from, &to).await.unwrap();
    assert!(matches!(store.copy(&from, &to).await, Err(CheckpointError::ThreadExists { .. })));
    store.delete(&from).await.unwrap();
    let store = sealed(&inner, with_keys(&[2, 1]));
    assert_eq!(load(&store, &to).await.head, CheckpointId(3));
    assert_eq!(store.children(&to).await.unwrap(), []);
    assert_eq!(store.rekey(&to).await.unwrap(), Rekeyed::Changed);
    assert_eq!(load(&sealed(&inner, with_keys(&[2])), &to).await.head, CheckpointId(3));
}

#[tokio::test]
async fn a_store_is_rekeyed_and_refuses_unknown_keys() {
    let inner = Arc::new(MemoryStore::new());
    let notes = Namespace::new(["notes"]).unwrap();
    let open = |options| SealedStore::new(inner.clone(), options);
    let one = open(with_keys(&[1]));
    one.put(&notes, "a", json!({"text": "green tea"})).await.unwrap();
    assert!(!inner.get(&notes, "a").await.unwrap().unwrap().value.to_string().contains("tea"));
    let both = open(with_keys(&[2, 1]));
    assert!(both.rekey().await.unwrap());
    assert!(!both.rekey().await.unwrap());
    both.put(&notes, "b", json!({"text": "black tea"})).await.unwrap();
    // A process with the data keys of before.
    one.put(&notes, "c", json!({"text": "white tea"})).await.unwrap();
    let new = open(with_keys(&[2]));
    let found = new.search(Search::within(&notes).words("tea")).await.unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(new.list_namespaces(Default::default()).await.unwrap(), std::slice::from_ref(&notes));
    let refused = open(with_keys(&[1])).get(&notes, "a").await.unwrap_err();
    assert!(matches!(refused, StoreError::Key { .. }), "{refused:?}");
    let reserved = Namespace::new(["$keys"]).unwrap();
    assert!(matches!(new.get(&reserved, "a").await, Err(StoreError::Namespace { .. })));

    // A moved item, and a readable one.
    let moved = inner.get(&notes, "a").await.unwrap().unwrap().value;
    inner.put(&notes, "d", moved).await.unwrap();
    let refused = new.get(&notes, "d").await.unwrap_err();
    assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused:?}");
    inner.put(&notes, "d", json!({"text": "forged"})).await.unwrap();
    let required = open(SealOptions { required: true, ..with_keys(&[2]) });
    let refused = required.get(&notes, "d").await.unwrap_err().to_string();
    assert!(refused.starts_with("SS317: item `d` in `notes` is not encrypted"), "{refused}");
    assert_eq!(new.get(&notes, "d").await.unwrap().unwrap().value["text"], "forged");
}

#[tokio::test]
async fn keys_are_in_no_debug_text() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let store = sealed(&inner, counted(&[1]));
    line(&store, &thread(), 1).await;
    let shown = format!("{store:?}");
    assert!(!shown.contains("99") && !shown.contains(&*key(1).to_base64()), "{shown}");
}

#[tokio::test]
async fn a_program_without_a_key_learns_its_id_and_stores_nothing_readable() {
    let inner = Arc::new(MemoryCheckpointer::new());
    line(&sealed(&inner, with_keys(&[1])), &thread(), 2).await;
    let without = sealed(&inner, SealOptions::default());
    let id = key(1).id().to_owned();
    let read = text(&without.load(&thread(), None).await.unwrap_err());
    let expected =
        format!("SS316: thread `t` is encrypted with key `{id}`, which is not among the keys; provide");
    assert!(read.starts_with(&expected), "{read}");
    let refused = text(&without.commit(&"new".into(), None, superstep(None, "1")).await.unwrap_err());
    let expected = format!("SS316: the database is encrypted with key `{id}`, so thread `new` is not stored");
    assert!(refused.starts_with(&expected), "{refused}");

    let items = Arc::new(MemoryStore::new());
    let notes = Namespace::new(["notes"]).unwrap();
    SealedStore::new(items.clone(), with_keys(&[1])).put(&notes, "a", json!(1)).await.unwrap();
    let without = SealedStore::new(items, SealOptions::default());
    let read = without.get(&notes, "a").await.unwrap_err().to_string();
    assert!(read.starts_with(&format!("SS316: item `a` in `notes` is encrypted with key `{id}`")), "{read}");
    let refused = without.put(&notes, "b", json!(2)).await.unwrap_err().to_string();
    let expected =
        format!("SS316: the store is encrypted with key `{id}`, so item `b` in `notes` is not stored");
    assert!(refused.starts_with(&expected), "{refused}");
}

/// A process with a key posts to a thread that a process without keys runs.
#[tokio::test]
async fn a_post_to_a_readable_thread_remains_readable_until_the_thread_is_encrypted() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let inbox = thread().child(&Segment { node: "$inbox".into(), task: None, key: String::new() });
    let post = async |store: &dyn Checkpointer, number: u64| {
        let at = Some(CheckpointId(number - 1)).filter(|id| id.0 > 0);
        store.commit(&inbox, at, superstep(at, "7")).await
    };
    let is_encrypted = async |number| {
        let stored = inner.read_commit(&inbox, CheckpointId(number)).await.unwrap().unwrap();
        stored.metadata.contains_key("$sealed")
    };
    let running = sealed(&inner, SealOptions::default());
    line(&running, &thread(), 2).await;
    let shell = sealed(&inner, with_keys(&[1]));
    post(&shell, 1).await.unwrap();
    assert!(!is_encrypted(1).await);
    let at = Some(CheckpointId(2));
    running.commit(&thread(), at, superstep(at, "3")).await.unwrap();
    assert_eq!(load(&running, &thread()).await.head, CheckpointId(3));
    assert_eq!(load(&shell, &thread()).await.head, CheckpointId(3));
    let required = sealed(&inner, SealOptions { required: true, ..with_keys(&[1]) });
    let refused = post(&required, 2).await.unwrap_err();
    assert!(matches!(refused, CheckpointError::Unencrypted { .. }), "{refused:?}");

    // A turn with the key. The shell has not read the thread since.
    let at = Some(CheckpointId(3));
    let turn = sealed(&inner, with_keys(&[1]));
    turn.commit(&thread(), at, superstep(at, "4")).await.unwrap();
    post(&shell, 2).await.unwrap();
    assert!(is_encrypted(2).await);
    assert_eq!(load(&turn, &inbox).await.head, CheckpointId(2));
    assert_eq!(load(&turn, &thread()).await.head, CheckpointId(4));
}

#[tokio::test]
async fn a_rekey_names_an_encrypted_thread_without_data_keys() {
    let inner = Arc::new(MemoryCheckpointer::new());
    line(&sealed(&inner, with_keys(&[1])), &thread(), 2).await;
    inner.delete(&"t\u{1f}$keys".into()).await.unwrap();
    let refused = sealed(&inner, with_keys(&[2, 1])).rekey(&thread()).await.unwrap_err();
    assert!(matches!(refused, CheckpointError::Key { .. }), "{refused:?}");
    assert!(text(&refused).starts_with("SS316: checkpoint 2 of thread `t`"), "{refused}");
}
