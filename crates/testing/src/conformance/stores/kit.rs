//! A clock, an embedding, and shorthands for requests.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use futures::future::{BoxFuture, ready};
use serde_json::Value;
use superstep_graph::{
    Store,
    clock::Clock,
    store::{Embed, EmbedError, Found, Item, Namespace, Search},
};

/// A clock that advances only on request.
#[derive(Clone, Debug)]
pub(super) struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub(super) fn at(now_ms: i64) -> Self {
        Self(Arc::new(AtomicI64::new(now_ms)))
    }

    pub(super) fn pass(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The result of an embedding.
type Vectors = Result<Vec<Vec<f32>>, &'static str>;

/// An embedding for three words.
#[derive(Debug)]
pub(super) struct Topics {
    /// The name of the embedding.
    pub(super) model: String,
    /// The result returned instead of the correct one.
    pub(super) instead: Mutex<Option<Vectors>>,
}

impl Default for Topics {
    fn default() -> Self {
        Self { model: "topics".into(), instead: Mutex::default() }
    }
}

impl Topics {
    pub(super) fn answer(&self, answer: Vectors) {
        *self.instead.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }
}

impl Embed for Topics {
    fn model(&self) -> &str {
        &self.model
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
        let count =
            |text: &String, word| f32::from(u8::try_from(text.matches(word).count()).unwrap_or(u8::MAX));
        let vectors =
            texts.iter().map(|text| ["sea", "tree", "stone"].map(|word| count(text, word)).to_vec());
        let instead = self.instead.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(ready(instead.unwrap_or_else(|| Ok(vectors.collect())).map_err(Into::into)))
    }
}

pub(super) fn ns(labels: &[&str]) -> Namespace {
    Namespace::new(labels.iter().copied()).expect("a namespace")
}

pub(super) async fn put(store: &Arc<dyn Store>, labels: &[&str], key: &str, value: Value) {
    store.put(&ns(labels), key, value).await.expect("an item can be put");
}

pub(super) async fn get(store: &Arc<dyn Store>, labels: &[&str], key: &str) -> Option<Item> {
    store.get(&ns(labels), key).await.expect("an item can be read")
}

pub(super) async fn search(store: &Arc<dyn Store>, search: Search) -> Vec<Found> {
    store.search(search).await.expect("a store can be searched")
}

/// Returns the keys that a search finds, separated by spaces.
pub(super) async fn keys(store: &Arc<dyn Store>, which: Search) -> String {
    let found = search(store, which).await;
    found.iter().map(|found| found.item.key.as_str()).collect::<Vec<_>>().join(" ")
}
