//! Cached results of nodes, in the graph and in its store.
//!
//! Start at [`Driver::fetch_cached`].

use std::{error::Error, mem, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_checkpoint::{
    RecordedTarget,
    store::{Answer, Index, Namespace, Operation, PutOptions, Search, Store, StoreError, Ttl},
};
use superstep_engine::{NodeIndex, NodeName, Task};
use superstep_state::{Panicked, StoredUpdate, internal::ThreadDecoder};

use super::{
    driver::Driver,
    targets::{named, recorded_targets},
};
use crate::{
    RunError, State,
    compiled::graph::Inner,
    node::{
        cache::{Key, Lookup, Missing, NodeCache},
        output::Written,
        routing::Targets,
    },
    run::finish::encode,
};

/// The first label of the namespaces of cached results.
const LABEL: &str = "superstep-cache";

/// The number of results that are deleted at a time.
const PAGE: usize = 500;

/// A cached result, as it is stored. A promise: stores have it.
#[derive(Debug, Serialize, Deserialize)]
struct StoredResult {
    /// The graph, the node, the key of the policy, and the item of a worker: what the hash in the item's key is of.
    of: (String, String, String, Option<String>),
    /// The update: JSON in a text, so that no store changes its numbers.
    update: StoredUpdate,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    targets: Vec<RecordedTarget>,
    /// UTC milliseconds, by the clock of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_ms: Option<i64>,
}

/// A graph with a stored cache and without a store.
#[derive(Debug, thiserror::Error)]
#[error("the graph has no store; add one with `CompiledGraph::with_store`")]
struct Storeless;

impl<S: State> Driver<S> {
    /// Looks up the cached result of a task. Tasks that waited for an answer or an update, and error handlers, are never cached:
    /// the key includes neither those nor the failure.
    pub(super) fn look_up(
        &self,
        task: Task,
        cache: &NodeCache<S>,
        item: Option<Arc<str>>,
    ) -> Result<(Option<Written<S>>, Lookup), Panicked> {
        let slot = task.id.slot;
        if self.has_waited(task.id) || self.failure_of(slot).is_some() {
            return Ok((None, Lookup::None));
        }
        match cache.find(&self.state, item, self.cx.clock.now_ms())? {
            (None, Lookup::Miss(_)) if self.fetched.contains_key(&slot) => {
                Ok((self.fetched.get(&slot).cloned(), Lookup::Hit))
            }
            looked => Ok(looked),
        }
    }

    /// Returns whether the result of a task may be in the store.
    pub(super) fn is_cached_in_store(&self, task: Task) -> bool {
        let cache = self.graph.nodes[task.node.position()].cache.as_ref();
        cache.is_some_and(NodeCache::is_stored) && self.observer.reads_cache()
    }

    /// Takes results of tasks that are about to start from the store.
    ///
    /// # Errors
    /// [`RunError::Cache`].
    pub(super) async fn fetch_cached(&mut self, tasks: Vec<Task>) -> Result<(), RunError> {
        let mut wanted = Vec::new();
        for task in tasks {
            let Some(cache) = &self.graph.nodes[task.node.position()].cache else { continue };
            let item = self.items.get(&task.id.slot).map(|item| Arc::from(item.as_str()));
            // A panic of the policy is reported when the task starts.
            if let Ok((None, Lookup::Miss(missing))) = self.look_up(task, cache, item) {
                wanted.push((task, missing));
            }
        }
        let Some((first, _)) = wanted.first() else { return Ok(()) };
        let store = self.cache_store(first.node)?;
        let get = |(task, missing): &(Task, Box<Missing>)| {
            let (namespace, key) = self.address(task.node, &missing.key)?;
            Ok(Operation::Get { namespace, key, refresh: None })
        };
        let gets = wanted.iter().map(get).collect::<Result<_, RunError>>()?;
        let answers = store.batch(gets).await.map_err(|error| self.cache_error(first.node, error))?;
        for ((task, missing), answer) in wanted.into_iter().zip(answers) {
            let Some(Some(item)) = answer.into_item() else { continue };
            if let Some((written, until_ms)) = self.read_cached(task.node, &missing.key, item.value) {
                self.fetched.insert(task.id.slot, written.clone());
                if let Some(cache) = &self.graph.nodes[task.node.position()].cache {
                    cache.keep(*missing, written, until_ms);
                }
            }
        }
        Ok(())
    }

    /// Retains an accepted result in the cache of its node; [`store_cached`](Self::store_cached) stores it.
    pub(super) fn keep_cached(&mut self, node: NodeIndex, missing: Missing, written: Written<S>) {
        let graph = self.graph.clone();
        let Some(cache) = &graph.nodes[node.position()].cache else { return };
        let until_ms = cache.until_ms(self.cx.clock.now_ms());
        if cache.is_stored()
            && let Some(value) = self.cached(node, &missing.key, written.clone(), until_ms)
            && let Ok((namespace, key)) = self.address(node, &missing.key)
        {
            let ttl = cache.ttl().map_or(Ttl::Never, Ttl::After);
            let options = PutOptions::new().ttl(ttl).index(Index::Nothing);
            self.cache_puts.push((node, Operation::Put { namespace, key, value, options }));
        }
        cache.keep(missing, written, until_ms);
    }

    /// Caches the accepted results of a superstep that the run does not complete: another run does not execute its tasks again.
    pub(super) async fn cache_finished(&mut self) -> Result<(), RunError> {
        if self.cache_inserts.is_empty() {
            return Ok(());
        }
        let accepted = self.accepted();
        for (slot, node, missing, written) in mem::take(&mut self.cache_inserts) {
            if accepted.contains_key(&slot) {
                self.keep_cached(node, missing, written);
            }
        }
        self.store_cached().await
    }

    /// Stores the retained results.
    ///
    /// # Errors
    /// [`RunError::Cache`]. The superstep is committed.
    pub(super) async fn store_cached(&mut self) -> Result<(), RunError> {
        let (nodes, puts): (Vec<_>, Vec<_>) = mem::take(&mut self.cache_puts).into_iter().unzip();
        let Some(node) = nodes.first() else { return Ok(()) };
        let stored = self.cache_store(*node)?.batch(puts).await;
        stored.map(drop).map_err(|error| self.cache_error(*node, error))
    }

    /// Returns the stored form of a result; `None` for one that would not be the same when it is read.
    fn cached(
        &mut self,
        node: NodeIndex,
        key: &Key,
        written: Written<S>,
        until_ms: Option<i64>,
    ) -> Option<Value> {
        let Written { update, goto, went } = written;
        let channels = self.state.channels();
        if self.state.written(&update).iter().any(|position| channels[position].untracked) {
            return None;
        }
        let name = self.graph.topology.name(node);
        let update = encode(&self.state, &update, 0, name, &mut self.scratch).ok()?;
        let targets = match went {
            Some(went) => *went,
            None => self.graph.gotos(node, goto).ok()?,
        };
        let targets = named(&self.graph.topology, &targets.ends, &mut targets.items.into_iter());
        serde_json::to_value(StoredResult { of: self.of(node, key), update, targets, until_ms }).ok()
    }

    /// Reads a stored result; `None` for an expired one, for one of another key, and for one that does not fit the current
    /// state or graph.
    fn read_cached(&self, node: NodeIndex, key: &Key, value: Value) -> Option<(Written<S>, Option<i64>)> {
        let StoredResult { of, update: stored, targets, until_ms } = serde_json::from_value(value).ok()?;
        let is_over = until_ms.is_some_and(|until_ms| self.cx.clock.now_ms() >= until_ms);
        if is_over || of != self.of(node, key) {
            return None;
        }
        let mut decoder = ThreadDecoder::new((*self.graph.initial).clone());
        let update = decoder.record(0, &stored).ok()?;
        if !decoder.unknown.is_empty() {
            return None;
        }
        let (targets, lost): (Targets, _) = recorded_targets(&self.graph.topology, targets);
        let went = (!targets.ends.is_empty()).then(|| Box::new(targets));
        lost.is_empty().then(|| (Written { went, ..Written::update(update) }, until_ms))
    }

    fn cache_store(&self, node: NodeIndex) -> Result<&dyn Store, RunError> {
        self.cx.scope.store.as_deref().ok_or_else(|| self.cache_error(node, Storeless))
    }

    fn cache_error(&self, node: NodeIndex, error: impl Error + Send + Sync + 'static) -> RunError {
        RunError::Cache { node: self.graph.topology.name(node).clone(), source: Box::new(error) }
    }

    fn of(&self, node: NodeIndex, (key, item): &Key) -> (String, String, String, Option<String>) {
        let name = self.graph.topology.name(node).to_string();
        (self.graph.name.clone(), name, key.clone(), item.as_deref().map(str::to_owned))
    }

    /// Returns the namespace and the key of a result.
    fn address(&self, node: NodeIndex, key: &Key) -> Result<(Namespace, String), RunError> {
        let of = serde_json::to_string(&self.of(node, key)).expect("texts can be written");
        let key = blake3::hash(of.as_bytes()).to_hex().to_string();
        let namespace = namespace(&self.graph.name, self.graph.topology.name(node));
        Ok((namespace.map_err(|error| self.cache_error(node, error))?, key))
    }
}

/// Returns the namespace of the results of a node. Labels have no `.`, and names may.
fn namespace(graph: &str, node: &NodeName) -> Result<Namespace, StoreError> {
    let label = |name: &str| blake3::hash(name.as_bytes()).to_hex()[..16].to_owned();
    Namespace::new([LABEL.to_owned(), label(graph), label(node.as_str())])
}

/// Deletes the stored results of all nodes of a graph, and returns their number.
pub(crate) async fn clear<S: State>(graph: &Inner<S>, store: &dyn Store) -> Result<usize, RunError> {
    let mut deleted = 0;
    for name in graph.topology.names() {
        let node = graph.topology.find(name.as_str()).map(|node| &graph.nodes[node.position()]);
        if !node.and_then(|node| node.cache.as_ref()).is_some_and(NodeCache::is_stored) {
            continue;
        }
        let failed = |error: StoreError| RunError::Cache { node: name.clone(), source: error.into() };
        let namespace = namespace(&graph.name, name).map_err(failed)?;
        loop {
            let search = Search { limit: PAGE, ..Search::within(&namespace) };
            let found = store.search(search).await.map_err(failed)?;
            if found.is_empty() {
                break;
            }
            deleted += found.len();
            let delete = |key| Operation::Delete { namespace: namespace.clone(), key };
            let deletes = found.into_iter().map(|found| delete(found.item.key)).collect();
            let _done: Vec<Answer> = store.batch(deletes).await.map_err(failed)?;
        }
    }
    Ok(deleted)
}
