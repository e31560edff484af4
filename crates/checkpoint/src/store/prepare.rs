//! The preparation of a batch, common to all stores.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;
use superstep_state::internal::encode;

use super::{
    Embed, ListNamespaces, Namespace, Operation, Query, Search, StoreError, Ttl, Vector, Words,
    meaning::vectors,
    words::{terms, text_of},
};
use crate::{Clock, IntoShared, SystemClock};

/// The settings of a store.
///
/// ```
/// # use std::time::Duration;
/// # use superstep_checkpoint::store::StoreOptions;
/// let options = StoreOptions::new().ttl(Duration::from_secs(3600)).refresh_on_read();
/// # let _ = options;
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// The default lifetime of items; `None` for no expiry.
    pub ttl: Option<Duration>,
    /// `true` if reading an item restarts its lifetime, unless the reader sets it otherwise.
    pub refresh_on_read: bool,
    /// The embedding for searches by meaning.
    pub embed: Option<Arc<dyn Embed>>,
}

impl StoreOptions {
    /// Creates the default options: the machine's clock, no expiry, and no embedding.
    pub fn new() -> Self {
        Self { clock: Arc::new(SystemClock), ttl: None, refresh_on_read: false, embed: None }
    }

    /// Sets the source of the current time.
    #[must_use]
    pub fn clock(self, clock: impl IntoShared<dyn Clock>) -> Self {
        Self { clock: clock.into_shared(), ..self }
    }

    /// Sets the default lifetime of items; `None` is no expiry.
    #[must_use]
    pub fn ttl(self, lifetime: impl Into<Option<Duration>>) -> Self {
        Self { ttl: lifetime.into(), ..self }
    }

    /// Restarts the lifetime of an item when it is read, unless the reader sets it otherwise.
    #[must_use]
    pub fn refresh_on_read(self) -> Self {
        Self { refresh_on_read: true, ..self }
    }

    /// Sets the embedding for searches by meaning.
    #[must_use]
    pub fn embed(self, embedding: impl IntoShared<dyn Embed>) -> Self {
        Self { embed: Some(embedding.into_shared()), ..self }
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("ttl", &self.ttl)
            .field("refresh_on_read", &self.refresh_on_read)
            .field("embed", &self.embed.as_ref().map(|embed| embed.model()))
            .finish_non_exhaustive()
    }
}

/// A batch with everything that a store needs to execute it without waiting. For custom stores.
#[derive(Debug)]
pub struct Batch {
    /// The current time.
    pub now_ms: i64,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Batch {
    /// Returns whether it may write.
    pub fn writes(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Get { refresh, .. } | Step::Search { refresh, .. } => *refresh,
            Step::Put(_) | Step::Delete { .. } => true,
            Step::List(_) => false,
        })
    }
}

/// A prepared [`Operation`].
#[derive(Debug)]
pub enum Step {
    /// Return the item and restart its lifetime if requested.
    Get {
        /// The namespace of the item.
        namespace: Namespace,
        /// The key of the item.
        key: String,
        /// `true` to restart the item's lifetime.
        refresh: bool,
    },
    /// Store an item.
    Put(NewItem),
    /// Delete an item.
    Delete {
        /// The namespace of the item.
        namespace: Namespace,
        /// The key of the item.
        key: String,
    },
    /// Find items.
    Search {
        /// The selection.
        search: Search,
        /// The prepared query.
        query: Option<ReadyQuery>,
        /// `true` to restart the lifetime of the returned items.
        refresh: bool,
    },
    /// List namespaces.
    List(ListNamespaces),
}

/// An item to store.
#[derive(Debug)]
pub struct NewItem {
    /// The namespace of the item.
    pub namespace: Namespace,
    /// The key of the item.
    pub key: String,
    /// The value.
    pub value: Value,
    /// The text for queries by words.
    pub text: String,
    /// The embedding of the text; `None` without an [`Embed`] or without text.
    pub vector: Option<Vector>,
    /// The lifetime in milliseconds.
    pub ttl_ms: Option<i64>,
}

/// A prepared [`Query`].
#[derive(Debug)]
pub enum ReadyQuery {
    /// Different words, in lower case.
    Words(Vec<String>),
    /// The embedding of the query's text.
    Meaning(Vector),
    /// Both, for two rankings that become one.
    Hybrid {
        /// Different words, in lower case.
        terms: Vec<String>,
        /// The embedding of the query's text.
        meant: Vector,
        /// The minimum cosine of an item that is found by its meaning.
        at_least: f64,
    },
}

impl StoreOptions {
    /// Splits the words of a batch, requests its vectors, and reads the clock.
    ///
    /// # Errors
    /// [`StoreError::Unstorable`], [`StoreError::NoEmbedding`] and [`StoreError::Embedding`].
    pub async fn prepare(&self, operations: Vec<Operation>) -> Result<Batch, StoreError> {
        for operation in &operations {
            let Operation::Put { namespace, key, value, .. } = operation else { continue };
            encode::check_depth(value).map_err(|source| StoreError::Unstorable {
                namespace: namespace.clone(),
                key: key.clone(),
                source,
            })?;
        }
        let texts: Vec<_> = operations.iter().map(|operation| self.text_of(operation)).collect();
        let asked: Vec<String> = texts.iter().filter_map(|text| text.embed.clone()).collect();
        let mut vectors = match &self.embed {
            Some(embed) => vectors(&**embed, &asked).await?,
            None if asked.is_empty() => Vec::new(),
            None => return Err(StoreError::NoEmbedding),
        }
        .into_iter();
        let steps = operations.into_iter().zip(texts).map(|(operation, text)| {
            let vector = text.embed.is_some().then(|| vectors.next().expect("one for each text"));
            self.step(operation, text.plain, vector)
        });
        let steps = steps.collect();
        Ok(Batch { now_ms: self.clock.now_ms(), steps })
    }

    fn text_of(&self, operation: &Operation) -> Text {
        match operation {
            Operation::Put { value, options, .. } => {
                let plain = text_of(value, &options.index);
                let embed = (self.embed.is_some() && !plain.is_empty()).then(|| plain.clone());
                Text { plain, embed }
            }
            Operation::Search(Search { query: Some(Query::Meaning(text)), .. }) => {
                Text { plain: String::new(), embed: Some(text.clone()) }
            }
            Operation::Search(Search { query: Some(Query::Hybrid { text, .. }), .. }) => {
                let embed = self.embed.is_some() && !text.trim().is_empty();
                Text { plain: String::new(), embed: embed.then(|| text.clone()) }
            }
            _ => Text { plain: String::new(), embed: None },
        }
    }

    fn step(&self, operation: Operation, text: String, vector: Option<Vector>) -> Step {
        match operation {
            Operation::Get { namespace, key, refresh } => {
                Step::Get { namespace, key, refresh: refresh.unwrap_or(self.refresh_on_read) }
            }
            Operation::Put { namespace, key, value, options } => {
                let ttl = match options.ttl {
                    Ttl::Usual => self.ttl,
                    Ttl::Never => None,
                    Ttl::After(ttl) => Some(ttl),
                };
                Step::Put(NewItem { namespace, key, value, text, vector, ttl_ms: ttl.map(milliseconds) })
            }
            Operation::Delete { namespace, key } => Step::Delete { namespace, key },
            Operation::Search(search) => {
                let query = match &search.query {
                    None => None,
                    Some(Query::Words(text)) => Some(ReadyQuery::Words(terms(text))),
                    Some(Query::Meaning(_)) => vector.map(ReadyQuery::Meaning),
                    Some(Query::Hybrid { text, at_least }) => Some(match vector {
                        Some(meant) => ReadyQuery::Hybrid { terms: terms(text), meant, at_least: *at_least },
                        None => ReadyQuery::Words(terms(text)),
                    }),
                };
                let refresh = search.refresh.unwrap_or(self.refresh_on_read);
                Step::Search { search, query, refresh }
            }
            Operation::ListNamespaces(which) => Step::List(which),
        }
    }
}

/// The text of an operation.
struct Text {
    plain: String,
    /// The text, if its embedding is needed.
    embed: Option<String>,
}

impl NewItem {
    /// Returns the words of its text.
    pub fn words(&self) -> Words {
        Words::of(&self.text)
    }

    /// Returns the time of change for a put, given the item's previous time of change, if any.
    pub fn updated_ms(now_ms: i64, before: Option<i64>) -> i64 {
        // Two versions of an item are distinguishable by it, so that it may be ahead of the clock.
        before.map_or(now_ms, |before| now_ms.max(before.saturating_add(1)))
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}
