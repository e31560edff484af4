//! Items in the memory of this process.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use futures::future::BoxFuture;
use serde_json::Value;

use super::{
    Answer, Batch, Found, Item, Namespace, NewItem, Operation, ReadyQuery, Search, Step, Store, StoreError,
    StoreOptions, Vector, Words,
    scan::{Scanned, scan},
};

/// A store in memory; its items end with the process.
///
/// See [`Store`] for an example.
#[derive(Debug, Default)]
pub struct MemoryStore {
    options: StoreOptions,
    items: Mutex<Items>,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty store with these options.
    pub fn with(options: StoreOptions) -> Self {
        Self { options, items: Mutex::default() }
    }
}

impl Store for MemoryStore {
    fn batch(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answer>, StoreError>> {
        Box::pin(async move {
            let Batch { now_ms, steps } = self.options.prepare(operations).await?;
            // None of the remaining steps can fail.
            let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(steps.into_iter().map(|step| items.apply(now_ms, step)).collect())
        })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move {
            let now_ms = self.options.clock.now_ms();
            let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
            let before = items.stored.len();
            items.stored.retain(|_, stored| stored.lives(now_ms));
            Ok(before - items.stored.len())
        })
    }
}

type ItemKey = (Namespace, String);

#[derive(Debug, Default)]
struct Items {
    stored: BTreeMap<ItemKey, Stored>,
    /// The number of puts so far.
    puts: u64,
}

#[derive(Debug)]
struct Stored {
    /// The sequence number of its put.
    nth: u64,
    value: Value,
    created_ms: i64,
    updated_ms: i64,
    ttl_ms: Option<i64>,
    expires_ms: Option<i64>,
    words: Words,
    vector: Option<Vector>,
}

impl Stored {
    fn lives(&self, now_ms: i64) -> bool {
        self.expires_ms.is_none_or(|expires| now_ms < expires)
    }

    fn refresh(&mut self, now_ms: i64) {
        self.expires_ms = self.ttl_ms.map(|ttl| now_ms.saturating_add(ttl));
    }

    fn item(&self, (namespace, key): &ItemKey) -> Item {
        Item {
            namespace: namespace.clone(),
            key: key.clone(),
            value: self.value.clone(),
            created_ms: self.created_ms,
            updated_ms: self.updated_ms,
            expires_ms: self.expires_ms,
        }
    }
}

impl Items {
    fn apply(&mut self, now_ms: i64, step: Step) -> Answer {
        match step {
            Step::Get { namespace, key, refresh } => {
                Answer::Item(self.get(now_ms, &(namespace, key), refresh))
            }
            Step::Put(new) => {
                self.put(now_ms, new);
                Answer::Done
            }
            Step::Delete { namespace, key } => {
                self.stored.remove(&(namespace, key));
                Answer::Done
            }
            Step::Search { search, query, refresh } => {
                let places = self.search(now_ms, &search, query);
                let found = places.into_iter().filter_map(|(score, place)| {
                    Some(Found { item: self.get(now_ms, &place, refresh)?, score })
                });
                Answer::Found(found.collect())
            }
            Step::List(which) => {
                let living = self.stored.iter().filter(|(_, stored)| stored.lives(now_ms));
                Answer::Namespaces(which.pick(living.map(|((namespace, _), _)| namespace.clone())))
            }
        }
    }

    fn get(&mut self, now_ms: i64, place: &ItemKey, refresh: bool) -> Option<Item> {
        let stored = self.stored.get_mut(place).filter(|stored| stored.lives(now_ms))?;
        if refresh {
            stored.refresh(now_ms);
        }
        Some(stored.item(place))
    }

    fn put(&mut self, now_ms: i64, new: NewItem) {
        let words = new.words();
        let NewItem { namespace, key, value, vector, ttl_ms, .. } = new;
        let place = (namespace, key);
        let before = self.stored.get(&place).filter(|stored| stored.lives(now_ms));
        let created_ms = before.map_or(now_ms, |before| before.created_ms);
        let updated_ms = NewItem::updated_ms(now_ms, before.map(|before| before.updated_ms));
        self.puts += 1;
        let nth = self.puts;
        let mut stored =
            Stored { nth, value, created_ms, updated_ms, ttl_ms, expires_ms: None, words, vector };
        stored.refresh(now_ms);
        self.stored.insert(place, stored);
    }

    /// Returns the positions and scores of the items that match a search, best first.
    fn search(&self, now_ms: i64, search: &Search, query: Option<ReadyQuery>) -> Vec<(Option<f64>, ItemKey)> {
        let living = self.within(search.within.as_ref()).filter(|(_, stored)| stored.lives(now_ms));
        let scanned = living.map(|(place, stored)| Scanned {
            place,
            nth: stored.nth,
            value: &stored.value,
            words: &stored.words,
            vector: stored.vector.as_ref(),
        });
        scan(scanned, search, query)
    }

    /// Returns the items in a namespace and below it, in order.
    fn within<'a>(&'a self, outer: Option<&'a Namespace>) -> impl Iterator<Item = (&'a ItemKey, &'a Stored)> {
        let first = outer.map(|outer| (outer.clone(), String::new()));
        let range = match first {
            Some(first) => self.stored.range(first..),
            None => self.stored.range(..),
        };
        let near = move |namespace: &Namespace| {
            outer.is_none_or(|outer| namespace.as_str().starts_with(outer.as_str()))
        };
        let inside = move |namespace: &Namespace| outer.is_none_or(|outer| namespace.is_within(outer));
        range
            .take_while(move |((namespace, _), _)| near(namespace))
            .filter(move |((namespace, _), _)| inside(namespace))
    }
}
