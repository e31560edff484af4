//! Items with sealed values.
//!
//! Start at [`SealedStore`].

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_checkpoint::{
    IntoShared,
    internal::{Scanned, own::KEYS, scan, vector_bytes, vector_of},
    store::{
        Answer, Batch, Embed, Found, Index, Item, ListNamespaces, Namespace, NewItem, Operation, PutOptions,
        ReadyQuery, Search, Step, Store, StoreError, StoreOptions, Ttl, Vector, Words,
    },
};

use crate::{
    error,
    error::KeyFault,
    form::{Fault, Part, Place, Position, SEALED, is_sealed, open, seal},
    keys::{DataKeys, KeyRecord, Owner},
    master::KeyProvider,
    options::SealOptions,
};

/// The owner of the data keys, by which they are bound.
const OWNER: Owner<'_> = Owner { name: "store", from: 0 };

/// The owner of data keys that only decrypt: a rekey has replaced them.
const OLD: Owner<'_> = Owner { name: OWNER.name, from: 1 };

/// The maximum number of results of one request to the store.
const MAX_RESULTS: usize = i32::MAX as usize;

/// A layer in front of any [`Store`] that encrypts the values of items.
///
/// Namespaces, keys and times remain readable. A value is bound to its namespace and key: one that was moved is an error. The
/// store behind it gets no text and no vector to search: filters and queries decrypt the items of their namespace, and rank them as
/// every store does. Without keys the layer only refuses encrypted items, and with `required` all others as well; compression alone
/// is not for items.
///
/// # Example
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use std::sync::Arc;
/// use serde_json::json;
/// use superstep_graph::{MemoryStore, Store, store::{Namespace, Search}};
/// use superstep_sealed::{KeyRing, MasterKey, SealOptions, SealedStore, SystemRandom};
///
/// let key = MasterKey::generate(&SystemRandom)?;
/// let database = Arc::new(MemoryStore::new());
/// let store = SealedStore::new(database.clone(), SealOptions::encrypted(KeyRing::new(key)));
/// let ada = Namespace::new(["users", "ada"])?;
/// store.put(&ada, "tea", json!({"likes": "green tea"})).await?;
///
/// assert_eq!(store.search(Search::within(&ada).words("TEA?")).await?[0].item.key, "tea");
/// let stored = database.get(&ada, "tea").await?.unwrap().value;
/// assert!(!stored.to_string().contains("green"));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct SealedStore {
    inner: Arc<dyn Store>,
    options: SealOptions,
    embed: Option<Arc<dyn Embed>>,
    keys: Mutex<Option<Arc<DataKeys>>>,
    /// `true` once the store was found to be readable, if there are no keys.
    is_readable: AtomicBool,
}

/// The sealed form of an item.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedItem {
    value: Value,
    /// The fields that queries search; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<String>>,
    /// The embedding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vector: Option<SealedVector>,
}

/// An embedding: its model, and its floats as bytes in Base64.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedVector {
    model: String,
    floats: String,
}

/// An item that was opened.
struct OpenItem {
    place: (Namespace, String),
    item: Item,
    index: Index,
    vector: Option<Vector>,
}

/// A search that this layer performs.
struct OwnSearch {
    search: Search,
    query: Option<ReadyQuery>,
}

impl SealedStore {
    /// Creates the layer. The store behind it needs no embedding.
    pub fn new(inner: impl IntoShared<dyn Store>, options: SealOptions) -> Self {
        let (keys, is_readable) = (Mutex::default(), AtomicBool::new(false));
        Self { inner: inner.into_shared(), options, embed: None, keys, is_readable }
    }

    /// Sets the embedding for searches by meaning. Vectors are encrypted with their items.
    #[must_use]
    pub fn with_embed(mut self, embed: Arc<dyn Embed>) -> Self {
        self.embed = Some(embed);
        self
    }

    /// Returns whether the store has data keys, and thus encrypted items.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn is_encrypted(&self) -> Result<bool, StoreError> {
        Ok(!self.key_items().await?.is_empty())
    }

    /// Encrypts the data keys of the store with the current key, and adds a data key for new values. Returns `false` if that is
    /// done already, or if there are none.
    ///
    /// # Errors
    /// [`StoreError::Key`] if the key of the store is unknown, and those of the store.
    pub async fn rekey(&self) -> Result<bool, StoreError> {
        let items = self.key_items().await?;
        let Some(provider) = self.options.keys.as_deref() else {
            return match items.last() {
                Some(item) => {
                    Err(error::of_store_keys(KeyFault::Unknown(record_of(item)?.master(OWNER.name))))
                }
                None => Ok(false),
            };
        };
        let random = &*self.options.random;
        let master = provider.current().await.map_err(KeyFault::Provider).map_err(error::of_store_keys)?;
        let mut old = Vec::new();
        for item in items {
            let record = record_of(&item)?;
            if !record.is_current(&master) {
                let record = record.rewrapped(OLD, provider, random).await;
                old.push((item.key, record.map_err(error::of_store_keys)?));
            }
        }
        if old.is_empty() {
            return Ok(false);
        }
        // Before the others, so that a second pass after an interruption adds one as well.
        self.add_key(provider).await?;
        for (id, record) in old {
            self.put_keys(&id, &record).await?;
        }
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(true)
    }

    /// Refuses a readable item in an encrypted store.
    async fn refuse_readable(&self, namespace: &Namespace, key: &str) -> Result<(), StoreError> {
        if self.is_readable.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(item) = self.key_items().await?.last() {
            return Err(error::readable_item(namespace, key, &record_of(item)?.master(OWNER.name)));
        }
        self.is_readable.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Refuses encrypted items, because there are no keys, and readable ones if encryption is required.
    async fn readable(&self, answers: Vec<Answer>) -> Result<Vec<Answer>, StoreError> {
        let items = answers.iter().flat_map(|answer| match answer {
            Answer::Item(Some(item)) => vec![item],
            Answer::Found(found) => found.iter().map(|found| &found.item).collect(),
            _ => Vec::new(),
        });
        let is_sealed = |item: &Item| item.value.get(SEALED).is_some();
        let mut items = items.filter(|item| !is_reserved(&item.namespace));
        match items.find(|item| self.options.required || is_sealed(item)) {
            Some(item) if is_sealed(item) => {
                let record = self.key_items().await?.last().map(record_of).transpose()?;
                let master = record.map(|record| record.master(OWNER.name));
                Err(error::no_item_keys(&item.namespace, &item.key, master.as_deref()))
            }
            Some(item) => Err(error::of_item(&item.namespace, &item.key, Fault::Plain)),
            None => Ok(answers),
        }
    }

    /// Returns the items with data keys, the oldest first.
    async fn key_items(&self) -> Result<Vec<Item>, StoreError> {
        let search = Search { limit: MAX_RESULTS, refresh: Some(false), ..Search::within(&namespace()) };
        let mut items: Vec<_> =
            self.inner.search(search).await?.into_iter().map(|found| found.item).collect();
        items.sort_by(|a, b| (a.created_ms, &a.key).cmp(&(b.created_ms, &b.key)));
        Ok(items)
    }

    async fn put_keys(&self, id: &str, record: &KeyRecord) -> Result<(), StoreError> {
        let value = serde_json::from_str(&record.text()).expect("it was written as JSON");
        let options = PutOptions::new().ttl(Ttl::Never).index(Index::Nothing);
        self.inner.put_with(&namespace(), id, value, options).await
    }

    /// Creates a data key. Two processes may do so at the same time: each has an item of its own.
    async fn add_key(&self, provider: &dyn KeyProvider) -> Result<(), StoreError> {
        let record = KeyRecord::create(OWNER, provider, &*self.options.random).await;
        let record = record.map_err(error::of_store_keys)?;
        let keys = record.open(OWNER.name, provider).await.map_err(error::of_store_keys)?;
        let id = keys.current().expect("it has one").id().to_owned();
        self.put_keys(&id, &record).await
    }

    /// Returns the data keys; creates one if there is none and something is `written`.
    async fn keys(&self, is_fresh: bool, written: bool) -> Result<Arc<DataKeys>, StoreError> {
        let Some(provider) = self.options.keys.as_deref() else { return Ok(Arc::default()) };
        let cached = self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_missing = |keys: &DataKeys| written && keys.current().is_none();
        if let Some(keys) = cached.filter(|keys| !is_fresh && !is_missing(keys)) {
            return Ok(keys);
        }
        let mut keys = self.read_keys(provider).await?;
        if is_missing(&keys) {
            self.add_key(provider).await?;
            keys = self.read_keys(provider).await?;
        }
        let keys = Arc::new(keys);
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(keys.clone());
        Ok(keys)
    }

    /// Reads the data keys. Only one that no rekey has replaced encrypts, because someone may have deleted the newer ones.
    async fn read_keys(&self, provider: &dyn KeyProvider) -> Result<DataKeys, StoreError> {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for item in self.key_items().await? {
            let opened = record_of(&item)?.open(OWNER.name, provider).await;
            let opened = opened.map_err(error::of_store_keys)?;
            if opened.from == OLD.from { old.extend(opened.all) } else { new.extend(opened.all) }
        }
        let only_decrypts = new.is_empty();
        old.append(&mut new);
        Ok(DataKeys { all: old, only_decrypts, ..DataKeys::default() })
    }

    fn sealed(&self, keys: &DataKeys, new: NewItem, options: PutOptions) -> Result<Operation, StoreError> {
        let NewItem { namespace, key, value, vector, .. } = new;
        let fields = match options.index {
            Index::Everything => None,
            Index::Fields(fields) => Some(fields),
            Index::Nothing => Some(Vec::new()),
        };
        let vector = vector.map(|vector| SealedVector {
            floats: BASE64_STANDARD_NO_PAD.encode(vector_bytes(&vector)),
            model: vector.model,
        });
        let current = keys.current().ok_or_else(|| error::no_data_key(&namespace, &key))?;
        let item = SealedItem { value, fields, vector };
        let sealed = serde_json::to_string(&item).map_err(Fault::NotJson).and_then(|text| {
            let sealed = seal(&self.options, Some(current), &place(&namespace, &key), &text)?;
            serde_json::from_str(&sealed).map_err(Fault::NotJson)
        });
        let value = sealed.map_err(|fault| error::of_item(&namespace, &key, fault))?;
        let options = PutOptions::new().index(Index::Nothing).ttl(options.ttl);
        Ok(Operation::Put { namespace, key, value, options })
    }

    async fn opened(&self, keys: &mut Arc<DataKeys>, item: Item) -> Result<OpenItem, StoreError> {
        let found = match self.try_open(keys, &item) {
            Err(Fault::UnknownKey(_)) => {
                // Another process added one.
                *keys = self.keys(true, false).await?;
                self.try_open(keys, &item)
            }
            found => found,
        };
        let (value, index, vector) =
            found.map_err(|fault| error::of_item(&item.namespace, &item.key, fault))?;
        let place = (item.namespace.clone(), item.key.clone());
        Ok(OpenItem { place, item: Item { value, ..item }, index, vector })
    }

    fn try_open(&self, keys: &DataKeys, item: &Item) -> Result<(Value, Index, Option<Vector>), Fault> {
        let text = item.value.to_string();
        if !is_sealed(&text) && !self.options.required {
            return Ok((item.value.clone(), Index::Everything, None));
        }
        let opened = open(&self.options, &keys.all, &place(&item.namespace, &item.key), &text)?;
        if !opened.is_encrypted {
            return Err(Fault::Plain);
        }
        let SealedItem { value, fields, vector } =
            serde_json::from_str(&opened.text).map_err(Fault::malformed)?;
        let vector = vector.map(|vector| {
            let bytes = BASE64_STANDARD_NO_PAD.decode(&vector.floats).map_err(Fault::malformed)?;
            vector_of(&vector.model, &bytes).ok_or_else(|| Fault::malformed("its vector is not one"))
        });
        Ok((value, fields.map_or(Index::Everything, Index::Fields), vector.transpose()?))
    }

    async fn encrypted_batch(&self, operations: Vec<Operation>) -> Result<Vec<Answer>, StoreError> {
        operations.iter().try_for_each(check_namespace)?;
        let is_put = |operation: &Operation| matches!(operation, Operation::Put { .. });
        let mut keys = self.keys(false, operations.iter().any(is_put)).await?;
        let mut options = StoreOptions::new();
        options.embed = self.embed.clone();
        let Batch { steps, .. } = options.prepare(operations.clone()).await?;
        let (mut inner, mut own) = (Vec::with_capacity(steps.len()), Vec::with_capacity(steps.len()));
        for (operation, step) in operations.into_iter().zip(steps) {
            let (operation, search) = self.split(&keys, operation, step)?;
            inner.push(operation);
            own.push(search);
        }
        let answers = self.inner.batch(inner).await?;
        let mut opened = Vec::with_capacity(answers.len());
        for (answer, own) in answers.into_iter().zip(own) {
            opened.push(self.answer(&mut keys, answer, own).await?);
        }
        Ok(opened)
    }

    /// Returns the operation of the store behind, and what this layer does with its answer.
    fn split(
        &self,
        keys: &DataKeys,
        operation: Operation,
        step: Step,
    ) -> Result<(Operation, Option<Own>), StoreError> {
        Ok(match (operation, step) {
            (Operation::Put { options, .. }, Step::Put(new)) => (self.sealed(keys, new, options)?, None),
            (Operation::Search(search), Step::Search { query, .. })
                if query.is_some() || !search.filter.is_empty() || search.within.is_none() =>
            {
                let all = Search {
                    within: search.within.clone(),
                    filter: Vec::new(),
                    query: None,
                    limit: MAX_RESULTS,
                    offset: 0,
                    refresh: Some(false),
                };
                (Operation::Search(all), Some(Own::Search(OwnSearch { search, query })))
            }
            (Operation::ListNamespaces(which), _) => {
                let limit = which.limit.saturating_add(which.offset).saturating_add(1).min(MAX_RESULTS);
                let all = ListNamespaces { limit, offset: 0, ..which.clone() };
                (Operation::ListNamespaces(all), Some(Own::List(which)))
            }
            (operation, _) => (operation, None),
        })
    }

    async fn answer(
        &self,
        keys: &mut Arc<DataKeys>,
        answer: Answer,
        own: Option<Own>,
    ) -> Result<Answer, StoreError> {
        Ok(match (answer, own) {
            (Answer::Item(Some(item)), _) => Answer::Item(Some(self.opened(keys, item).await?.item)),
            (Answer::Found(found), Some(Own::Search(own))) => {
                Answer::Found(self.searched(keys, found, own).await?)
            }
            (Answer::Found(found), _) => {
                let mut opened = Vec::with_capacity(found.len());
                for Found { item, score } in found {
                    opened.push(Found { item: self.opened(keys, item).await?.item, score });
                }
                Answer::Found(opened)
            }
            (Answer::Namespaces(namespaces), Some(Own::List(which))) => {
                let visible = namespaces.into_iter().filter(|namespace| !is_reserved(namespace));
                Answer::Namespaces(visible.skip(which.offset).take(which.limit).collect())
            }
            (answer, _) => answer,
        })
    }

    /// Searches the items of a namespace.
    async fn searched(
        &self,
        keys: &mut Arc<DataKeys>,
        found: Vec<Found>,
        OwnSearch { search, query }: OwnSearch,
    ) -> Result<Vec<Found>, StoreError> {
        let mut items = Vec::with_capacity(found.len());
        for Found { item, .. } in found.into_iter().filter(|found| !is_reserved(&found.item.namespace)) {
            items.push(self.opened(keys, item).await?);
        }
        items.sort_by(|a, b| a.place.cmp(&b.place));
        let words = match &query {
            Some(ReadyQuery::Words(_) | ReadyQuery::Hybrid { .. }) => words_of(&items).await?,
            _ => vec![Words::default(); items.len()],
        };
        let mut by_time: Vec<usize> = (0..items.len()).collect();
        by_time.sort_by_key(|at| items[*at].item.updated_ms);
        let mut order = vec![0; items.len()];
        for (nth, at) in (1..).zip(by_time) {
            order[at] = nth;
        }
        let scanned = items.iter().zip(&words).zip(order).map(|((open, words), nth)| Scanned {
            place: &open.place,
            nth,
            value: &open.item.value,
            words,
            vector: open.vector.as_ref(),
        });
        let places = scan(scanned, &search, query);
        let mut refreshed = self.refreshed(&search, &places).await?.into_iter();
        let mut results = Vec::with_capacity(places.len());
        for (score, place) in places {
            let at = items.binary_search_by(|open| open.place.cmp(&place)).expect("it was scanned");
            let mut item = items[at].item.clone();
            // An item that was replaced meanwhile remains the one that was found.
            if let Some(now) = refreshed.next().flatten().filter(|now| now.updated_ms == item.updated_ms) {
                item.expires_ms = now.expires_ms;
            }
            results.push(Found { item, score });
        }
        Ok(results)
    }

    /// Restarts the lifetimes of the results of a search, and returns the items, unless the search does not want it.
    async fn refreshed(
        &self,
        search: &Search,
        places: &[(Option<f64>, (Namespace, String))],
    ) -> Result<Vec<Option<Item>>, StoreError> {
        if search.refresh == Some(false) || places.is_empty() {
            return Ok(Vec::new());
        }
        let gets = places.iter().map(|(_, (namespace, key))| Operation::Get {
            namespace: namespace.clone(),
            key: key.clone(),
            refresh: search.refresh,
        });
        let answers = self.inner.batch(gets.collect()).await?;
        Ok(answers.into_iter().map(|answer| answer.into_item().flatten()).collect())
    }
}

/// The work of the layer on an answer.
enum Own {
    Search(OwnSearch),
    List(ListNamespaces),
}

/// Counts the words of items.
async fn words_of(items: &[OpenItem]) -> Result<Vec<Words>, StoreError> {
    let puts = items.iter().map(|open| Operation::Put {
        namespace: open.item.namespace.clone(),
        key: open.item.key.clone(),
        value: open.item.value.clone(),
        options: PutOptions::new().index(open.index.clone()),
    });
    let Batch { steps, .. } = StoreOptions::default().prepare(puts.collect()).await?;
    let words = steps.into_iter().map(|step| match step {
        Step::Put(new) => new.words(),
        _ => Words::default(),
    });
    Ok(words.collect())
}

fn namespace() -> Namespace {
    Namespace::new([KEYS]).expect("it is one label")
}

fn is_reserved(namespace: &Namespace) -> bool {
    namespace.labels().next() == Some(KEYS)
}

/// Refuses operations on the data keys.
fn check_namespace(operation: &Operation) -> Result<(), StoreError> {
    let named = match operation {
        Operation::Get { namespace, .. }
        | Operation::Put { namespace, .. }
        | Operation::Delete { namespace, .. } => Some(namespace),
        Operation::Search(search) => search.within.as_ref(),
        Operation::ListNamespaces(_) => None,
    };
    match named.filter(|namespace| is_reserved(namespace)) {
        Some(namespace) => Err(StoreError::Namespace {
            namespace: namespace.to_string(),
            why: "its first label is that of the data keys; choose another",
        }),
        None => Ok(()),
    }
}

fn record_of(item: &Item) -> Result<KeyRecord, StoreError> {
    KeyRecord::parse(&item.value.to_string()).map_err(error::of_store_keys)
}

fn place<'a>(namespace: &'a Namespace, key: &'a str) -> Place<'a> {
    let (part, position) = (Part::StoreItem, Position::default());
    Place { part, path: namespace.as_str(), name: key, position }
}

impl Store for SealedStore {
    fn batch(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answer>, StoreError>> {
        if self.options.keys.is_some() {
            Box::pin(self.encrypted_batch(operations))
        } else {
            Box::pin(async {
                let put = operations.iter().find_map(|operation| match operation {
                    Operation::Put { namespace, key, .. } => Some((namespace, key)),
                    _ => None,
                });
                if let Some((namespace, key)) = put {
                    error::check_store_keys(&self.options)?;
                    self.refuse_readable(namespace, key).await?;
                }
                self.readable(self.inner.batch(operations).await?).await
            })
        }
    }

    fn sweep(&self) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.inner.sweep()
    }
}

impl fmt::Debug for SealedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedStore").field("options", &self.options).finish_non_exhaustive()
    }
}
