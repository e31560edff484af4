//! Threads in the memory of this process.
//!
//! Start at [`MemoryCheckpointer`].

mod thread;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use dashmap::{
    DashMap,
    mapref::one::{Ref, RefMut},
};
use futures::future::BoxFuture;
use superstep_state::RawJson;

use self::thread::{CheckpointPath, Thread};
use crate::{
    CheckpointError, CheckpointId, CheckpointMeta, Checkpointer, Commit, HeadState, History, Lease, Loaded,
    LoadedHead, Prune, TaskKey, TaskRecord, ThreadId, checkpointer::leftovers,
};

/// A checkpointer in memory; its threads end with the process.
///
/// In release builds it stores updates and snapshots as typed values, and encodes them when a replay or a
/// copy asks; see [`keeping_values`](Self::keeping_values).
///
/// The cost of a commit does not depend on the length of the thread: it appends the given data. Every method
/// does its work when it is called; the future it returns is ready.
///
/// # Example
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use superstep_graph::{Checkpointer, MemoryCheckpointer};
///
/// let store = MemoryCheckpointer::new();
/// let lease = store.lease(&"chat".into()).await?;
/// assert!(store.lease(&"chat".into()).await.is_err());
/// drop(lease);
/// assert!(store.lease(&"chat".into()).await.is_ok());
/// # Ok::<(), superstep_graph::checkpoint::CheckpointError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MemoryCheckpointer {
    keeps_values: bool,
    /// By root.
    families: DashMap<ThreadId, ThreadGroup>,
    /// The number of the last deletion of each deleted thread, which no other thread shares.
    deleted: DashMap<ThreadId, u64>,
    deletions: AtomicU64,
    leased: Arc<Leased>,
}

impl MemoryCheckpointer {
    /// Creates a store without threads.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether updates and snapshots are stored as typed values, or encoded as a database stores them. The default is
    /// typed values in release builds and encoded ones in debug builds, so that tests find values that a database refuses.
    ///
    /// A typed value must not be shared with code that changes it: a later load has the changed value. A release build
    /// retains values that have no JSON, such as NaN; a replay or an export of the thread is then an error, which names the
    /// channel.
    #[must_use]
    pub fn keeping_values(mut self, keeps_values: bool) -> Self {
        self.keeps_values = keeps_values;
        self
    }
}

impl Default for MemoryCheckpointer {
    fn default() -> Self {
        Self {
            keeps_values: !cfg!(debug_assertions),
            families: DashMap::new(),
            deleted: DashMap::new(),
            deletions: AtomicU64::new(0),
            leased: Arc::default(),
        }
    }
}

impl Checkpointer for MemoryCheckpointer {
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        let lease = if self.leased.lock().insert(thread.clone()) {
            Ok(Lease::new(LeaseGuard { leased: self.leased.clone(), thread: thread.clone() }))
        } else {
            Err(CheckpointError::Busy { thread: thread.clone() })
        };
        Box::pin(ready(lease))
    }

    fn has_writer(&self, thread: &ThreadId) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let has_writer = self.leased.lock().contains(thread);
        Box::pin(ready(Ok(has_writer)))
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        let path = self.look(thread, |stored| stored.path(at)).flatten();
        Box::pin(ready(Ok(path.map(CheckpointPath::read))))
    }

    fn read_commit(
        &self,
        thread: &ThreadId,
        at: CheckpointId,
    ) -> BoxFuture<'_, Result<Option<Commit>, CheckpointError>> {
        Box::pin(ready(Ok(self.look(thread, |stored| stored.commit(at)).flatten())))
    }

    fn load_head(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<LoadedHead>, CheckpointError>> {
        let found = self.look(thread, |stored| match stored.head_state() {
            Some(state) => Some((stored.tip()?, Some(state))),
            None => Some((stored.path(None)?, None)),
        });
        Box::pin(ready(Ok(found.flatten().map(|(path, state)| LoadedHead { loaded: path.read(), state }))))
    }

    fn remember(&self, thread: &ThreadId, head: CheckpointId, state: HeadState) {
        if let Some(mut family) = self.change(thread) {
            family.thread_mut(thread).remember(head, state);
        }
    }

    fn keeps_values(&self) -> bool {
        self.keeps_values
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let recorded = match self.change(&task.thread) {
            Some(mut family) => family.thread_mut(&task.thread).record(task, record),
            None => Err(CheckpointError::conflict(&task.thread, Some(task.checkpoint))),
        };
        Box::pin(ready(recorded))
    }

    fn add_effects(
        &self,
        task: &TaskKey,
        results: BTreeMap<String, RawJson>,
    ) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        let added = match self.change(&task.thread) {
            Some(mut family) => family.thread_mut(&task.thread).add_effects(task, results),
            None => Err(CheckpointError::conflict(&task.thread, Some(task.checkpoint))),
        };
        Box::pin(ready(added))
    }

    /// Returns a counter, so that equal runs have equal histories.
    fn nonce(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Option<String>, CheckpointError>> {
        let nonce = self.deleted.get(thread).map(|deleted| deleted.to_string());
        Box::pin(ready(Ok(nonce)))
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        // Shared from here on, because a commit is large and closures and futures move what they have.
        let next = Arc::new(next);
        Box::pin(ready(self.write(thread, expected, |stored| stored.push(thread, next))))
    }

    fn commit_all(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Vec<Commit>,
    ) -> BoxFuture<'_, Result<(), CheckpointError>> {
        if next.is_empty() {
            return Box::pin(ready(Ok(())));
        }
        Box::pin(ready(self.write(thread, expected, |stored| stored.push_all(thread, next))))
    }

    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        let found = self.look(thread, |stored| stored.history(&range));
        Box::pin(ready(Ok(found.unwrap_or_default())))
    }

    fn has_input(&self, thread: &ThreadId, id: &str) -> BoxFuture<'_, Result<bool, CheckpointError>> {
        Box::pin(ready(Ok(self.look(thread, |stored| stored.has_input(id)).unwrap_or_default())))
    }

    fn count(&self, thread: &ThreadId) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        let count = self.look(thread, |stored| stored.count());
        Box::pin(ready(Ok(count.unwrap_or_default())))
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<(ThreadId, CheckpointMeta)>, CheckpointError>> {
        let mut heads: Vec<_> = self
            .families
            .iter()
            .filter_map(|family| Some((family.key().clone(), family.root.meta(family.root.head()?)?)))
            .collect();
        heads.sort_by(|(a, head_a), (b, head_b)| (head_b.created_ms, a).cmp(&(head_a.created_ms, b)));
        Box::pin(ready(Ok(heads)))
    }

    fn children(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        let under = |family: Ref<'_, ThreadId, ThreadGroup>| {
            family.stored_children().filter(|child| child.is_under(thread)).cloned().collect()
        };
        Box::pin(ready(Ok(self.families.get(&thread.root()).map_or_else(Vec::new, under))))
    }

    fn orphans(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, CheckpointError>> {
        let orphaned = self.families.iter().filter(|family| !family.leftovers().is_empty());
        let mut orphans: Vec<_> = orphaned.map(|family| family.key().clone()).collect();
        orphans.sort_unstable();
        Box::pin(ready(Ok(orphans)))
    }

    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        if !thread.is_child() {
            if self.families.remove(thread).is_some() {
                let deletion = self.deletions.fetch_add(1, Ordering::Relaxed) + 1;
                self.deleted.insert(thread.clone(), deletion);
            }
        } else if let Some(mut family) = self.change(thread) {
            family.children.retain(|child, _| child != thread && !child.is_under(thread));
        }
        Box::pin(ready(Ok(())))
    }

    fn copy(&self, from: &ThreadId, to: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        // Two families may be in the same shard of the map, so that only one of them can be locked at a time.
        let found = self.families.get(from).map(|family| family.clone()).filter(|family| !family.is_empty());
        let copied = match found {
            None => Err(CheckpointError::NoThread { thread: from.clone() }),
            Some(_) if to.is_child() => Err(CheckpointError::NoThread { thread: to.root() }),
            Some(ThreadGroup { root, children }) => {
                let mut family = self.families.entry(to.clone()).or_default();
                if family.is_empty() {
                    let moved = |(child, stored): (ThreadId, Thread)| (child.moved(from, to), stored);
                    *family = ThreadGroup { root, children: children.into_iter().map(moved).collect() };
                    Ok(())
                } else {
                    Err(CheckpointError::ThreadExists { thread: to.clone() })
                }
            }
        };
        Box::pin(ready(copied))
    }

    fn prune(
        &self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> BoxFuture<'_, Result<usize, CheckpointError>> {
        let pruned = match self.change(thread) {
            Some(mut family) => family.prune(thread, head, prune),
            None => Err(CheckpointError::conflict(thread, Some(head))),
        };
        Box::pin(ready(pruned))
    }
}

impl MemoryCheckpointer {
    fn look<T>(&self, thread: &ThreadId, look: impl FnOnce(&Thread) -> T) -> Option<T> {
        if thread.is_child() {
            self.families.get(&thread.root())?.children.get(thread).map(look)
        } else {
            self.families.get(thread).map(|family| look(&family.root))
        }
    }

    /// Performs a write after the head `expected`; creates the thread if no head is expected.
    fn write<T>(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        write: impl FnOnce(&mut Thread) -> Result<T, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        match (self.change(thread), expected) {
            (Some(mut family), _) => write(family.at_head(thread, expected)?),
            (None, Some(_)) => Err(CheckpointError::conflict(thread, expected)),
            (None, None) => {
                let mut family = self.families.entry(thread.root()).or_default();
                let written = family.at_head(thread, expected).and_then(write);
                drop(family);
                self.families.remove_if(&thread.root(), |_, family| family.is_empty());
                written
            }
        }
    }

    fn change(&self, thread: &ThreadId) -> Option<RefMut<'_, ThreadId, ThreadGroup>> {
        // Most threads are roots. The search for a separator in the name costs more than a failed look-up.
        let family = self.families.get_mut(thread);
        if family.is_none() && thread.is_child() { self.families.get_mut(&thread.root()) } else { family }
    }
}

/// A thread with the threads of its subgraphs.
#[derive(Clone, Debug, Default)]
struct ThreadGroup {
    root: Thread,
    children: BTreeMap<ThreadId, Thread>,
}

impl ThreadGroup {
    fn thread_mut(&mut self, thread: &ThreadId) -> &mut Thread {
        if thread.is_child() { self.children.entry(thread.clone()).or_default() } else { &mut self.root }
    }

    /// Returns a thread, if its head is the expected one.
    fn at_head(
        &mut self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
    ) -> Result<&mut Thread, CheckpointError> {
        let children = if expected.is_none() && !thread.is_child() { self.leftovers() } else { Vec::new() };
        let stored = self.thread_mut(thread);
        match stored.head() == expected {
            true if children.is_empty() => Ok(stored),
            true => Err(CheckpointError::Leftovers { thread: thread.clone(), children }),
            false => Err(CheckpointError::conflict(thread, expected)),
        }
    }

    /// Returns the threads of subgraphs with checkpoints.
    fn stored_children(&self) -> impl Iterator<Item = &ThreadId> {
        self.children.iter().filter(|(_, child)| child.head().is_some()).map(|(child, _)| child)
    }

    /// Returns what is stored below a root without checkpoints.
    fn leftovers(&self) -> Vec<ThreadId> {
        match self.root.head() {
            Some(_) => Vec::new(),
            None => leftovers(self.stored_children().cloned().collect()),
        }
    }

    fn prune(
        &mut self,
        thread: &ThreadId,
        head: CheckpointId,
        prune: Prune,
    ) -> Result<usize, CheckpointError> {
        let stored = self.at_head(thread, Some(head))?;
        let callers = prune.callers.clone();
        let pruned = stored.prune(thread, head, prune)?;
        let kept = stored.ids();
        self.children.retain(|child, _| {
            let caller = child.caller_under(thread);
            caller.is_none_or(|checkpoint| kept.contains(&checkpoint) || callers.contains(&checkpoint))
        });
        Ok(pruned)
    }

    fn is_empty(&self) -> bool {
        self.root.head().is_none() && self.children.values().all(|child| child.head().is_none())
    }
}

/// The threads with a writer.
#[derive(Debug, Default)]
struct Leased(Mutex<BTreeSet<ThreadId>>);

impl Leased {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<ThreadId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct LeaseGuard {
    leased: Arc<Leased>,
    thread: ThreadId,
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.leased.lock().remove(&self.thread);
    }
}
