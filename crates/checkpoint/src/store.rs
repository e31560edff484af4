//! What is remembered across threads.
//!
//! Start at [`Store`]; [`MemoryStore`] is the simplest one.

mod error;
mod filter;
mod meaning;
mod memory;
mod namespace;
mod prepare;
mod words;

use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

pub use self::{
    error::{NoStore, StoreError},
    filter::{Compare, Filter},
    meaning::{Embed, EmbedError, Vector},
    memory::MemoryStore,
    namespace::{Namespace, RESERVED_LABEL},
    prepare::{Batch, NewItem, ReadyQuery, Step, StoreOptions},
    words::{LOOKED_AT, QUERY_WORDS, Scope, Words, bm25, finding, having, terms, words},
};

/// Keeps items that outlive every thread: JSON values under a [`Namespace`] and a key.
///
/// A thread remembers its own course; a store remembers what several threads are to know. Give a graph one with
/// `CompiledGraph::with_store`, and its nodes find it with
/// `Cx::store`. It is no part of any checkpoint: what a node puts there is there at once, also if the
/// node fails afterwards and runs again, so put under keys that are the same the next time.
///
/// # Contract
/// - A [`batch`](Self::batch) is atomic: its operations are done in order, each sees what those before it did, nobody
///   sees half of it, and if one fails nothing has happened.
/// - `put` replaces the value as a whole. `created_ms` stays as long as the item lives; `updated_ms` moves with every
///   `put`, by a millisecond at least, so that it tells two versions apart.
/// - An item whose time is over is never returned, counted or listed, whether or not [`sweep`](Self::sweep) came by.
/// - Results are ordered: without a query by namespace and key, with one by score and then by namespace and key.
///   Namespaces are ordered as their labels joined with `.` are.
/// - [`superstep_testing`](https://docs.rs/superstep-testing) has the suite that every implementation passes.
///
/// # Example
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use serde_json::json;
/// use superstep_graph::store::{Filter, MemoryStore, Namespace, Search, Store};
///
/// let store = MemoryStore::new();
/// let ada = Namespace::new(["users", "ada"])?;
/// store.put(&ada, "tea", json!({"likes": "green tea", "since": 1842})).await?;
/// store.put(&ada, "music", json!({"likes": "the harp", "since": 1830})).await?;
///
/// let late = Search { filter: vec![Filter::gt("since", 1840)], ..Search::within(&ada) };
/// assert_eq!(store.search(late).await?[0].item.key, "tea");
/// let found = store.search(Search::within(&ada).words("what about TEA?")).await?;
/// assert_eq!(found[0].item.value["likes"], "green tea");
/// # Ok::<(), superstep_graph::store::StoreError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Store: Send + Sync + 'static {
    /// Does all of these, in order, and answers each. All the other methods are this one.
    ///
    /// # Errors
    /// [`StoreError`]. Nothing has happened then.
    fn batch(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answer>, StoreError>>;

    /// Removes the items whose time is over, which nobody can see any more, and says how many they were.
    ///
    /// # Errors
    /// What the storage reports.
    fn sweep(&self) -> BoxFuture<'_, Result<usize, StoreError>>;

    /// The item under a key; `None` if there is none.
    ///
    /// # Errors
    /// What the storage reports.
    fn get(&self, namespace: &Namespace, key: &str) -> BoxFuture<'_, Result<Option<Item>, StoreError>> {
        let (namespace, key) = (namespace.clone(), key.to_owned());
        let answer = self.batch(vec![Operation::Get { namespace, key, refresh: None }]);
        Box::pin(async move { first(answer.await?, Answer::into_item) })
    }

    /// Puts a value under a key, in place of the one that is there.
    ///
    /// # Errors
    /// What the storage or the embedding reports.
    fn put(&self, namespace: &Namespace, key: &str, value: Value) -> BoxFuture<'_, Result<(), StoreError>> {
        self.put_with(namespace, key, value, PutOptions::default())
    }

    /// As [`put`](Self::put), with options.
    ///
    /// # Errors
    /// See [`put`](Self::put).
    fn put_with(
        &self,
        namespace: &Namespace,
        key: &str,
        value: Value,
        options: PutOptions,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (namespace, key) = (namespace.clone(), key.to_owned());
        let answer = self.batch(vec![Operation::Put { namespace, key, value, options }]);
        Box::pin(async move { first(answer.await?, Answer::into_done) })
    }

    /// Forgets what is under a key. Nothing happens if there is nothing.
    ///
    /// # Errors
    /// What the storage reports.
    fn delete(&self, namespace: &Namespace, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let (namespace, key) = (namespace.clone(), key.to_owned());
        let answer = self.batch(vec![Operation::Delete { namespace, key }]);
        Box::pin(async move { first(answer.await?, Answer::into_done) })
    }

    /// The items that a search finds, best first.
    ///
    /// # Errors
    /// [`StoreError::NoEmbedding`] for a search by meaning in a store that was given no [`Embed`], and what the storage
    /// or the embedding reports.
    fn search(&self, search: Search) -> BoxFuture<'_, Result<Vec<Found>, StoreError>> {
        let answer = self.batch(vec![Operation::Search(search)]);
        Box::pin(async move { first(answer.await?, Answer::into_found) })
    }

    /// The namespaces that have items, in order.
    ///
    /// # Errors
    /// What the storage reports.
    fn list_namespaces(&self, which: ListNamespaces) -> BoxFuture<'_, Result<Vec<Namespace>, StoreError>> {
        let answer = self.batch(vec![Operation::ListNamespaces(which)]);
        Box::pin(async move { first(answer.await?, Answer::into_namespaces) })
    }
}

/// What is asked of a [`Store`].
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Answered with [`Answer::Item`].
    Get {
        /// Where.
        namespace: Namespace,
        /// Which.
        key: String,
        /// Whether the item's time begins again; as the store is set up if `None`.
        refresh: Option<bool>,
    },
    /// Answered with [`Answer::Done`].
    Put {
        /// Where.
        namespace: Namespace,
        /// Which.
        key: String,
        /// What. Filters look into objects.
        value: Value,
        /// How.
        options: PutOptions,
    },
    /// Answered with [`Answer::Done`].
    Delete {
        /// Where.
        namespace: Namespace,
        /// Which.
        key: String,
    },
    /// Answered with [`Answer::Found`].
    Search(Search),
    /// Answered with [`Answer::Namespaces`].
    ListNamespaces(ListNamespaces),
}

/// What a [`Store`] answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The item, if there is one.
    Item(Option<Item>),
    /// It is done.
    Done,
    /// What was found.
    Found(Vec<Found>),
    /// The namespaces.
    Namespaces(Vec<Namespace>),
}

/// What is kept under a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Where it is.
    pub namespace: Namespace,
    /// Its key.
    pub key: String,
    /// What was put there.
    pub value: Value,
    /// When it was first put there: UTC milliseconds, by the clock of the store.
    pub created_ms: i64,
    /// When it was last put there.
    pub updated_ms: i64,
    /// When its time is over; `None` for never.
    pub expires_ms: Option<i64>,
}

/// An item that a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The item.
    pub item: Item,
    /// How well it fits the query; `None` if there was none. Compare scores of one search only.
    pub score: Option<f64>,
}

/// How an item is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// How long it lives.
    pub ttl: Ttl,
    /// By what it can be found.
    pub index: Index,
}

/// How long an item lives after it was put or refreshed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ttl {
    /// As long as the store is set up for: see [`StoreOptions::ttl`].
    #[default]
    Usual,
    /// For ever.
    Never,
    /// So long. Parts of a millisecond count as a whole one.
    After(Duration),
}

/// What of a value queries look at, be it for words or for meaning. Filters see all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Index {
    /// Every text and number in it.
    #[default]
    Everything,
    /// Those in these fields; see [`Filter`] for their names.
    Fields(Vec<String>),
    /// Nothing, so that no query finds it.
    Nothing,
}

/// Which items.
///
/// ```
/// # use superstep_graph::store::{Filter, Namespace, Search};
/// # let docs = Namespace::new(["docs"]).unwrap();
/// let search = Search { filter: vec![Filter::eq("lang", "en")], limit: 3, ..Search::within(&docs).words("joins") };
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The namespace, with those below it; `None` for all.
    pub within: Option<Namespace>,
    /// What has to be true of the value: all of these.
    pub filter: Vec<Filter>,
    /// What to look for. Items that do not fit at all are left out, the others come best first.
    pub query: Option<Query>,
    /// At most this many; 10 by default.
    pub limit: usize,
    /// Leave out so many of the first ones.
    pub offset: usize,
    /// Whether the time of the items that are returned begins again; as the store is set up if `None`.
    pub refresh: Option<bool>,
}

/// What to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Items with at least one of the words in this text. Any text will do; nothing in it is an operator.
    ///
    /// In namespaces with more than [`LOOKED_AT`] items very common words do not find items, they only count in scores: see
    /// [`finding`].
    ///
    /// The score is [`bm25`], reckoned over the live items of the search's namespaces only, so that nothing shines
    /// through from those of others. It is greater than 0.
    Words(String),
    /// Items whose meaning is near that of this text, by the store's [`Embed`].
    ///
    /// The score is the cosine between the two, from -1 to 1. Items that were put when the store had another model, or
    /// none, are left out.
    Meaning(String),
}

impl Search {
    /// The first ten items of this namespace and of those below it.
    pub fn within(namespace: &Namespace) -> Self {
        Self { within: Some(namespace.clone()), ..Self::everywhere() }
    }

    /// The first ten items of the store.
    pub fn everywhere() -> Self {
        Self { within: None, filter: Vec::new(), query: None, limit: 10, offset: 0, refresh: None }
    }

    /// The same search for items with at least one of these words.
    #[must_use]
    pub fn words(self, text: impl Into<String>) -> Self {
        Self { query: Some(Query::Words(text.into())), ..self }
    }

    /// The same search for items whose meaning is near that of this text.
    #[must_use]
    pub fn meaning(self, text: impl Into<String>) -> Self {
        Self { query: Some(Query::Meaning(text.into())), ..self }
    }
}

impl Default for Search {
    fn default() -> Self {
        Self::everywhere()
    }
}

/// Which namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListNamespaces {
    /// The labels that it begins with; `*` stands for any label.
    pub prefix: Vec<String>,
    /// The labels that it ends with; `*` stands for any label.
    pub suffix: Vec<String>,
    /// Cut those that are longer to so many labels, each once. 0 counts as 1.
    pub max_depth: Option<usize>,
    /// At most this many; 100 by default.
    pub limit: usize,
    /// Leave out so many of the first ones.
    pub offset: usize,
}

impl Default for ListNamespaces {
    fn default() -> Self {
        Self { prefix: Vec::new(), suffix: Vec::new(), max_depth: None, limit: 100, offset: 0 }
    }
}

impl ListNamespaces {
    /// Picks among namespaces that have items, each given at least once.
    pub fn pick(&self, all: impl IntoIterator<Item = Namespace>) -> Vec<Namespace> {
        let fitting = all
            .into_iter()
            .filter(|namespace| namespace.begins_like(&self.prefix) && namespace.ends_like(&self.suffix));
        let cut = fitting.map(|namespace| match self.max_depth {
            Some(depth) => namespace.cut(depth.max(1)),
            None => namespace,
        });
        let each_once: std::collections::BTreeSet<_> = cut.collect();
        each_once.into_iter().skip(self.offset).take(self.limit).collect()
    }
}

/// Reads the answer to the only operation of a batch.
fn first<T>(answers: Vec<Answer>, read: fn(Answer) -> Option<T>) -> Result<T, StoreError> {
    let answer = answers.into_iter().next().and_then(read);
    answer.ok_or_else(|| StoreError::Storage {
        what: "the store did not answer what it was asked; its `batch` has to answer each operation".into(),
        source: None,
    })
}

impl Answer {
    /// The item, if this answers [`Operation::Get`].
    pub fn into_item(self) -> Option<Option<Item>> {
        match self {
            Self::Item(item) => Some(item),
            _ => None,
        }
    }

    /// What was found, if this answers [`Operation::Search`].
    pub fn into_found(self) -> Option<Vec<Found>> {
        match self {
            Self::Found(found) => Some(found),
            _ => None,
        }
    }

    /// The namespaces, if this answers [`Operation::ListNamespaces`].
    pub fn into_namespaces(self) -> Option<Vec<Namespace>> {
        match self {
            Self::Namespaces(namespaces) => Some(namespaces),
            _ => None,
        }
    }

    fn into_done(self) -> Option<()> {
        matches!(self, Self::Done).then_some(())
    }
}
