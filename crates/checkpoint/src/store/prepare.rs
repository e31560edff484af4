//! What all stores do with a batch before they look at what they keep.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;
use superstep_state::internal::encode;

use super::{
    Embed, ListNamespaces, Namespace, Operation, Query, Search, StoreError, Ttl, Vector, Words,
    meaning::vectors,
    words::{terms, text_of},
};
use crate::{Clock, SystemClock};

/// How a store is set up.
#[derive(Clone)]
pub struct StoreOptions {
    /// What tells it the time.
    pub clock: Arc<dyn Clock>,
    /// How long items live that do not say so themselves; `None` for ever.
    pub ttl: Option<Duration>,
    /// Whether reading an item makes its time begin again, unless the reader says otherwise.
    pub refresh_on_read: bool,
    /// What it finds items by their meaning with.
    pub embed: Option<Arc<dyn Embed>>,
}

impl Default for StoreOptions {
    /// The machine's clock, items that live for ever, no search by meaning.
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), ttl: None, refresh_on_read: false, embed: None }
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

/// A batch with everything in it that a store needs to do it at once, without waiting. For stores of your own.
#[derive(Debug)]
pub struct Batch {
    /// What time it is.
    pub now_ms: i64,
    /// What is to be done, in order.
    pub steps: Vec<Step>,
}

/// An [`Operation`] that is ready to be done.
#[derive(Debug)]
pub enum Step {
    /// Return the item and, if its time is to begin again, do that.
    Get {
        /// Where.
        namespace: Namespace,
        /// Which.
        key: String,
        /// Whether the item's time begins again.
        refresh: bool,
    },
    /// Keep an item.
    Put(NewItem),
    /// Forget an item.
    Delete {
        /// Where.
        namespace: Namespace,
        /// Which.
        key: String,
    },
    /// Find items.
    Search {
        /// Which.
        search: Search,
        /// What to look for.
        query: Option<ReadyQuery>,
        /// Whether the time of those that are returned begins again.
        refresh: bool,
    },
    /// List namespaces.
    List(ListNamespaces),
}

/// An item to keep.
#[derive(Debug)]
pub struct NewItem {
    /// Where.
    pub namespace: Namespace,
    /// Which.
    pub key: String,
    /// What.
    pub value: Value,
    /// What queries for words look at.
    pub text: String,
    /// Its meaning; `None` without an [`Embed`], or if there is no text.
    pub vector: Option<Vector>,
    /// How many milliseconds it lives.
    pub ttl_ms: Option<i64>,
}

/// A [`Query`] that is ready to be compared.
#[derive(Debug)]
pub enum ReadyQuery {
    /// Different words, in lower case.
    Words(Vec<String>),
    /// The meaning of the query's text.
    Meaning(Vector),
}

impl StoreOptions {
    /// Reads the words of a batch, asks for the vectors that it needs, and looks at the clock.
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
    /// The same if its meaning is needed.
    embed: Option<String>,
}

impl NewItem {
    /// The words of its text.
    pub fn words(&self) -> Words {
        Words::of(&self.text)
    }

    /// When it is stored again over one that was last changed then, or for the first time.
    pub fn updated_ms(now_ms: i64, before: Option<i64>) -> i64 {
        before.map_or(now_ms, |before| now_ms.max(before.saturating_add(1)))
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}
