//! Cached results of nodes, in the graph and in its store.
//!
//! Start at [`fetch_cached`].

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
    conflicts::accepted,
    encode::encode,
    execution::Execution,
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
// A cache that cannot be read or written ends the run: working silently without it would repeat what was too slow or
// too expensive to repeat.
struct Storeless;

/// Looks up the cached result of a task. Tasks that waited for an answer or an update, and error handlers, are never cached:
/// the key includes neither those nor the failure.
pub(super) fn look_up<S: State>(
    exec: &Execution<S>,
    task: Task,
    cache: &NodeCache<S>,
    item: Option<Arc<str>>,
) -> Result<(Option<Written<S>>, Lookup), Panicked> {
    // The answer is not part of the key, so that one person's approval would be reused on another person's
    // thread. An external update of a called graph marks the calling tasks as ones that waited, in their records,
    // because a task that was stopped may have none.
    let slot = task.id.slot;
    if exec.superstep.has_waited(&exec.cx, task.id) || exec.superstep.failure_of(slot).is_some() {
        return Ok((None, Lookup::None));
    }
    match cache.find(&exec.state, item, exec.cx.clock.now_ms())? {
        (None, Lookup::Miss(_)) if exec.superstep.fetched.contains_key(&slot) => {
            Ok((exec.superstep.fetched.get(&slot).cloned(), Lookup::Hit))
        }
        found => Ok(found),
    }
}

/// Returns whether the result of a task may be in the store.
pub(super) fn is_cached_in_store<S: State>(exec: &Execution<S>, task: Task) -> bool {
    let cache = exec.graph.nodes[task.node.position()].cache.as_ref();
    cache.is_some_and(NodeCache::is_stored) && exec.observer.reads_cache()
}

/// Takes results of tasks that are about to start from the store.
///
/// # Errors
/// [`RunError::Cache`].
pub(super) async fn fetch_cached<S: State>(
    exec: &mut Execution<S>,
    tasks: Vec<Task>,
) -> Result<(), RunError> {
    let mut wanted = Vec::new();
    for task in tasks {
        let Some(cache) = &exec.graph.nodes[task.node.position()].cache else { continue };
        let item = exec.superstep.items.get(&task.id.slot).map(|item| Arc::from(item.as_str()));
        // A panic of the policy is reported when the task starts.
        if let Ok((None, Lookup::Miss(missing))) = look_up(exec, task, cache, item) {
            wanted.push((task, missing));
        }
    }
    let Some((first, _)) = wanted.first() else { return Ok(()) };
    let store = cache_store(exec, first.node)?;
    let get = |(task, missing): &(Task, Box<Missing>)| {
        let (namespace, key) = address(exec, task.node, &missing.key)?;
        Ok(Operation::Get { namespace, key, refresh: None })
    };
    let gets = wanted.iter().map(get).collect::<Result<_, RunError>>()?;
    let answers = store.batch(gets).await.map_err(|error| cache_error(exec, first.node, error))?;
    for ((task, missing), answer) in wanted.into_iter().zip(answers) {
        let Some(Some(item)) = answer.into_item() else { continue };
        if let Some((written, until_ms)) = read_cached(exec, task.node, &missing.key, item.value) {
            exec.superstep.fetched.insert(task.id.slot, written.clone());
            if let Some(cache) = &exec.graph.nodes[task.node.position()].cache {
                cache.keep(*missing, written, until_ms);
            }
        }
    }
    Ok(())
}

/// Retains an accepted result in the cache of its node; [`store_cached`] stores it.
pub(super) fn keep_cached<S: State>(
    exec: &mut Execution<S>,
    node: NodeIndex,
    missing: Missing,
    written: Written<S>,
) {
    let graph = exec.graph.clone();
    let Some(cache) = &graph.nodes[node.position()].cache else { return };
    let until_ms = cache.until_ms(exec.cx.clock.now_ms());
    if cache.is_stored()
        && let Some(value) = cached(exec, node, &missing.key, written.clone(), until_ms)
        && let Ok((namespace, key)) = address(exec, node, &missing.key)
    {
        let ttl = cache.ttl().map_or(Ttl::Never, Ttl::After);
        let options = PutOptions::new().ttl(ttl).index(Index::Nothing);
        exec.superstep.cache_puts.push((node, Operation::Put { namespace, key, value, options }));
    }
    cache.keep(missing, written, until_ms);
}

/// Caches the accepted results of a superstep that the run does not complete: another run does not execute its tasks again.
pub(super) async fn cache_finished<S: State>(exec: &mut Execution<S>) -> Result<(), RunError> {
    if exec.superstep.cache_inserts.is_empty() {
        return Ok(());
    }
    let accepted = accepted(&exec.graph.topology, &exec.state, &exec.superstep);
    for (slot, node, missing, written) in mem::take(&mut exec.superstep.cache_inserts) {
        if accepted.contains_key(&slot) {
            keep_cached(exec, node, missing, written);
        }
    }
    store_cached(exec).await
}

/// Stores the retained results.
///
/// # Errors
/// [`RunError::Cache`]. The superstep is committed.
pub(super) async fn store_cached<S: State>(exec: &mut Execution<S>) -> Result<(), RunError> {
    let (nodes, puts): (Vec<_>, Vec<_>) = mem::take(&mut exec.superstep.cache_puts).into_iter().unzip();
    let Some(node) = nodes.first() else { return Ok(()) };
    let stored = cache_store(exec, *node)?.batch(puts).await;
    stored.map(drop).map_err(|error| cache_error(exec, *node, error))
}

/// Returns the stored form of a result; `None` for one that would not be the same when it is read.
fn cached<S: State>(
    exec: &mut Execution<S>,
    node: NodeIndex,
    key: &Key,
    written: Written<S>,
    until_ms: Option<i64>,
) -> Option<Value> {
    let Written { update, goto, recorded_targets } = written;
    let channels = exec.state.channels();
    if exec.state.written(&update).iter().any(|position| channels[position].untracked) {
        return None;
    }
    let name = exec.graph.topology.name(node);
    let update = encode(&exec.state, &update, 0, name, &mut exec.scratch).ok()?;
    let targets = exec.graph.command_targets(node, goto, recorded_targets).ok()?;
    let targets = named(&exec.graph.topology, &targets.ends, &mut targets.items.into_iter());
    serde_json::to_value(StoredResult { of: hashed(&exec.graph, node, key), update, targets, until_ms }).ok()
}

/// Reads a stored result; `None` for an expired one, for one of another key, and for one that does not fit the current
/// state or graph.
fn read_cached<S: State>(
    exec: &Execution<S>,
    node: NodeIndex,
    key: &Key,
    value: Value,
) -> Option<(Written<S>, Option<i64>)> {
    let StoredResult { of, update: stored, targets, until_ms } = serde_json::from_value(value).ok()?;
    let is_over = until_ms.is_some_and(|until_ms| exec.cx.clock.now_ms() >= until_ms);
    if is_over || of != hashed(&exec.graph, node, key) {
        return None;
    }
    let mut decoder = ThreadDecoder::new((*exec.graph.initial).clone());
    let update = decoder.record(0, &stored).ok()?;
    if !decoder.unknown.is_empty() {
        return None;
    }
    let (targets, lost): (Targets, _) = recorded_targets(&exec.graph.topology, targets);
    let recorded_targets = (!targets.ends.is_empty()).then(|| Box::new(targets));
    lost.is_empty().then(|| (Written { recorded_targets, ..Written::update(update) }, until_ms))
}

fn cache_store<S: State>(exec: &Execution<S>, node: NodeIndex) -> Result<&dyn Store, RunError> {
    exec.cx.scope.store.as_deref().ok_or_else(|| cache_error(exec, node, Storeless))
}

fn cache_error<S: State>(
    exec: &Execution<S>,
    node: NodeIndex,
    error: impl Error + Send + Sync + 'static,
) -> RunError {
    RunError::Cache { node: exec.graph.topology.name(node).clone(), source: Box::new(error) }
}

/// Returns what the hash in the key of a result is of.
fn hashed<S: State>(
    graph: &Inner<S>,
    node: NodeIndex,
    (key, item): &Key,
) -> (String, String, String, Option<String>) {
    let name = graph.topology.name(node).to_string();
    (graph.name.clone(), name, key.clone(), item.as_deref().map(str::to_owned))
}

/// Returns the namespace and the key of a result.
fn address<S: State>(
    exec: &Execution<S>,
    node: NodeIndex,
    key: &Key,
) -> Result<(Namespace, String), RunError> {
    let of = serde_json::to_string(&hashed(&exec.graph, node, key)).expect("texts can be written");
    let key = blake3::hash(of.as_bytes()).to_hex().to_string();
    let namespace = namespace(&exec.graph.name, exec.graph.topology.name(node));
    Ok((namespace.map_err(|error| cache_error(exec, node, error))?, key))
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
