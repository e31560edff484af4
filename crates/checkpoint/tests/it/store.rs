//! The store in SQLite: its contract, its file, its neighbours in the file.

use std::sync::{Arc, Mutex};

use futures::future::join_all;
use serde_json::json;
use superstep_checkpoint::{SqliteOptions, SqliteStore};
use superstep_graph::{
    Checkpointer,
    store::{Namespace, Search, Store, StoreError, StoreOptions},
};
use superstep_testing::conformance::{check_store, check_store_operations};

use crate::support::{Folder, superstep};

fn open(folder: &Folder, options: StoreOptions) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open_with(folder.db(), SqliteOptions::default(), options).unwrap())
}

fn notes() -> Namespace {
    Namespace::new(["notes"]).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_conforms() {
    let folders = Mutex::new(Vec::new());
    check_store(async |options| {
        let folder = Folder::new();
        let store = open(&folder, options);
        folders.lock().unwrap().push(folder);
        store
    })
    .await;
}

#[tokio::test]
async fn memory_conforms() {
    check_store(async |options| Arc::new(SqliteStore::in_memory_with(options).unwrap()) as Arc<dyn Store>)
        .await;
}

#[test]
fn a_file_conforms_under_any_operations_and_restarts() {
    check_store_operations(
        async |options| {
            let folder = Folder::new();
            (open(&folder, options), folder)
        },
        async |store, options, folder| {
            drop(store);
            open(folder, options)
        },
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_works_beside_a_live_checkpointer() {
    for store_first in [true, false] {
        let folder = Folder::new();
        let early = store_first.then(|| open(&folder, StoreOptions::default()));
        let checkpointer = folder.open();
        let store = early.unwrap_or_else(|| open(&folder, StoreOptions::default()));
        let (checkpointer, store, notes) = (&checkpointer, &store, &notes());
        let commits = async {
            let mut head = None;
            for n in 0..50 {
                let commit = superstep(head, &format!("{{\"n\":{n}}}"));
                head = Some(checkpointer.commit(&"t".into(), head, commit).await.unwrap());
            }
        };
        let puts = join_all((0..50).map(|n| store.put(notes, "k", json!(n))));
        let (puts, ()) = futures::join!(puts, commits);
        assert!(puts.iter().all(Result::is_ok));
        assert_eq!(checkpointer.load(&"t".into(), None).await.unwrap().unwrap().commits.len(), 50);
        assert!(store.get(notes, "k").await.unwrap().is_some());
    }
}

#[tokio::test]
async fn two_programs_see_each_others_items() {
    let folder = Folder::new();
    let (one, two) = (open(&folder, StoreOptions::default()), open(&folder, StoreOptions::default()));
    one.put(&notes(), "k", json!("green tea")).await.unwrap();
    assert_eq!(two.search(Search::everywhere().words("tea")).await.unwrap().len(), 1);
    two.delete(&notes(), "k").await.unwrap();
    assert_eq!(one.get(&notes(), "k").await.unwrap(), None);
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_refused() {
    let folder = Folder::new();
    drop(open(&folder, StoreOptions::default()));
    folder.sql().execute("UPDATE parts SET schema = 2 WHERE name = 'store'", []).unwrap();
    let refused = SqliteStore::open(folder.db()).unwrap_err().to_string();
    assert!(refused.starts_with("SS303: cannot open database"), "{refused}");
    assert!(
        refused.contains("its store was written by a newer superstep (schema 2, this program knows 1)"),
        "{refused}"
    );
    // Its threads are another matter.
    drop(folder.open());
}

#[tokio::test]
async fn damage_is_reported_and_nothing_is_made_up() {
    for (column, value) in
        [("value", "'{'"), ("value", "'1' || char(0)"), ("namespace", "'notes..x'"), ("namespace", "''")]
    {
        let folder = Folder::new();
        let store = open(&folder, StoreOptions::default());
        store.put(&notes(), "k", json!(1)).await.unwrap();
        store.put(&Namespace::new(["other"]).unwrap(), "k", json!(2)).await.unwrap();
        let damage = format!("UPDATE store_items SET {column} = {value} WHERE namespace = 'notes'");
        folder.sql().execute(&damage, []).unwrap();
        let refused = store.search(Search::everywhere()).await;
        assert!(
            matches!(&refused, Err(StoreError::Corrupt { what, .. }) if what.contains("is damaged")),
            "{refused:?}"
        );
        // The others are there.
        assert!(store.get(&Namespace::new(["other"]).unwrap(), "k").await.unwrap().is_some());
    }
}

/// What schema 1 wrote is never written again: a later schema gets a fixture of its own, and this one still has to load.
#[tokio::test]
async fn a_store_of_schema_1_loads_for_ever() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store-v1.db");
    if std::env::var_os("SUPERSTEP_WRITE_FIXTURE").is_some() && !std::path::Path::new(fixture).exists() {
        let folder = Folder::new();
        let store = open(&folder, StoreOptions { clock: Arc::new(Then), ..StoreOptions::default() });
        store
            .put(&notes().child("ü").unwrap(), "it's", json!({"text": "Green Tea", "n": 1.5}))
            .await
            .unwrap();
        drop(store);
        std::fs::copy(folder.db(), fixture).unwrap();
    }
    let folder = Folder::new();
    std::fs::copy(fixture, folder.db()).expect("the fixture is in the repository");
    let store = open(&folder, StoreOptions::default());
    let found = store.search(Search::within(&notes()).words("tea")).await.unwrap();
    let item = &found[0].item;
    assert_eq!((item.namespace.as_str(), item.key.as_str()), ("notes.ü", "it's"));
    assert_eq!(
        (&item.value, item.created_ms, item.expires_ms),
        (&json!({"text": "Green Tea", "n": 1.5}), 1000, None)
    );
    store.put(&item.namespace, &item.key, json!("new")).await.unwrap();
    assert_eq!(store.get(&item.namespace, &item.key).await.unwrap().unwrap().created_ms, 1000);
}

struct Then;

impl superstep_graph::Clock for Then {
    fn now_ms(&self) -> i64 {
        1000
    }
}
