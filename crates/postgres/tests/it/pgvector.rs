//! Queries by meaning with the extension pgvector. They are skipped, and say so, where it is not installed.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::json;
use superstep_checkpoint::store::{
    Embed, EmbedError, Filter, Index, MemoryStore, Namespace, PutOptions, Search, Store, StoreError,
    StoreOptions,
};
use superstep_postgres::{PostgresOptions, PostgresStore};

use crate::{server::Server, support::fresh};

/// A server with the extension: that of the system, or the one that `just pgvector` installs.
static SERVER: LazyLock<Option<Server>> = LazyLock::new(|| {
    let server = Server::start_from(Some(&programs()?), &["fsync=off"])?;
    server.sql("CREATE EXTENSION vector");
    Some(server)
});

/// Returns the folder of the programs of a PostgreSQL that has the extension.
fn programs() -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/pgvector/programs");
    if let Ok(programs) = installed.canonicalize() {
        return Some(programs);
    }
    let config = |what: &str| {
        let output = Command::new("pg_config").arg(what).output().ok()?;
        Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
    };
    config("--sharedir")?.join("extension/vector.control").is_file().then(|| config("--bindir"))?
}

fn shared() -> Option<&'static Server> {
    let server = SERVER.as_ref();
    if server.is_none() {
        superstep_testing::skipped("pgvector is not installed; `just pgvector` installs it");
    }
    server
}

fn schema() -> Option<PostgresOptions> {
    shared().map(fresh)
}

superstep_testing::conformance!(
    store near,
    place = schema(),
    open = async |postgres: &PostgresOptions, options: StoreOptions| {
        PostgresStore::open(postgres.clone(), options).unwrap()
    },
    sequences = 48,
);

/// Embeds a text of numbers as these numbers.
#[derive(Debug)]
struct Numbers(&'static str);

impl Embed for Numbers {
    fn model(&self) -> &str {
        self.0
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
        let vector = |text: &String| text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        async move { Ok(texts.iter().map(vector).collect()) }.boxed()
    }
}

fn options(model: &'static str) -> StoreOptions {
    StoreOptions::new().embed(Numbers(model))
}

/// Returns a text of pseudorandom numbers from -1 to 1.
fn numbers(seed: u32, dimensions: usize) -> String {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = || {
        // xorshift32.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        format!("{:.4}", f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0)
    };
    std::iter::repeat_with(next).take(dimensions).collect::<Vec<_>>().join(" ")
}

fn items() -> Namespace {
    Namespace::new(["items"]).unwrap()
}

/// Returns the keys and scores that a search finds.
async fn found(store: &dyn Store, search: Search) -> Vec<(String, Option<f64>)> {
    let found = store.search(search).await.unwrap();
    found
        .into_iter()
        .map(|found| (format!("{}.{}", found.item.namespace.as_str(), found.item.key), found.score))
        .collect()
}

fn near(text: &str, limit: usize) -> Search {
    Search { limit, ..Search::within(&items()).meaning(text) }
}

/// Puts the same items, some of them equal, zero, or of other lengths and models.
async fn fill(store: &dyn Store, other: &dyn Store) {
    for nth in 0..300_u32 {
        let text = match nth % 10 {
            7 => numbers(7, 24),
            8 => numbers(nth, 25),
            9 => "0 ".repeat(24),
            _ => numbers(nth, 24),
        };
        let namespace = items().child(["a", "b", "c"][nth as usize % 3]).unwrap();
        let store = if nth % 11 == 0 { other } else { store };
        store.put(&namespace, &format!("{nth:03}"), json!(text)).await.unwrap();
    }
}

#[tokio::test]
async fn the_ranking_and_the_scores_are_those_of_a_scan() {
    let Some(server) = shared() else { return };
    let postgres = fresh(server);
    let store = PostgresStore::open(postgres.clone(), options("m")).unwrap();
    fill(&store, &PostgresStore::open(postgres.clone(), options("n")).unwrap()).await;
    let scan = postgres.clone().schema(server.schema());
    let scan = PostgresStore::open(scan, options("m")).unwrap();
    let memory = MemoryStore::with(options("m"));
    // The in-memory store has one model, which is that of most items.
    for nth in 0..300_u32 {
        let namespace = items().child(["a", "b", "c"][nth as usize % 3]).unwrap();
        let item = store.get(&namespace, &format!("{nth:03}")).await.unwrap().unwrap();
        if nth % 11 != 0 {
            memory.put(&namespace, &item.key, item.value.clone()).await.unwrap();
            scan.put(&namespace, &item.key, item.value).await.unwrap();
        }
    }
    let vectors = format!("SELECT count(*) FROM {}.store_vectors", postgres.schema);
    assert_eq!(server.sql(&vectors), "300");
    for seed in [1, 7, 9, 1000, 1001, 1002] {
        for search in [
            near(&numbers(seed, 24), 1),
            near(&numbers(seed, 24), 40),
            near(&numbers(seed, 24), 1000),
            near(&numbers(seed, 25), 10),
            near(&numbers(seed, 3), 10),
            near(&"0 ".repeat(24), 20),
            near(&numbers(seed, 24), 0),
            Search { offset: 35, ..near(&numbers(seed, 24), 7) },
            Search { offset: 10_000, ..near(&numbers(seed, 24), 7) },
            Search { limit: 9, ..Search::within(&items().child("b").unwrap()).meaning(numbers(seed, 24)) },
        ] {
            let wanted = found(&memory, search.clone()).await;
            assert_eq!(found(&store, search.clone()).await, wanted, "{search:?}");
            assert_eq!(found(&scan, search.clone()).await, wanted, "{search:?}");
        }
    }
}

#[tokio::test]
async fn filters_apply_before_the_limit() {
    let Some(server) = shared() else { return };
    let store = PostgresStore::open(fresh(server), options("m")).unwrap();
    for nth in 0..400 {
        let value = json!({"text": format!("1 0.{nth:03}"), "year": nth});
        let index = Index::Fields(vec!["text".to_owned()]);
        let indexed = PutOptions::new().index(index);
        store.put_with(&items(), &format!("{nth:03}"), value, indexed).await.unwrap();
    }
    let filter = vec![Filter::lt("year", 3)];
    let late = found(&store, Search { filter, ..near("0 1", 2) }).await;
    assert_eq!(late.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["items.002", "items.001"]);
}

#[tokio::test]
async fn the_extension_may_come_and_go() {
    let Some(server) = shared() else { return };
    server.sql("CREATE DATABASE comes");
    let url = server.url().replace("/postgres", "/comes");
    let postgres = PostgresOptions::new(url).connections(2);
    let sql = |text: &str| server.sql(&format!("\\c comes\n{text}"));
    let store = PostgresStore::open(postgres, options("m")).unwrap();
    let put = async |key: &str, text: &str| store.put(&items(), key, json!(text)).await.unwrap();
    let keys = async || -> Vec<String> {
        found(&store, near("1 0", 9)).await.into_iter().map(|(key, _)| key).collect()
    };
    put("before", "1 0.2").await;
    sql("CREATE SCHEMA elsewhere; CREATE EXTENSION vector SCHEMA elsewhere");
    assert_eq!(keys().await, ["items.before"]);
    put("far", "0 1").await;
    put("nearest", "1 0.1").await;
    assert_eq!(keys().await, ["items.nearest", "items.before", "items.far"]);
    assert_eq!(sql("SELECT count(*) FROM superstep.store_vectors"), "2");
    // A deleted item has no vector, whoever deletes it.
    sql("DELETE FROM superstep.store_items WHERE key = 'far'");
    put("nearest", "1 0.3").await;
    assert_eq!(sql("SELECT count(*) FROM superstep.store_vectors"), "1");
    assert_eq!(keys().await, ["items.before", "items.nearest"]);
    sql("DROP EXTENSION vector CASCADE");
    assert_eq!(keys().await, ["items.before", "items.nearest"]);
    put("after", "1 0").await;
    assert_eq!(keys().await, ["items.after", "items.before", "items.nearest"]);
    sql("CREATE EXTENSION vector");
    put("again", "1 0.01").await;
    assert_eq!(keys().await, ["items.after", "items.again", "items.before", "items.nearest"]);
    assert_eq!(sql("SELECT count(*) FROM superstep.store_vectors"), "1");
}

#[tokio::test]
async fn a_role_without_rights_to_make_tables_scans() {
    let Some(server) = shared() else { return };
    let postgres = fresh(server);
    let schema = postgres.schema.clone();
    drop(PostgresStore::open(postgres.clone(), options("m")).unwrap());
    let role = format!("role_{schema}");
    server.sql(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};
         GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}; GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    ));
    let url = server.url().replace("test:", &format!("{role}:"));
    let limited = postgres.url(url);
    let store = PostgresStore::open(limited, options("m")).unwrap();
    store.put(&items(), "a", json!("1 0")).await.unwrap();
    assert_eq!(found(&store, near("1 0", 9)).await, [("items.a".to_owned(), Some(1.0))]);
    assert_eq!(server.sql(&format!("SELECT to_regclass('{schema}.store_vectors') IS NULL")), "t");
}

#[tokio::test]
async fn a_table_of_somebody_else_is_kept() {
    let Some(server) = shared() else { return };
    let postgres = fresh(server);
    let theirs = format!("{}.store_vectors", postgres.schema);
    let store = PostgresStore::open(postgres, options("m")).unwrap();
    server.sql(&format!("CREATE TABLE {theirs} (mine text); INSERT INTO {theirs} VALUES ('kept')"));
    store.put(&items(), "a", json!("1 0")).await.unwrap();
    assert_eq!(found(&store, near("1 0", 9)).await, [("items.a".to_owned(), Some(1.0))]);
    assert_eq!(server.sql(&format!("SELECT mine FROM {theirs}")), "kept");
}

#[tokio::test]
async fn a_vector_that_is_too_long_or_was_changed_is_not_taken() {
    let Some(server) = shared() else { return };
    let postgres = fresh(server);
    let vectors = format!("{}.store_vectors", postgres.schema);
    let store = PostgresStore::open(postgres, options("m")).unwrap();
    // The type has at most 16,000 dimensions.
    let long = "1 ".repeat(16_001);
    store.put(&items(), "long", json!(long)).await.unwrap();
    store.put(&items(), "a", json!("1 0")).await.unwrap();
    assert_eq!(server.sql(&format!("SELECT count(*) FROM {vectors}")), "1");
    assert_eq!(found(&store, near(&long, 9)).await[0].0, "items.long");
    server.sql(&format!("UPDATE {vectors} SET embedding = '[0, 1]'"));
    let error = store.search(near("1 0", 9)).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("is not the vector of its item; delete that row"), "{error}");
    // One of another length is not compared with the query, so that the item is.
    server.sql(&format!("UPDATE {vectors} SET embedding = '[1]'"));
    assert_eq!(found(&store, near("1 0", 9)).await, [("items.a".to_owned(), Some(1.0))]);
    server.sql(&format!("DELETE FROM {vectors}"));
    assert_eq!(found(&store, near("1 0", 9)).await, [("items.a".to_owned(), Some(1.0))]);
}
