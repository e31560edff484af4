//! The store in SQLite: its contract, its file, other tables in the file.

use std::sync::{Arc, OnceLock};

use futures::future::join_all;
use serde_json::json;
use superstep_graph::{
    Checkpointer, Store,
    store::{Namespace, Operation, PutOptions, Search, StoreError, StoreOptions},
};
use superstep_sqlite::{SqliteOptions, SqliteStore};

use crate::support::{Folder, superstep};

fn open(folder: &Folder, options: StoreOptions) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open_with(folder.db(), SqliteOptions::default(), options).unwrap())
}

fn notes() -> Namespace {
    Namespace::new(["notes"]).unwrap()
}

superstep_testing::conformance!(
    store file,
    place = Some(Folder::new()),
    open = async |folder: &Folder, options| open(folder, options),
);

/// A store in memory, once it was opened.
type Opened = OnceLock<Arc<SqliteStore>>;

superstep_testing::conformance!(
    store memory,
    place = Some(Opened::new()),
    open = async |place: &Opened, options| {
        place.get_or_init(|| Arc::new(SqliteStore::in_memory_with(options).unwrap())).clone()
    },
);

#[tokio::test]
async fn a_store_that_is_only_read_is_not_changed() {
    let folder = Folder::new();
    assert!(SqliteStore::open_read_only(folder.db()).is_err(), "there is none");
    // The file of a checkpointer has no store yet, and none is created.
    drop(folder.open());
    let empty = SqliteStore::open_read_only(folder.db()).unwrap();
    assert_eq!(empty.get(&notes(), "1").await.unwrap(), None);
    let tables =
        folder
            .sql()
            .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'parts'", [], |row| row.get(0));
    assert_eq!(tables, Ok(0));
    open(&folder, StoreOptions::default()).put(&notes(), "1", "tea".into()).await.unwrap();
    let store = SqliteStore::open_read_only(folder.db()).unwrap();
    assert_eq!(store.get(&notes(), "1").await.unwrap().unwrap().value, json!("tea"));
    assert_eq!(store.search(Search::within(&notes()).words("tea")).await.unwrap().len(), 1);
    for store in [&store, &empty] {
        let refused = store.put(&notes(), "2", "more".into()).await.unwrap_err().to_string();
        assert!(refused.ends_with("was opened for reading only; open it for writing"), "{refused}");
        assert!(store.delete(&notes(), "1").await.is_err() && store.sweep().await.is_err());
    }
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
    folder.sql().execute("UPDATE parts SET schema = 4 WHERE name = 'store'", []).unwrap();
    let refused = SqliteStore::open(folder.db()).unwrap_err().to_string();
    assert!(refused.starts_with("SS303: cannot open database"), "{refused}");
    assert!(
        refused.contains("its store was written by a newer superstep (schema 4, this program knows 3)"),
        "{refused}"
    );
    // Its threads are independent.
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
        // The others exist.
        assert!(store.get(&Namespace::new(["other"]).unwrap(), "k").await.unwrap().is_some());
    }
}

/// Data of an older schema is never rewritten: a later schema gets a fixture of its own, and these must still
/// load.
#[tokio::test]
async fn stores_of_every_schema_load() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    let newest = format!("{fixtures}/store-v3.db");
    if std::env::var_os("SUPERSTEP_WRITE_FIXTURE").is_some() && !std::path::Path::new(&newest).exists() {
        let folder = Folder::new();
        let store = open(&folder, StoreOptions::new().clock(Then));
        let ns = notes().child("ü").unwrap();
        store.put(&ns, "it's", json!({"text": "Green Tea", "n": 1.5})).await.unwrap();
        drop(store);
        std::fs::copy(folder.db(), newest).unwrap();
    }
    let mut scores = Vec::new();
    for fixture in ["store-v1.db", "store-v2.db", "store-v3.db"] {
        let folder = Folder::new();
        std::fs::copy(format!("{fixtures}/{fixture}"), folder.db())
            .expect("the fixture is in the repository");
        let store = open(&folder, StoreOptions::default());
        let found = store.search(Search::within(&notes()).words("tea")).await.unwrap();
        let item = &found[0].item;
        assert_eq!((item.namespace.as_str(), item.key.as_str()), ("notes.ü", "it's"));
        assert_eq!(
            (&item.value, item.created_ms, item.expires_ms),
            (&json!({"text": "Green Tea", "n": 1.5}), 1000, None)
        );
        scores.push(found[0].score);
        store.put(&item.namespace, &item.key, json!("new")).await.unwrap();
        assert_eq!(store.get(&item.namespace, &item.key).await.unwrap().unwrap().created_ms, 1000);
        assert!(store.search(Search::within(&notes()).words("tea")).await.unwrap().is_empty());
        assert_eq!(store.search(Search::everywhere().words("new")).await.unwrap().len(), 1);
    }
    assert!(scores.iter().all(|score| *score == scores[0]), "{scores:?}");
}

/// A search reads only the items selected by its rare words, for any number of items.
#[tokio::test]
async fn a_search_does_not_read_every_item_of_a_large_store() {
    let folder = Folder::new();
    let store = open(&folder, StoreOptions::default());
    for nth in 0..30 {
        let put = |at| Operation::Put {
            namespace: notes(),
            key: format!("{nth}.{at}"),
            value: json!(format!("the n{nth} at{at}")),
            options: PutOptions::default(),
        };
        store.batch((0..100).map(put).collect()).await.unwrap();
    }
    let sql = folder.sql();
    let plan = |sql_text: &str| -> Vec<String> {
        let mut plan = sql.prepare(&format!("EXPLAIN QUERY PLAN {sql_text}")).unwrap();
        let rows = plan.query_map([], |row| row.get(3)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let counted = plan(
        "SELECT sum(items) FROM store_terms WHERE term = 'the' AND namespace >= 'a' AND namespace < 'b'",
    );
    assert_eq!(counted, ["SEARCH store_terms USING PRIMARY KEY (term=? AND namespace>? AND namespace<?)"]);
    let totals: (i64, i64) = sql
        .query_row("SELECT items, words FROM store_totals WHERE namespace = 'notes'", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(totals, (3_000, 9_000));
    // Damaged values that the rare words do not select do not affect the search.
    sql.execute("UPDATE store_items SET value = '{' WHERE key NOT LIKE '%.42'", []).unwrap();
    let found =
        store.search(Search { limit: 100, ..Search::within(&notes()).words("the at42") }).await.unwrap();
    assert_eq!(found.len(), 30);
    let filter = vec![superstep_graph::store::Filter::eq("none", 1)];
    let search = Search { filter, ..Search::within(&notes()).words("the at42") };
    assert!(store.search(search).await.unwrap().is_empty());
}

struct Then;

impl superstep_graph::clock::Clock for Then {
    fn now_ms(&self) -> i64 {
        1000
    }
}
