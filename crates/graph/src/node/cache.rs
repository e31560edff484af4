//! Cached results of nodes.
//!
//! Start at [`CachePolicy`].

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hashlink::LruCache;
use superstep_state::Panicked;

use crate::{State, node::output::Written};

/// A cache policy of a node: stored results replace further runs with an equal key. A result is an update,
/// with the targets of its command.
///
/// The cache is in the memory of the compiled graph, shared by its clones and by all their runs and threads,
/// and ends with it; [`stored`](Self::stored) makes results outlive it. Only regular results are cached: no failures, no
/// interrupts, and no results of a task that waited for an answer, or whose subgraphs were
/// [updated](crate::thread::SubgraphThread::update) meanwhile.
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
    capacity: usize,
    is_stored: bool,
}

impl<S: State> CachePolicy<S> {
    /// Creates a policy: results are equal for states with the same key and, for a worker, the same item.
    /// `key` is a pure function of the data that the node reads. By default, up to 1,000 results are cached,
    /// without expiry.
    pub fn new(key: impl Fn(&S) -> String + Send + Sync + 'static) -> Self {
        Self { key: Arc::new(key), ttl: None, capacity: 1_000, is_stored: false }
    }

    /// Sets the lifetime of a result, by the clock of the runs.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// Stores results also in the [store](crate::CompiledGraph::with_store) of the graph, so that they outlive the process
    /// and are shared by all programs with that store; one that is not in memory is looked up there.
    ///
    /// Results are stored as JSON under the names of the graph and the node, in the namespace `superstep-cache`, for the
    /// [lifetime](Self::ttl) of the policy; there is no other limit of their number. A later program uses them as well: after
    /// a change of the node, include a version in the key, or [clear](crate::CompiledGraph::clear_stored_cache) them. A
    /// result that does not fit the current state or graph, or has a write to an untracked channel, is not used.
    ///
    /// A run ends with [`RunError::Cache`](crate::RunError::Cache) if the graph has no store, or the store fails.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use superstep_graph::{*, node::CachePolicy};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Trip { city: String, weather: String }
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let graph = |weather: &'static str| -> Result<CompiledGraph<Trip>, CompileError> {
    /// # let mut graph = StateGraph::<Trip>::new("trip");
    /// # let look_up = graph.add_node("weather", move |_: Trip, _: Cx| async move { Trip::update().weather(weather) });
    /// # graph.add_edge(START, look_up);
    /// # graph.add_edge(look_up, END);
    /// graph.cache(look_up, CachePolicy::new(|trip: &Trip| format!("v1 {}", trip.city)).stored());
    /// # graph.compile() };
    /// let store = Arc::new(MemoryStore::new()); // Or a `SqliteStore`.
    /// graph("rain")?.with_store(store.clone()).run(Trip::update().city("Bonn")).await?;
    /// // Another process, in which the node would return something else.
    /// let end = graph("sun")?.with_store(store).run(Trip::update().city("Bonn")).await?;
    /// assert_eq!(end.state.weather, "rain");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stored(self) -> Self {
        Self { is_stored: true, ..self }
    }

    /// Sets the maximum number of results in memory; the least recently used ones are evicted first.
    #[must_use]
    pub fn capacity(self, results: usize) -> Self {
        Self { capacity: results, ..self }
    }
}

impl<S> std::fmt::Debug for CachePolicy<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachePolicy")
            .field("ttl", &self.ttl)
            .field("capacity", &self.capacity)
            .field("is_stored", &self.is_stored)
            .finish_non_exhaustive()
    }
}

/// The key of the policy and the item of a worker.
pub(crate) type Key = (String, Option<Arc<str>>);

/// The results of a node.
pub(crate) struct NodeCache<S: State> {
    policy: CachePolicy<S>,
    results: Mutex<LruCache<Key, Arc<Cached<S>>>>,
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
    /// The cache was not consulted.
    None,
    /// The result was in the cache.
    Hit,
    /// Not cached; the result will be cached under this key.
    Miss(Box<Missing>),
}

pub(crate) struct Missing {
    pub(crate) key: Key,
    era: u64,
}

impl<S: State> NodeCache<S> {
    pub(crate) fn new(policy: CachePolicy<S>) -> Self {
        Self { results: Mutex::new(LruCache::new(policy.capacity)), policy, era: AtomicU64::new(0) }
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
        let cached = self.results().get(&key).cloned();
        Ok(match cached.filter(good) {
            Some(cached) => (Some(cached.written.clone()), Lookup::Hit),
            None => (None, Lookup::Miss(Box::new(Missing { key, era }))),
        })
    }

    /// Returns whether results are also in the store of the graph.
    pub(crate) fn is_stored(&self) -> bool {
        self.policy.is_stored
    }

    /// Returns the lifetime of results.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        self.policy.ttl
    }

    /// Returns the time at which a result of this time expires.
    pub(crate) fn until_ms(&self, now_ms: i64) -> Option<i64> {
        let ttl = self.policy.ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
        ttl.map(|ttl| now_ms.saturating_add(ttl))
    }

    pub(crate) fn keep(&self, missing: Missing, written: Written<S>, until_ms: Option<i64>) {
        let Missing { key, era } = missing;
        self.results().insert(key, Arc::new(Cached { written, until_ms, era }));
    }

    pub(crate) fn clear(&self) {
        // The era also excludes the results of tasks that are running now.
        self.era.fetch_add(1, Ordering::AcqRel);
        self.results().clear();
    }

    fn results(&self) -> MutexGuard<'_, LruCache<Key, Arc<Cached<S>>>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
