//! Random operations in random order, compared with a simple model.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use proptest::{
    collection::vec,
    prelude::{Just, Strategy, prop_oneof},
    sample::select,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};
use superstep_graph::{
    MemoryStore, Store,
    clock::Clock as _,
    store::{Filter, Item, ListNamespaces, Namespace, PutOptions, Search, StoreOptions, Ttl, words},
};

use super::kit::{TestClock, ns};

/// Executes random sequences of operations and restarts, and compares the store with a model after each step.
/// Scores are compared with those of a [`MemoryStore`].
///
/// `make` returns a fresh store with these options and a value that must live as long, such as its folder.
/// `restart` returns the store as another process would find it; for a store in memory, it returns the same
/// store.
///
/// Runs 256 sequences, or the number in `PROPTEST_CASES`; always the same ones. Creates its own runtime.
///
/// # Panics
/// If the store differs from the model; shows the shortest such sequence.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use superstep_graph::MemoryStore;
///
/// superstep_testing::conformance::check_store_operations(
///     async |options| (Arc::new(MemoryStore::with(options)) as _, ()),
///     async |store, _, ()| store,
/// );
/// ```
pub fn check_store_operations<P>(
    make: impl AsyncFn(StoreOptions) -> (Arc<dyn Store>, P),
    restart: impl AsyncFn(Arc<dyn Store>, StoreOptions, &P) -> Arc<dyn Store>,
) {
    check_some_store_operations(Config::default().cases, make, restart);
}

/// Executes this number of sequences like [`check_store_operations`], for a store whose answers take long.
///
/// # Panics
/// See [`check_store_operations`].
pub fn check_some_store_operations<P>(
    sequences: u32,
    make: impl AsyncFn(StoreOptions) -> (Arc<dyn Store>, P),
    restart: impl AsyncFn(Arc<dyn Store>, StoreOptions, &P) -> Arc<dyn Store>,
) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers starts");
    let config = Config { failure_persistence: None, cases: sequences, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let result = runner.run(&vec(operation(), 1..40), |operations| {
        runtime.block_on(async {
            let clock = TestClock::at(1000);
            let options = StoreOptions::new().clock(clock.clone());
            let (mut store, place) = make(options.clone()).await;
            let mut model =
                Model { items: BTreeMap::new(), clock, memory: MemoryStore::with(options.clone()) };
            for operation in operations {
                match operation {
                    Operation::Restart => store = restart(store, options.clone(), &place).await,
                    other => model.apply(&*store, other).await,
                }
            }
            model.compare_all(&*store).await;
        });
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

const NAMESPACES: [&[&str]; 5] = [&["a"], &["a", "b"], &["a", "b", "c"], &["a-b"], &["ü"]];
const KEYS: [&str; 3] = ["k", "", "ö"];
const TEXTS: [&str; 5] = ["tea", "green tea", "a long text about tea and more tea", "\"OR\" coffee", "!"];

#[derive(Clone, Debug)]
enum Operation {
    Put {
        place: ItemKey,
        text: &'static str,
        n: i64,
        ttl: Option<u64>,
    },
    Get {
        place: ItemKey,
    },
    Delete {
        place: ItemKey,
    },
    Search {
        within: Option<usize>,
        words: Option<&'static str>,
        above: Option<i64>,
        limit: usize,
        offset: usize,
    },
    List {
        depth: Option<usize>,
        limit: usize,
    },
    Pass {
        ms: i64,
    },
    Sweep,
    Restart,
}

type ItemKey = (usize, &'static str);

fn operation() -> impl Strategy<Value = Operation> {
    let place = || (0..NAMESPACES.len(), select(&KEYS[..]));
    let option = proptest::option::of::<std::ops::Range<u64>>;
    prop_oneof![
        8 => (place(), select(&TEXTS[..]), 0..4_i64, option(0..5))
            .prop_map(|(place, text, n, ttl)| Operation::Put { place, text, n, ttl }),
        2 => place().prop_map(|place| Operation::Get { place }),
        2 => place().prop_map(|place| Operation::Delete { place }),
        5 => (
            proptest::option::of(0..NAMESPACES.len()),
            proptest::option::of(select(&TEXTS[..])),
            proptest::option::of(0..4_i64),
            0..6_usize,
            0..3_usize,
        )
            .prop_map(|(within, words, above, limit, offset)| {
                Operation::Search { within, words, above, limit, offset }
            }),
        2 => (proptest::option::of(1..4_usize), 0..5_usize)
            .prop_map(|(depth, limit)| Operation::List { depth, limit }),
        3 => (1..4_i64).prop_map(|ms| Operation::Pass { ms }),
        1 => Just(Operation::Sweep),
        2 => Just(Operation::Restart),
    ]
}

/// The expected contents of a store.
struct Model {
    items: BTreeMap<(Namespace, String), Item>,
    clock: TestClock,
    memory: MemoryStore,
}

impl Model {
    async fn apply(&mut self, store: &dyn Store, operation: Operation) {
        let now_ms = self.clock.now_ms();
        match operation {
            Operation::Put { place, text, n, ttl } => {
                let (namespace, key) = there(place);
                let value = json!({"text": text, "n": n});
                let ttl = ttl.map_or(Ttl::Never, |ms| Ttl::After(Duration::from_millis(ms)));
                let options = PutOptions::new().ttl(ttl);
                let put = store.put_with(&namespace, &key, value.clone(), options.clone());
                put.await.expect("an item can be put");
                self.memory
                    .put_with(&namespace, &key, value.clone(), options)
                    .await
                    .expect("memory takes it");
                let place = (namespace, key);
                let before = self.items.get(&place).filter(|item| lives(item, now_ms));
                let created_ms = before.map_or(now_ms, |item| item.created_ms);
                let updated_ms = before.map_or(now_ms, |item| now_ms.max(item.updated_ms + 1));
                let expires_ms = match ttl {
                    Ttl::After(ttl) => Some(now_ms + i64::try_from(ttl.as_millis()).expect("a short time")),
                    _ => None,
                };
                let (namespace, key) = place.clone();
                self.items.insert(place, Item { namespace, key, value, created_ms, updated_ms, expires_ms });
            }
            Operation::Get { place } => {
                let (namespace, key) = there(place);
                let found = store.get(&namespace, &key).await.expect("an item can be read");
                let expected = self.items.get(&(namespace, key)).filter(|item| lives(item, now_ms));
                assert_eq!(found.as_ref(), expected);
            }
            Operation::Delete { place } => {
                let (namespace, key) = there(place);
                store.delete(&namespace, &key).await.expect("an item can be deleted");
                self.memory.delete(&namespace, &key).await.expect("memory does it");
                self.items.remove(&(namespace, key));
            }
            Operation::Search { within, words, above, limit, offset } => {
                let filter = above.map(|n| Filter::gt("n", n)).into_iter().collect();
                let within = within.map(|within| ns(NAMESPACES[within]));
                let search = Search { within, filter, limit, offset, ..Search::everywhere() };
                let search = match words {
                    Some(text) => search.words(text),
                    None => search,
                };
                self.compare(store, search, words).await;
            }
            Operation::List { depth: max_depth, limit } => {
                let which = ListNamespaces { max_depth, limit, ..ListNamespaces::default() };
                let found = store.list_namespaces(which).await.expect("namespaces can be listed");
                let living = self.items.values().filter(|item| lives(item, now_ms));
                let cut = living.map(|item| {
                    let labels = item.namespace.labels().take(max_depth.unwrap_or(usize::MAX));
                    labels.collect::<Vec<_>>().join(".")
                });
                let mut expected: Vec<String> = cut.collect();
                expected.sort();
                expected.dedup();
                expected.truncate(limit);
                assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
            }
            Operation::Pass { ms } => self.clock.pass(ms),
            Operation::Sweep => {
                let before = self.items.len();
                self.items.retain(|_, item| lives(item, now_ms));
                let swept = store.sweep().await.expect("a store can be swept");
                assert_eq!(swept, before - self.items.len());
            }
            Operation::Restart => unreachable!("the caller restarts"),
        }
    }

    async fn compare(&self, store: &dyn Store, search: Search, query: Option<&str>) {
        let now_ms = self.clock.now_ms();
        let found = store.search(search.clone()).await.expect("a store can be searched");
        let from_memory = self.memory.search(search.clone()).await.expect("memory can be searched");
        assert_eq!(found, from_memory);
        let fits = |item: &&Item| {
            let within = search.within.as_ref();
            within.is_none_or(|outer| {
                let (outer, labels): (Vec<_>, Vec<_>) =
                    (outer.labels().collect(), item.namespace.labels().collect());
                labels.starts_with(&outer)
            }) && search.filter.iter().all(|filter| item.value["n"].as_i64() > filter.with.as_i64())
                && query.is_none_or(|query| shares_a_word(query, &item.value))
        };
        let expected: Vec<&Item> =
            self.items.values().filter(|item| lives(item, now_ms)).filter(fits).collect();
        let page = expected.len().saturating_sub(search.offset).min(search.limit);
        assert_eq!(found.len(), page);
        match query {
            None => {
                let page = expected.into_iter().skip(search.offset).take(search.limit);
                assert_eq!(
                    found.iter().map(|found| &found.item).collect::<Vec<_>>(),
                    page.collect::<Vec<_>>()
                );
            }
            Some(_) => {
                assert!(found.iter().all(|found| expected.contains(&&found.item)));
                let place = |n: usize| (&found[n].item.namespace, &found[n].item.key);
                for n in 1..found.len() {
                    let (before, after) = (found[n - 1].score, found[n].score);
                    assert!(before > after || (before == after && place(n - 1) < place(n)), "{found:?}");
                }
            }
        }
    }

    async fn compare_all(&self, store: &dyn Store) {
        self.compare(store, Search { limit: usize::MAX, ..Search::everywhere() }, None).await;
        for text in TEXTS {
            let search = Search { limit: usize::MAX, ..Search::everywhere() }.words(text);
            self.compare(store, search, Some(text)).await;
        }
    }
}

fn there((namespace, key): ItemKey) -> (Namespace, String) {
    (ns(NAMESPACES[namespace]), key.to_owned())
}

fn lives(item: &Item, now_ms: i64) -> bool {
    item.expires_ms.is_none_or(|expires| now_ms < expires)
}

fn shares_a_word(query: &str, value: &Value) -> bool {
    let text = format!("{} {}", value["text"].as_str().unwrap_or_default(), value["n"]);
    let there: Vec<String> = words(&text).collect();
    words(query).any(|word| there.contains(&word))
}
