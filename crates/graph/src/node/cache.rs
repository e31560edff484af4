//! Cached results of nodes.
//!
//! Start at [`CachePolicy`].

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;
use superstep_state::Panicked;

use crate::{State, node::output::Written};

/// A cache policy of a node: stored results replace further runs with an equal key. A result is an update,
/// with the targets of its command.
///
/// The cache is in the memory of the compiled graph, shared by its clones and by all their runs and threads,
/// and ends with it. Only regular results are cached: no failures, no interrupts, and no results that depend
/// on an answer.
///
/// # Example: look up each city once an hour
/// ```
/// # use std::time::Duration;
/// # use superstep_graph::{*, node::CachePolicy};
/// # #[derive(State, Clone, Debug, Default)]
/// # struct Trip { city: String, weather: String }
/// # async fn look_up(trip: Trip, _: Cx) -> TripUpdate { Trip::update().weather(format!("rain in {}", trip.city)) }
/// let mut graph = StateGraph::<Trip>::new("trip");
/// let weather = graph.add_node("weather", look_up);
/// let hour = Duration::from_secs(60 * 60);
/// graph.cache(weather, CachePolicy::new(|trip: &Trip| trip.city.clone()).ttl(hour));
/// ```
///
/// # Source
/// langgraph's `CachePolicy`.
pub struct CachePolicy<S> {
    key: Arc<dyn Fn(&S) -> String + Send + Sync>,
    ttl: Option<Duration>,
    capacity: u64,
}

impl<S: State> CachePolicy<S> {
    /// Creates a policy: results are equal for states with the same key and, for a worker, the same item.
    /// `key` is a pure function of the data that the node reads. By default, up to 1,000 results are cached,
    /// without expiry.
    pub fn new(key: impl Fn(&S) -> String + Send + Sync + 'static) -> Self {
        Self { key: Arc::new(key), ttl: None, capacity: 1_000 }
    }

    /// Sets the lifetime of a result, by the clock of the runs.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// Sets the maximum number of results; the least used ones are evicted first.
    #[must_use]
    pub fn capacity(self, results: u64) -> Self {
        Self { capacity: results, ..self }
    }
}

impl<S> std::fmt::Debug for CachePolicy<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachePolicy")
            .field("ttl", &self.ttl)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// The key of the policy and the item of a worker.
type Key = (String, Option<Arc<str>>);

/// The results of a node.
pub(crate) struct NodeCache<S: State> {
    policy: CachePolicy<S>,
    results: Cache<Key, Arc<Cached<S>>>,
    /// The number of clears.
    era: AtomicU64,
}

struct Cached<S: State> {
    written: Written<S>,
    /// UTC milliseconds.
    until_ms: Option<i64>,
    era: u64,
}

/// The result of a cache lookup.
pub(crate) enum Lookup {
    /// No lookup.
    None,
    /// It was there.
    Hit,
    /// Not cached; the result will be cached under this key.
    Miss(Box<Missing>),
}

pub(crate) struct Missing {
    key: Key,
    era: u64,
}

impl<S: State> NodeCache<S> {
    pub(crate) fn new(policy: CachePolicy<S>) -> Self {
        Self { results: Cache::new(policy.capacity), policy, era: AtomicU64::new(0) }
    }

    /// Returns the valid result for this state and item, if any.
    ///
    /// # Errors
    /// If the policy panics.
    pub(crate) fn find(
        &self,
        state: &S,
        item: Option<Arc<str>>,
        now_ms: i64,
    ) -> Result<(Option<Written<S>>, Lookup), Panicked> {
        let key = catch_unwind(AssertUnwindSafe(|| (self.policy.key)(state)));
        let key = (key.map_err(|panic| Panicked::from_payload(&*panic))?, item);
        let era = self.era.load(Ordering::Acquire);
        let good = |cached: &Arc<Cached<S>>| {
            cached.era == era && cached.until_ms.is_none_or(|until_ms| now_ms < until_ms)
        };
        Ok(match self.results.get(&key).filter(good) {
            Some(cached) => (Some(cached.written.clone()), Lookup::Hit),
            None => (None, Lookup::Miss(Box::new(Missing { key, era }))),
        })
    }

    pub(crate) fn keep(&self, missing: Missing, written: Written<S>, now_ms: i64) {
        let Missing { key, era } = missing;
        let ttl = self.policy.ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
        let until_ms = ttl.map(|ttl| now_ms.saturating_add(ttl));
        self.results.insert(key, Arc::new(Cached { written, until_ms, era }));
    }

    pub(crate) fn clear(&self) {
        // The era also excludes the results of tasks that are running now.
        self.era.fetch_add(1, Ordering::AcqRel);
        self.results.invalidate_all();
    }
}
