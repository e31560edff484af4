//! Storage shared by threads.

use std::sync::Arc;

use serde_json::json;
use superstep::{
    Cx, END, MemoryStore, NodeError, START, State as _, StateGraph, Store,
    clock::{Clock, TokioClock},
    store::{Filter, Found, ListNamespaces, Namespace, Search, StoreError, StoreOptions},
};

use crate::support::{Plain, failed, say, text};

/// Makes each scenario a test in memory and a test in a database.
macro_rules! in_every_store {
    ($($(#[$attribute:meta])* async fn $name:ident($store:ident: Arc<dyn Store>) $body:block)*) => {$(
        $(#[$attribute])*
        async fn $name($store: Arc<dyn Store>) $body

        mod $name {
            use std::sync::Arc;
            use superstep::{MemoryStore, store::StoreOptions};

            #[tokio::test(start_paused = true)]
            async fn in_memory() {
                let options = StoreOptions::new().clock(super::clock());
                super::$name(Arc::new(MemoryStore::with(options))).await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test(start_paused = true)]
            async fn in_sqlite() {
                let folder = tempfile::tempdir().unwrap();
                let options = StoreOptions::new().clock(super::clock());
                let path = folder.path().join("store.db");
                let store = superstep::sqlite::SqliteStore::open_with(path, Default::default(), options);
                super::$name(Arc::new(store.unwrap())).await;
            }
        }
    )*};
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(TokioClock::starting_at(1_000_000))
}

fn ns(labels: &[&str]) -> Namespace {
    Namespace::new(labels.iter().copied()).unwrap()
}

fn keys(found: &[Found]) -> String {
    found.iter().map(|found| found.item.key.as_str()).collect::<Vec<_>>().join(" ")
}

fn paths(namespaces: &[Namespace]) -> String {
    namespaces.iter().map(Namespace::as_str).collect::<Vec<_>>().join(" ")
}

in_every_store! {
    async fn a_search_finds_what_is_below_and_fits(store: Arc<dyn Store>) {
        store.put(&ns(&["a", "b"]), "k1", json!({"kind": "fact", "n": 1})).await.unwrap();
        store.put(&ns(&["a", "b", "c"]), "k2", json!({"kind": "fact", "n": 2})).await.unwrap();
        store.put(&ns(&["z"]), "k3", json!({"kind": "fact", "n": 3})).await.unwrap();
        let search = async |filter, limit, offset| {
            let search = Search { filter, limit, offset, ..Search::within(&ns(&["a", "b"])) };
            keys(&store.search(search).await.unwrap())
        };
        let parse = |json| Filter::parse(&json).unwrap();
        assert_eq!(search(vec![], 10, 0).await, "k1 k2");
        assert_eq!(search(parse(json!({"n": 1})), 10, 0).await, "k1");
        assert_eq!(search(parse(json!({"kind": "fact", "n": {"$gt": 1}})), 10, 0).await, "k2");
        assert_eq!(search(parse(json!({"n": {"$gt": 2}})), 10, 0).await, "");
        assert_eq!(search(vec![], 1, 0).await, "k1");
        assert_eq!(search(vec![], 1, 1).await, "k2");
        for n in 0..20 {
            store.put(&ns(&["many"]), &format!("{n:02}"), json!({})).await.unwrap();
        }
        assert_eq!(store.search(Search::within(&ns(&["many"]))).await.unwrap().len(), 10);
    }

    async fn namespaces_are_listed_by_prefix_suffix_and_depth(store: Arc<dyn Store>) {
        for labels in [&["a", "b"][..], &["a", "b", "c"], &["z"]] {
            store.put(&ns(labels), "k", json!({})).await.unwrap();
        }
        let list = async |which| paths(&store.list_namespaces(which).await.unwrap());
        let some = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect();
        let all = ListNamespaces::default;
        assert_eq!(list(all()).await, "a.b a.b.c z");
        assert_eq!(list(ListNamespaces { max_depth: Some(2), ..all() }).await, "a.b z");
        assert_eq!(list(ListNamespaces { prefix: some(&["a"]), ..all() }).await, "a.b a.b.c");
        assert_eq!(list(ListNamespaces { suffix: some(&["*", "c"]), ..all() }).await, "a.b.c");
        assert_eq!(list(ListNamespaces { prefix: some(&["*", "b"]), limit: 1, offset: 1, ..all() }).await, "a.b.c");
    }

    async fn putting_again_replaces_and_keeps_the_beginning(store: Arc<dyn Store>) {
        let place = ns(&["a"]);
        assert_eq!(store.get(&place, "k").await.unwrap(), None);
        store.put(&place, "k", json!({"x": 1, "y": 1})).await.unwrap();
        let first = store.get(&place, "k").await.unwrap().unwrap();
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        store.put(&place, "k", json!({"x": 2})).await.unwrap();
        let second = store.get(&place, "k").await.unwrap().unwrap();
        assert_eq!(second.value, json!({"x": 2}));
        assert_eq!((first.created_ms, first.updated_ms), (1_000_000, 1_000_000));
        assert_eq!((second.created_ms, second.updated_ms), (1_000_000, 1_001_000));
    }

    async fn nodes_of_every_thread_have_the_graphs_store(store: Arc<dyn Store>) {
        let mut graph = StateGraph::<Plain>::new("remembers");
        let node = graph.add_node("node", async |_: Plain, cx: Cx| {
            let place = ns(&["said"]);
            let before = cx.store()?.search(Search::within(&place)).await?.len();
            cx.store()?.put(&place, &cx.thread().unwrap().to_string(), json!("hello")).await?;
            Ok::<_, NodeError>(say(&before.to_string()))
        });
        graph.add_edge(START, node);
        graph.add_edge(node, END);
        let graph = graph.compile().unwrap().with_store(store);
        for (thread, expected) in [("one", "0"), ("two", "1"), ("three", "2")] {
            let run = graph.thread(thread).run(Plain::update()).await.unwrap();
            assert_eq!(run.state.log_text(), expected);
        }
    }
}

#[test]
fn labels_that_make_no_namespace_are_errors() {
    for (labels, why) in [
        (&[][..], "it has no label; give it at least one"),
        (&["a", ""], "one of its labels is empty; leave it out or name it"),
        (
            &["a.b"],
            "one of its labels has a `.`, which separates labels; make two labels of it or replace the `.`",
        ),
        (&["superstep", "x"], "its first label is reserved for superstep; choose another"),
    ] {
        let error = Namespace::new(labels.iter().copied()).unwrap_err();
        assert!(error.is_misuse());
        assert_eq!(error.to_string(), format!("SS305: invalid namespace `{}`: {why}", labels.join(".")));
    }
    // Only the first label is reserved.
    assert!(Namespace::new(["x", "superstep"]).is_ok());
    assert!(ns(&["x"]).child("").is_err());
    assert!(matches!(Namespace::parse("a..b"), Err(StoreError::Namespace { .. })));
}

#[test]
fn an_invalid_filter_is_an_error() {
    for (filter, expected) in [
        (json!([1]), "SS306: a filter is an object with a field each, and not `[1]`"),
        (
            json!({"n": {"$in": [1]}}),
            "SS306: unknown operator `$in` in the filter of field `n`; use `$eq`, `$ne`, `$gt`, `$gte`, \
             `$lt`, `$lte`",
        ),
        (
            json!({"n": {"$gt": 1, "x": 2}}),
            "SS306: unknown operator `x` in the filter of field `n`; use `$eq`, `$ne`, `$gt`, `$gte`, \
             `$lt`, `$lte`",
        ),
    ] {
        assert_eq!(Filter::parse(&filter).unwrap_err().to_string(), expected);
    }
    assert_eq!(Filter::parse(&json!({"a": {"b": 1}})).unwrap(), [Filter::eq("a", json!({"b": 1}))]);
    assert_eq!(Filter::parse(&json!({})).unwrap(), []);
}

#[tokio::test]
async fn a_graph_without_a_store_reports_it() {
    let mut graph = StateGraph::<Plain>::new("forgets");
    let node = graph.add_node("node", async |_: Plain, cx: Cx| {
        cx.store()?;
        Ok::<_, NodeError>(())
    });
    graph.add_edge(START, node);
    let error = failed(graph.compile().unwrap().thread("t").run(Plain::update()).await);
    assert_eq!(
        text(&error),
        "SS101: superstep 1: node `node` failed after 1 attempt\n  cause: SS185: node `node` requested the \
         store, but the graph has none; add one with `CompiledGraph::with_store`"
    );
}

/// A retry cannot fix an invalid search request.
#[tokio::test]
async fn a_misuse_of_the_store_is_not_retried() {
    let retry = superstep::NodeOptions::new().retry(superstep::RetryPolicy::default());
    let mut graph = StateGraph::<Plain>::new("misuses");
    let node = graph.add_node("node", async |_: Plain, cx: Cx| {
        cx.store()?.search(Search::everywhere().meaning("x")).await?;
        Ok::<_, NodeError>(())
    });
    graph.configure(node, retry);
    graph.add_edge(START, node);
    let graph = graph.compile().unwrap().with_store(Arc::new(MemoryStore::with(StoreOptions::default())));
    let error = text(&failed(graph.thread("t").run(Plain::update()).await));
    assert!(error.contains("failed after 1 attempt\n  cause: SS307"), "{error}");
}
