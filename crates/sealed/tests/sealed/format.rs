//! The stored forms. Promises: a change of one of these texts is a new version.

use std::sync::Arc;

use serde_json::json;
use superstep_graph::{
    CheckpointId, Checkpointer, MemoryCheckpointer, Store, ThreadId,
    store::{Namespace, Search},
};
use superstep_sealed::{Rekeyed, SealOptions, SealedCheckpointer, SealedStore};
use superstep_testing::lines::{load, superstep, updates};

use crate::support::{Folder, counted, sealed, with_keys};

/// The databases that the versions stored, with nonces and keys that are counted. The second has other records of data keys.
const FIXTURES: [&[u8]; 2] = [include_bytes!("version_1.db"), include_bytes!("version_2.db")];

#[tokio::test]
async fn the_stored_forms_are_stable() {
    let inner = Arc::new(MemoryCheckpointer::new());
    let (thread, store) = (ThreadId::from("t"), sealed(&inner, counted(&[1])));
    store.commit(&thread, None, superstep(None, "{\"c\":1}")).await.unwrap();
    let commit = inner.read_commit(&thread, CheckpointId(1)).await.unwrap().unwrap();
    let keys = ThreadId::from("t\u{1f}$keys");
    let record = inner.load(&keys, None).await.unwrap().unwrap().snapshot.unwrap();
    let found = [
        serde_json::to_string(&*commit.metadata).unwrap(),
        commit.applied[0].update.to_string(),
        record.channels().unwrap()[0].json.to_string(),
    ];
    // The order of entries in a JSON column is the database's.
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let expected: Vec<&str> = include_str!("forms.txt").lines().collect();
    assert_eq!(value(&found[0]), value(expected[0]));
    assert_eq!(found[1..], expected[1..]);
}

#[tokio::test]
async fn a_database_of_each_version_is_read() {
    for fixture in FIXTURES {
        is_read(fixture).await;
    }
}

async fn is_read(fixture: &[u8]) {
    let folder = Folder::new();
    std::fs::write(folder.db(), fixture).unwrap();
    let store = folder.open_sealed(SealOptions { required: true, ..with_keys(&[2, 1]) });
    let loaded = load(&*store, &"t".into()).await;
    assert_eq!(loaded.head, CheckpointId(3));
    assert_eq!(loaded.snapshot.unwrap().channels().unwrap()[0].json, "3");
    let large = store.read_commit(&"t".into(), CheckpointId(3)).await.unwrap().unwrap();
    assert!(large.applied[0].update.to_string().len() > 1_000);
    let before = store.load(&"t".into(), Some(CheckpointId(2))).await.unwrap().unwrap();
    assert_eq!(updates(&before), ["1", "2"]);
    let items = superstep_sqlite::SqliteStore::open(folder.db()).unwrap();
    let items = SealedStore::new(items, SealOptions { required: true, ..with_keys(&[2, 1]) });
    let notes = Namespace::new(["notes"]).unwrap();
    assert_eq!(items.search(Search::within(&notes).words("tea")).await.unwrap()[0].item.key, "a");
}

#[tokio::test]
async fn data_keys_of_the_first_version_are_written_anew_by_a_rekey() {
    let folder = Folder::new();
    std::fs::write(folder.db(), FIXTURES[0]).unwrap();
    let thread = ThreadId::from("t");
    let store = SealedCheckpointer::new(folder.open(), with_keys(&[1]));
    store.copy(&thread, &"copy".into()).await.unwrap();
    for thread in [thread, "copy".into()] {
        assert_eq!(store.rekey(&thread).await.unwrap(), Rekeyed::Changed);
        assert_eq!(store.rekey(&thread).await.unwrap(), Rekeyed::Current);
        let read = SealedCheckpointer::new(folder.open(), with_keys(&[1]));
        assert_eq!(load(&read, &thread).await.head, CheckpointId(3));
    }
    let open = || {
        let items = superstep_sqlite::SqliteStore::open(folder.db()).unwrap();
        SealedStore::new(items, with_keys(&[1]))
    };
    assert!(open().rekey().await.unwrap());
    assert!(!open().rekey().await.unwrap());
    let notes = Namespace::new(["notes"]).unwrap();
    assert_eq!(open().search(Search::within(&notes).words("tea")).await.unwrap()[0].item.key, "a");
}

/// Writes the fixture of a new version to the file that `SEALED_FIXTURE` names.
#[tokio::test]
async fn write_fixture() {
    let Some(to) = std::env::var_os("SEALED_FIXTURE") else { return };
    let folder = Folder::new();
    let store = folder.open_sealed(counted(&[1]));
    superstep_testing::lines::line(&*store, &"t".into(), 2).await;
    let at = Some(CheckpointId(2));
    let mut large = superstep(at, &format!("{{\"c\":\"{}\"}}", "large ".repeat(200)));
    large.snapshot =
        Some(vec![superstep_graph::state::ChannelValue { channel: "c".into(), json: "3".into() }].into());
    store.commit(&"t".into(), at, large).await.unwrap();
    let items = superstep_sqlite::SqliteStore::open(folder.db()).unwrap();
    let items = SealedStore::new(items, counted(&[1]));
    items.put(&Namespace::new(["notes"]).unwrap(), "a", json!({"text": "tea"})).await.unwrap();
    drop((store, items));
    std::fs::copy(folder.db(), to).unwrap();
}
