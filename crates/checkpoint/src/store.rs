//! The storage of items across threads.
//!
//! Start at [`Store`]; [`MemoryStore`] is the simplest one.

mod error;
mod filter;
pub(crate) mod hybrid;
pub(crate) mod meaning;
mod memory;
mod namespace;
mod prepare;
pub(crate) mod scan;
pub(crate) mod words;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::Value;

use crate::{IntoShared, shared::into_shared};

pub use self::{
    error::{EmbedError, NoStore, StoreError},
    filter::{Compare, Filter},
    meaning::{Embed, Vector},
    memory::MemoryStore,
    namespace::{Namespace, RESERVED_LABEL},
    prepare::{Batch, NewItem, ReadyQuery, Step, StoreOptions},
    words::{MAX_CANDIDATES, QUERY_WORDS, Scope, Words, bm25, finding, having, terms, words},
};

/// A store of items that outlive every thread: JSON values under a [`Namespace`] and a key.
///
/// A thread stores its own course; a store has data shared by several threads. Set it with
/// `CompiledGraph::with_store`; nodes get it with `Cx::store`. It is not part of any checkpoint: a put takes
/// effect immediately, even if the node fails afterwards and runs again. Use keys that are the same in each
/// attempt.
///
/// # Contract
/// - A [`batch`](Self::batch) is atomic: its operations run in order, each sees the effects of the earlier
///   ones, and no reader sees a part of it. If one fails, none has an effect.
/// - `put` replaces the value as a whole. `created_ms` is constant while the item lives; `updated_ms` grows
///   with every `put` by at least a millisecond, so that it distinguishes two versions.
/// - An expired item is never returned, counted or listed, even before [`sweep`](Self::sweep) removes it.
/// - Results are ordered: without a query by namespace and key, with one by score and then by namespace and
///   key; of equal scores of a [hybrid](Query::Hybrid) query the item nearer in meaning is first. Namespaces
///   are ordered as their labels joined with `.` are.
/// - [`superstep_testing`](https://docs.rs/superstep-testing) has the conformance suite for implementations.
///
/// # Example
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use serde_json::json;
/// use superstep_graph::{MemoryStore, Store, store::{Filter, Namespace, Search}};
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
    /// Executes operations in order and returns their answers. All the other methods call this one.
    ///
    /// # Errors
    /// [`StoreError`]. The store is then unchanged.
    fn batch(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answer>, StoreError>>;

    /// Removes expired items and returns their number.
    ///
    /// # Errors
    /// Those of the storage.
    fn sweep(&self) -> BoxFuture<'_, Result<usize, StoreError>>;

    /// Returns the item under a key; `None` if it does not exist.
    ///
    /// # Errors
    /// Those of the storage.
    fn get(&self, namespace: &Namespace, key: &str) -> BoxFuture<'_, Result<Option<Item>, StoreError>> {
        let (namespace, key) = (namespace.clone(), key.to_owned());
        let answer = self.batch(vec![Operation::Get { namespace, key, refresh: None }]);
        Box::pin(async move { first(answer.await?, Answer::into_item) })
    }

    /// Puts a value under a key and replaces any earlier one.
    ///
    /// # Errors
    /// Those of the storage or the embedding.
    fn put(&self, namespace: &Namespace, key: &str, value: Value) -> BoxFuture<'_, Result<(), StoreError>> {
        self.put_with(namespace, key, value, PutOptions::default())
    }

    /// Puts a value like [`put`](Self::put), with options.
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

    /// Deletes the item under a key. No effect if it does not exist.
    ///
    /// # Errors
    /// Those of the storage.
    fn delete(&self, namespace: &Namespace, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let (namespace, key) = (namespace.clone(), key.to_owned());
        let answer = self.batch(vec![Operation::Delete { namespace, key }]);
        Box::pin(async move { first(answer.await?, Answer::into_done) })
    }

    /// Returns the items that match a search, best first.
    ///
    /// # Errors
    /// [`StoreError::NoEmbedding`] for a search by meaning in a store without an [`Embed`], and those of the
    /// storage or the embedding.
    fn search(&self, search: Search) -> BoxFuture<'_, Result<Vec<Found>, StoreError>> {
        let answer = self.batch(vec![Operation::Search(search)]);
        Box::pin(async move { first(answer.await?, Answer::into_found) })
    }

    /// Returns the namespaces that have items, in order.
    ///
    /// # Errors
    /// Those of the storage.
    fn list_namespaces(&self, which: ListNamespaces) -> BoxFuture<'_, Result<Vec<Namespace>, StoreError>> {
        let answer = self.batch(vec![Operation::ListNamespaces(which)]);
        Box::pin(async move { first(answer.await?, Answer::into_namespaces) })
    }
}

into_shared!(Store, Embed);

/// A request to a [`Store`].
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Returns the item. Answered with [`Answer::Item`].
    Get {
        /// The namespace of the item.
        namespace: Namespace,
        /// The key of the item.
        key: String,
        /// `true` to restart the item's lifetime; the store's default if `None`.
        refresh: Option<bool>,
    },
    /// Puts an item. Answered with [`Answer::Done`].
    Put {
        /// The namespace of the item.
        namespace: Namespace,
        /// The key of the item.
        key: String,
        /// The value. Filters inspect objects.
        value: Value,
        /// The options of the put.
        options: PutOptions,
    },
    /// Deletes an item. Answered with [`Answer::Done`].
    Delete {
        /// The namespace of the item.
        namespace: Namespace,
        /// The key of the item.
        key: String,
    },
    /// Searches for items. Answered with [`Answer::Found`].
    Search(Search),
    /// Lists namespaces. Answered with [`Answer::Namespaces`].
    ListNamespaces(ListNamespaces),
}

/// An answer of a [`Store`].
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The item, if it exists.
    Item(Option<Item>),
    /// The operation is done.
    Done,
    /// The matching items.
    Found(Vec<Found>),
    /// The namespaces.
    Namespaces(Vec<Namespace>),
}

/// A stored item.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The namespace of the item.
    pub namespace: Namespace,
    /// The key of the item.
    pub key: String,
    /// The value of the item.
    pub value: Value,
    /// The time of the first put: UTC milliseconds, by the clock of the store.
    pub created_ms: i64,
    /// The time of the last put.
    pub updated_ms: i64,
    /// The time of expiry; `None` for never.
    pub expires_ms: Option<i64>,
}

/// An item in the result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The item.
    pub item: Item,
    /// The relevance for the query; `None` without a query. Compare only scores of one search.
    pub score: Option<f64>,
}

/// The options of a put.
///
/// ```
/// # use std::time::Duration;
/// # use superstep_checkpoint::store::{Index, PutOptions, Ttl};
/// let options = PutOptions::new().ttl(Ttl::After(Duration::from_secs(3600))).index(Index::Nothing);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PutOptions {
    /// The lifetime of the item.
    pub ttl: Ttl,
    /// The searchable part of the value.
    pub index: Index,
}

impl PutOptions {
    /// Creates the default options: the store's lifetime, and a value that is searched completely.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the lifetime of the item.
    #[must_use]
    pub fn ttl(self, lifetime: Ttl) -> Self {
        Self { ttl: lifetime, ..self }
    }

    /// Sets the searchable part of the value.
    #[must_use]
    pub fn index(self, part: Index) -> Self {
        Self { index: part, ..self }
    }
}

/// The lifetime of an item after a put or refresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ttl {
    /// The default of the store: see [`StoreOptions::ttl`].
    #[default]
    Usual,
    /// The item never expires.
    Never,
    /// Expiry after this duration. Parts of a millisecond count as a whole one.
    After(Duration),
}

/// The part of a value that queries search, by words or by meaning. Filters see the whole value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Index {
    /// All texts and numbers.
    #[default]
    Everything,
    /// The texts and numbers of these fields; see [`Filter`] for their names.
    Fields(Vec<String>),
    /// Indexes no part, so that no query finds the item.
    Nothing,
}

/// A selection of items.
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
    /// The conditions on the value; all must hold.
    pub filter: Vec<Filter>,
    /// The query. Items without a match are left out, the others are ordered best first.
    pub query: Option<Query>,
    /// The maximum number of results; 10 by default.
    pub limit: usize,
    /// The number of results to skip.
    pub offset: usize,
    /// `true` to restart the lifetime of the returned items; the store's default if `None`.
    pub refresh: Option<bool>,
}

/// A query.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// Items with at least one of the words in this text. Any text is valid; it has no operators.
    ///
    /// In namespaces with more than [`MAX_CANDIDATES`] items, very common words do not select items and only count
    /// in scores: see [`finding`].
    ///
    /// The score is [`bm25`], computed over the live items of the search's namespaces only, so that it
    /// reveals no data of others. It is greater than 0.
    Words(String),
    /// Items whose meaning is near that of this text, by the store's [`Embed`].
    ///
    /// The score is the cosine between the two, from -1 to 1. Items that were put with another model, or
    /// without one, are left out.
    Meaning(String),
    /// Items with at least one of the words in this text, and items whose meaning is near it, ranked by both.
    ///
    /// The score is the sum of `1 / (60 + rank)`, over the ranks by words and by meaning that an item has
    /// among the first [`MAX_CANDIDATES`]. Of equal scores the item nearer in meaning is first. A store
    /// without an [`Embed`] ranks by words alone, as for [`Query::Words`].
    Hybrid {
        /// The text; a blank one finds no item.
        text: String,
        /// The minimum cosine, from -1 to 1, of an item that is found by its meaning.
        at_least: f64,
    },
}

impl Search {
    /// Creates a search for the first ten items of this namespace and of those below it.
    pub fn within(namespace: &Namespace) -> Self {
        Self { within: Some(namespace.clone()), ..Self::everywhere() }
    }

    /// Creates a search for the first ten items of the store.
    pub fn everywhere() -> Self {
        Self { within: None, filter: Vec::new(), query: None, limit: 10, offset: 0, refresh: None }
    }

    /// Sets a query for items with at least one of these words.
    #[must_use]
    pub fn words(self, text: impl Into<String>) -> Self {
        Self { query: Some(Query::Words(text.into())), ..self }
    }

    /// Sets a query for items whose meaning is near that of this text.
    #[must_use]
    pub fn meaning(self, text: impl Into<String>) -> Self {
        Self { query: Some(Query::Meaning(text.into())), ..self }
    }

    /// Sets a query that ranks by the words of this text and by its meaning, however far.
    #[must_use]
    pub fn hybrid(self, text: impl Into<String>) -> Self {
        Self { query: Some(Query::Hybrid { text: text.into(), at_least: -1.0 }), ..self }
    }
}

impl Default for Search {
    fn default() -> Self {
        Self::everywhere()
    }
}

/// A selection of namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListNamespaces {
    /// The first labels; `*` matches any label.
    pub prefix: Vec<String>,
    /// The last labels; `*` matches any label.
    pub suffix: Vec<String>,
    /// The maximum number of labels. Longer namespaces are cut and listed once. 0 counts as 1.
    pub max_depth: Option<usize>,
    /// The maximum number of results; 100 by default.
    pub limit: usize,
    /// The number of results to skip.
    pub offset: usize,
}

impl Default for ListNamespaces {
    fn default() -> Self {
        Self { prefix: Vec::new(), suffix: Vec::new(), max_depth: None, limit: 100, offset: 0 }
    }
}

impl ListNamespaces {
    /// Selects from namespaces that have items, each given at least once.
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
        what: "the store's answer does not match the operation; its `batch` has to answer each operation"
            .into(),
        source: None,
    })
}

impl Answer {
    /// Returns the item, if this answers [`Operation::Get`].
    pub fn into_item(self) -> Option<Option<Item>> {
        match self {
            Self::Item(item) => Some(item),
            _ => None,
        }
    }

    /// Returns the matching items of an answer to [`Operation::Search`].
    pub fn into_found(self) -> Option<Vec<Found>> {
        match self {
            Self::Found(found) => Some(found),
            _ => None,
        }
    }

    /// Returns the namespaces, if this answers [`Operation::ListNamespaces`].
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
