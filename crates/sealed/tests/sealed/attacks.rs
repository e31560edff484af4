//! Attacks with write access to the database: all are noticed, except deletion and older versions.

use std::sync::Arc;

use futures::future::BoxFuture;
use rusqlite::Connection;
use serde_json::{Value, json};
use superstep_graph::{
    CheckpointId, Checkpointer, MemoryCheckpointer, MemoryStore, Store, ThreadId,
    checkpoint::{CheckpointError, Commit},
    state::ChannelValue,
    store::{Answer, Namespace, Operation, Search, StoreError},
};
use superstep_sealed::{Rekeyed, SealOptions, SealedCheckpointer, SealedStore};
use superstep_testing::lines::{line, load, superstep};

use crate::support::{sealed, text, with_keys};

/// Copies a thread by hand, with a change of each commit.
async fn forged(
    inner: &Arc<MemoryCheckpointer>,
    names: (&ThreadId, &ThreadId),
    change: impl Fn(u64, &mut Vec<Commit>),
) -> SealedCheckpointer {
    let (from, to) = names;
    let forged = Arc::new(MemoryCheckpointer::new());
    for thread in [from.clone()].into_iter().chain(inner.children(from).await.unwrap()) {
        let head = inner.load(&thread, None).await.unwrap().unwrap().head;
        let mut commits = Vec::new();
        for id in 1..=head.0 {
            commits.push(inner.read_commit(&thread, CheckpointId(id)).await.unwrap().unwrap());
        }
        if !thread.is_child() {
            change(head.0, &mut commits);
        }
        forged.commit_all(&thread.moved(from, to), None, commits).await.unwrap();
    }
    sealed(&forged, SealOptions { required: true, ..with_keys(&[1]) })
}

#[tokio::test]
async fn each_forged_thread_is_refused() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let thread = ThreadId::from("t");
    line(&sealed(&inner, with_keys(&[1])), &thread, 5).await;
    let same = (&thread, &thread);
    let read = async |store: SealedCheckpointer, thread: &ThreadId| store.load(thread, None).await;
    read(forged(&inner, same, |_, _| {}).await, &thread).await.unwrap();

    type Forgery = (&'static str, fn(&mut Vec<Commit>));
    let forgeries: [Forgery; 12] = [
        ("no first update", |all| all[1].parent = None),
        ("an update of an older checkpoint", |all| {
            all[4].applied[0].update = all[3].applied[0].update.clone()
        }),
        ("exchanged updates", |all| {
            let one = all[2].applied[0].update.clone();
            all[2].applied[0].update = all[3].applied[0].update.clone();
            all[3].applied[0].update = one;
        }),
        ("another node to run next", |all| all[4].control.next = vec!["deploy".into()]),
        ("another superstep", |all| all[4].control.step += 1),
        ("another time", |all| all[4].created_ms += 1),
        ("metadata of another checkpoint", |all| all[4].metadata = all[3].metadata.clone()),
        ("no metadata", |all| all[4].metadata = Default::default()),
        ("another author", |all| all[4].applied[0].node = "other".into()),
        ("a missing update of an earlier checkpoint", |all| all[2].applied.clear()),
        ("an update of an earlier checkpoint twice", |all| {
            let again = all[2].applied[0].clone();
            all[2].applied.push(again);
        }),
        ("a readable update", |all| all[4].applied[0].update = "{}".into()),
    ];
    for (what, forgery) in forgeries {
        let store = forged(&inner, same, |_, all| forgery(all)).await;
        let error = read(store, &thread).await.map(|_| ()).expect_err(what);
        let is_named = text(&error).contains("thread `t`");
        assert!(is_named, "{what}: {}", text(&error));
        let is_refused =
            matches!(error, CheckpointError::Corrupt { .. } | CheckpointError::Unencrypted { .. });
        assert!(is_refused, "{what}: {error:?}");
    }

    // The whole thread under another name.
    let other = ThreadId::from("u");
    let error = read(forged(&inner, (&thread, &other), |_, _| {}).await, &other).await.unwrap_err();
    assert!(text(&error).starts_with("SS304: the data keys of thread `u`"), "{}", text(&error));
}

#[tokio::test]
async fn each_flipped_bit_of_a_sealed_row_is_an_error_that_names_it() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let thread = ThreadId::from("t");
    line(&sealed(&inner, with_keys(&[1])), &thread, 1).await;
    let commit = inner.read_commit(&thread, CheckpointId(1)).await.unwrap().unwrap();
    let update = commit.applied[0].update.to_string();
    for position in 0..update.len() {
        let mut bytes = update.clone().into_bytes();
        bytes[position] ^= 1;
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        let store = forged(&inner, (&thread, &thread), |_, all| {
            all[0].applied[0].update = changed.clone().into();
        })
        .await;
        // The unused bits at the end of Base64 are an error as well.
        let error = store.load(&thread, None).await.map(|_| ()).expect_err(&changed);
        assert!(text(&error).contains("checkpoint 1 of thread `t`"), "{changed}: {}", text(&error));
    }
}

#[tokio::test]
async fn a_decompressed_value_is_limited() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let thread = ThreadId::from("t");
    let limited = sealed(&inner, SealOptions { max_bytes: 100_000, ..with_keys(&[1]) });
    let store = sealed(&inner, with_keys(&[1]));
    let large = format!("{{\"c\":\"{}\"}}", "x".repeat(200_000));
    store.commit(&thread, None, superstep(None, &large)).await.unwrap();
    let stored = inner.read_commit(&thread, CheckpointId(1)).await.unwrap().unwrap();
    assert!(stored.applied[0].update.to_string().len() < 1_000);
    let error = text(&limited.load(&thread, None).await.unwrap_err());
    let expected =
        "it has 200008 bytes decompressed, and at most 100000 are allowed; raise `SealOptions::max_bytes`";
    assert!(error.contains(expected), "{error}");

    // A value that could not be read again is not compressed.
    let at = Some(CheckpointId(1));
    limited.commit(&thread, at, superstep(at, &large)).await.unwrap();
    let stored = inner.read_commit(&thread, CheckpointId(2)).await.unwrap().unwrap();
    assert!(stored.applied[0].update.to_string().len() > 200_000);
    let read = limited.read_commit(&thread, CheckpointId(2)).await.unwrap().unwrap();
    assert_eq!(read.applied[0].update.to_string(), large);
}

/// SQLite's own checksums find bit rot below the layer, so that it is not called an attack.
#[tokio::test]
async fn a_damaged_row_of_a_database_names_its_row() {
    let folder = crate::support::Folder::new();
    let thread = ThreadId::from("t");
    let store = folder.open_sealed(with_keys(&[1]));
    line(&*store, &thread, 2).await;
    drop(store);
    let sql = Connection::open(folder.db()).unwrap();
    sql.execute("UPDATE checkpoints SET applied = replace(applied, 'data\":\"', 'data\":\"A')", []).unwrap();
    let error = folder.open_sealed(with_keys(&[1])).load(&thread, None).await.unwrap_err();
    assert!(text(&error).starts_with("SS304: checkpoint 2 of thread `t`"), "{}", text(&error));
}

/// Someone who has the old master key and an old copy knows the first data key, and wants new values under it.
#[tokio::test]
async fn an_old_data_key_of_a_thread_does_not_become_the_current_one() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let (thread, keys) = (ThreadId::from("t"), ThreadId::from("t\u{1f}$keys"));
    line(&sealed(&inner, with_keys(&[1])), &thread, 2).await;
    assert_eq!(sealed(&inner, with_keys(&[2, 1])).rekey(&thread).await.unwrap(), Rekeyed::Changed);
    let stored = load(&*inner, &keys).await;
    let record = stored.snapshot.unwrap().channels().unwrap()[0].json.to_string();
    let record: Value = serde_json::from_str(&record).unwrap();
    let mut head = stored.head;
    type Forgery = (&'static str, bool, fn(&mut Value));
    let forgeries: [Forgery; 5] = [
        ("none", false, |_| {}),
        ("exchanged keys", true, |record| record["keys"].as_array_mut().unwrap().reverse()),
        ("no new key", true, |record| drop(record["keys"].as_array_mut().unwrap().pop())),
        ("the old key again", true, |record| {
            let again = record["keys"][0].clone();
            record["keys"].as_array_mut().unwrap().push(again);
        }),
        ("the format before", true, |record| record["format"] = 1.into()),
    ];
    for (what, is_refused, forgery) in forgeries {
        let mut record = record.clone();
        forgery(&mut record);
        let value = ChannelValue { channel: "$keys".to_owned(), json: record.to_string().into() };
        let commit = Commit { snapshot: Some(vec![value].into()), ..superstep(Some(head), "1") };
        head = inner.commit(&keys, Some(head), commit).await.unwrap();
        let read = sealed(&inner, with_keys(&[2])).load(&thread, None).await;
        assert_eq!(matches!(read, Err(CheckpointError::Corrupt { .. })), is_refused, "{what}: {read:?}");
        assert_eq!(read.is_err(), is_refused, "{what}: {read:?}");
    }
}

#[tokio::test]
async fn an_old_data_key_of_a_store_does_not_become_the_current_one() {
    let inner = Arc::new(MemoryStore::new());
    let (keys, notes) = (Namespace::new(["$keys"]).unwrap(), Namespace::new(["notes"]).unwrap());
    let open = |keys: &[u8]| SealedStore::new(inner.clone(), with_keys(keys));
    let used = async |keys: &[u8], key: &str| {
        open(keys).put(&notes, key, json!("tea")).await.unwrap();
        inner.get(&notes, key).await.unwrap().unwrap().value["key"].as_str().unwrap().to_owned()
    };
    let old = used(&[1], "a").await;
    assert!(open(&[2, 1]).rekey().await.unwrap());
    assert!(!open(&[2, 1]).rekey().await.unwrap());
    let new = used(&[2], "b").await;
    assert_ne!(new, old);
    // The old one as the item that was created last, however the times are.
    for (moved, nth) in [(&old, "c"), (&new, "d")] {
        let item = inner.get(&keys, moved).await.unwrap().unwrap();
        inner.delete(&keys, moved).await.unwrap();
        inner.put(&keys, moved, item.value).await.unwrap();
        assert_eq!(used(&[2], nth).await, new);
    }
    inner.delete(&keys, &new).await.unwrap();
    let next = used(&[2], "e").await;
    assert!(next != old && next != new, "{next}");
    assert_eq!(open(&[2]).get(&notes, "a").await.unwrap().unwrap().value, json!("tea"));
    assert_eq!(inner.search(Search::within(&keys)).await.unwrap().len(), 2);
}

/// A store whose data keys someone deletes at once.
struct Forgetful(MemoryStore);

impl Store for Forgetful {
    fn batch(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answer>, StoreError>> {
        Box::pin(async {
            let put = operations.iter().find_map(|operation| match operation {
                Operation::Put { namespace, key, .. } => Some((namespace.clone(), key.clone())),
                _ => None,
            });
            let answers = self.0.batch(operations).await?;
            if let Some((namespace, key)) = put.filter(|(namespace, _)| namespace.as_str() == "$keys") {
                self.0.delete(&namespace, &key).await?;
            }
            Ok(answers)
        })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.0.sweep()
    }
}

#[tokio::test]
async fn an_item_is_not_stored_readable_if_the_data_keys_are_deleted_meanwhile() {
    let inner = Arc::new(Forgetful(MemoryStore::new()));
    let notes = Namespace::new(["notes"]).unwrap();
    let store = SealedStore::new(inner.clone(), with_keys(&[1]));
    let refused = store.put(&notes, "a", json!("tea")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Key { .. }), "{refused:?}");
    assert_eq!(inner.get(&notes, "a").await.unwrap(), None);
}
