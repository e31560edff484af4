//! Threads in the memory of this process.
//!
//! Start at [`MemoryCheckpointer`].

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dashmap::{
    DashMap,
    mapref::one::{Ref, RefMut},
};
use futures::future::BoxFuture;

use crate::{
    AppliedTask, ChannelValue, CheckpointError, CheckpointId, CheckpointMeta, Checkpointer, Commit, History,
    Lease, Loaded, Source, TaskKey, TaskRecord, ThreadId, namespace::SEPARATOR,
};

/// Keeps threads in memory; they end with the process.
///
/// A commit costs the same at any length of the thread: it moves what it is given behind the thread's last checkpoint.
/// Every method does its work when it is called; the future it returns is ready.
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
/// # Ok::<(), superstep_graph::CheckpointError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct MemoryCheckpointer {
    /// By root.
    families: DashMap<ThreadId, Family>,
    leased: Arc<Leased>,
}

impl MemoryCheckpointer {
    /// A store without threads.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Checkpointer for MemoryCheckpointer {
    fn lease(&self, thread: &ThreadId) -> BoxFuture<'_, Result<Lease, CheckpointError>> {
        let lease = if self.leased.lock().insert(thread.clone()) {
            Ok(Lease::new(Held { leased: self.leased.clone(), thread: thread.clone() }))
        } else {
            Err(CheckpointError::Busy { thread: thread.clone() })
        };
        Box::pin(ready(lease))
    }

    fn load(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> BoxFuture<'_, Result<Option<Loaded>, CheckpointError>> {
        let way = self.look(thread, |stored| stored.way(at)).flatten();
        Box::pin(ready(Ok(way.map(Way::read))))
    }

    fn record(&self, task: &TaskKey, record: TaskRecord) -> BoxFuture<'_, Result<(), CheckpointError>> {
        let recorded = match self.change(&task.thread) {
            Some(mut family) => family.thread_mut(&task.thread).record(task, record),
            None => Err(conflict(&task.thread, Some(task.checkpoint))),
        };
        Box::pin(ready(recorded))
    }

    fn commit(
        &self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> BoxFuture<'_, Result<CheckpointId, CheckpointError>> {
        let committed = match (self.change(thread), expected) {
            (Some(mut family), _) => family.commit(thread, expected, next),
            (None, Some(_)) => Err(conflict(thread, expected)),
            (None, None) => {
                let mut family = self.families.entry(thread.root()).or_default();
                let committed = family.commit(thread, expected, next);
                drop(family);
                self.families.remove_if(&thread.root(), |_, family| family.is_empty());
                committed
            }
        };
        Box::pin(ready(committed))
    }

    fn history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> BoxFuture<'_, Result<Vec<CheckpointMeta>, CheckpointError>> {
        let found = self.look(thread, |stored| stored.history(range));
        Box::pin(ready(Ok(found.unwrap_or_default())))
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
        let under = |family: Ref<'_, ThreadId, Family>| {
            let stored = family.children.iter().filter(|(_, child)| child.head().is_some());
            stored.map(|(child, _)| child).filter(|child| is_under(child, thread)).cloned().collect()
        };
        Box::pin(ready(Ok(self.families.get(&thread.root()).map_or_else(Vec::new, under))))
    }

    fn delete(&self, thread: &ThreadId) -> BoxFuture<'_, Result<(), CheckpointError>> {
        if !thread.is_child() {
            self.families.remove(thread);
        } else if let Some(mut family) = self.change(thread) {
            family.children.retain(|child, _| child != thread && !is_under(child, thread));
        }
        Box::pin(ready(Ok(())))
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

    fn change(&self, thread: &ThreadId) -> Option<RefMut<'_, ThreadId, Family>> {
        if thread.is_child() { self.families.get_mut(&thread.root()) } else { self.families.get_mut(thread) }
    }
}

/// Whether a thread is of a subgraph under another.
fn is_under(child: &ThreadId, thread: &ThreadId) -> bool {
    let rest = child.as_str().strip_prefix(thread.as_str());
    rest.is_some_and(|rest| rest.starts_with(SEPARATOR))
}

/// A thread and those of its subgraphs.
#[derive(Debug, Default)]
struct Family {
    root: Thread,
    children: BTreeMap<ThreadId, Thread>,
}

impl Family {
    fn thread_mut(&mut self, thread: &ThreadId) -> &mut Thread {
        if thread.is_child() { self.children.entry(thread.clone()).or_default() } else { &mut self.root }
    }

    fn commit(
        &mut self,
        thread: &ThreadId,
        expected: Option<CheckpointId>,
        next: Commit,
    ) -> Result<CheckpointId, CheckpointError> {
        let stored = self.thread_mut(thread);
        if stored.head() != expected {
            return Err(conflict(thread, expected));
        }
        stored.push(thread, next)
    }

    fn is_empty(&self) -> bool {
        self.root.head().is_none() && self.children.values().all(|child| child.head().is_none())
    }
}

/// The checkpoints of a thread; the first has the id 1.
#[derive(Debug, Default)]
struct Thread {
    checkpoints: Vec<Stored>,
}

/// A checkpoint, and what came to be known of its tasks.
#[derive(Debug)]
struct Stored {
    commit: Arc<Commit>,
    /// By slot. They grow while the checkpoint is the head.
    records: Vec<(u32, TaskRecord)>,
    /// The newest checkpoint of a superstep that folded its tasks in.
    applied_by: Option<CheckpointId>,
}

impl Thread {
    fn record(&mut self, task: &TaskKey, record: TaskRecord) -> Result<(), CheckpointError> {
        if self.head() != Some(task.checkpoint) {
            return Err(conflict(&task.thread, Some(task.checkpoint)));
        }
        let head = self.checkpoints.last_mut().expect("a thread with a head has a checkpoint");
        put(&mut head.records, task.slot, record);
        Ok(())
    }

    fn head(&self) -> Option<CheckpointId> {
        (!self.checkpoints.is_empty()).then_some(CheckpointId(self.checkpoints.len() as u64))
    }

    fn get(&self, id: CheckpointId) -> Option<&Stored> {
        self.checkpoints.get(position(id)?)
    }

    fn push(&mut self, thread: &ThreadId, mut next: Commit) -> Result<CheckpointId, CheckpointError> {
        let id = CheckpointId(self.checkpoints.len() as u64 + 1);
        if let Some(parent) = next.parent
            && self.get(parent).is_none()
        {
            return Err(CheckpointError::no_parent(thread, parent));
        }
        if let Some(missing) =
            next.applied.iter().find(|task| task.recorded && !self.is_recorded(&next, task))
        {
            return Err(CheckpointError::not_recorded(thread, next.parent, missing.slot));
        }
        let mut records = Vec::with_capacity(next.records.len());
        for (slot, record) in std::mem::take(&mut next.records) {
            put(&mut records, slot, record);
        }
        if next.source == Source::Loop
            && let Some(parent) = next.parent.and_then(position)
        {
            self.checkpoints[parent].applied_by = Some(id);
        }
        self.checkpoints.push(Stored { commit: Arc::new(next), records, applied_by: None });
        Ok(id)
    }

    fn is_recorded(&self, next: &Commit, task: &AppliedTask) -> bool {
        next.parent.and_then(|parent| self.get(parent)).is_some_and(|parent| {
            let found = parent.records.binary_search_by_key(&task.slot, |(slot, _)| *slot);
            found.is_ok_and(|at| matches!(parent.records[at].1, TaskRecord::Finished { .. }))
        })
    }

    fn meta(&self, id: CheckpointId) -> Option<CheckpointMeta> {
        let commit = &self.get(id)?.commit;
        Some(CheckpointMeta {
            id,
            parent: commit.parent,
            source: commit.source,
            control: commit.control.clone(),
            created_ms: commit.created_ms,
            metadata: commit.metadata.clone(),
        })
    }

    fn history(&self, range: History) -> Vec<CheckpointMeta> {
        let end = range.before.map_or(self.checkpoints.len(), |before| {
            usize::try_from(before.0.saturating_sub(1))
                .map_or(self.checkpoints.len(), |n| n.min(self.checkpoints.len()))
        });
        (1..=end as u64)
            .rev()
            .map(CheckpointId)
            .filter(|id| {
                range
                    .source
                    .is_none_or(|source| self.get(*id).is_some_and(|stored| stored.commit.source == source))
            })
            .take(range.limit.unwrap_or(usize::MAX))
            .filter_map(|id| self.meta(id))
            .collect()
    }

    /// What a load needs, without its values, so that they are copied after the lock on the thread is free again.
    fn way(&self, at: Option<CheckpointId>) -> Option<Way> {
        let head = self.head()?;
        let id = at.unwrap_or(head);
        let meta = self.meta(id)?;
        let stored = self.get(id)?;
        let mut commits = Vec::new();
        let mut next = Some(id);
        while let Some(step) = next.and_then(|id| self.get(id)) {
            commits.push(step.commit.clone());
            next = if step.commit.snapshot.is_some() { None } else { step.commit.parent };
        }
        let applied = stored.applied_by.and_then(|child| self.get(child)).map(|child| child.commit.clone());
        Some(Way { meta, head, commits, records: stored.records.clone(), applied })
    }
}

/// The way back from a checkpoint to its nearest snapshot.
struct Way {
    meta: CheckpointMeta,
    head: CheckpointId,
    /// Newest first; the last one has the snapshot, if there is any.
    commits: Vec<Arc<Commit>>,
    records: Vec<(u32, TaskRecord)>,
    /// The superstep that folded the checkpoint's own tasks in.
    applied: Option<Arc<Commit>>,
}

impl Way {
    fn read(self) -> Loaded {
        let snapshot: Option<Vec<ChannelValue>> =
            self.commits.last().and_then(|oldest| oldest.snapshot.clone());
        let commits = self
            .commits
            .iter()
            .rev()
            .skip(usize::from(snapshot.is_some()))
            .map(|commit| commit.applied.iter().map(|task| task.update.clone()).collect())
            .collect();
        let mut tasks = self.records;
        for task in self.applied.iter().flat_map(|child| &child.applied) {
            let known = tasks.binary_search_by_key(&task.slot, |(slot, _)| *slot);
            if !known.is_ok_and(|at| matches!(tasks[at].1, TaskRecord::Finished { .. })) {
                // The contract says that an update is a JSON text, so that there is nothing to lose here.
                let update = String::from_utf8_lossy(&task.update).into_owned();
                put(&mut tasks, task.slot, TaskRecord::Finished { update, targets: Vec::new() });
            }
        }
        Loaded { meta: self.meta, head: self.head, snapshot, commits, tasks }
    }
}

/// The threads that have a writer.
#[derive(Debug, Default)]
struct Leased(Mutex<BTreeSet<ThreadId>>);

impl Leased {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<ThreadId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Held {
    leased: Arc<Leased>,
    thread: ThreadId,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.leased.lock().remove(&self.thread);
    }
}

fn put(records: &mut Vec<(u32, TaskRecord)>, slot: u32, record: TaskRecord) {
    match records.binary_search_by_key(&slot, |(slot, _)| *slot) {
        Ok(at) => records[at].1 = record,
        Err(at) => records.insert(at, (slot, record)),
    }
}

fn position(id: CheckpointId) -> Option<usize> {
    usize::try_from(id.0).ok()?.checked_sub(1)
}

fn conflict(thread: &ThreadId, expected: Option<CheckpointId>) -> CheckpointError {
    CheckpointError::Conflict { thread: thread.clone(), expected }
}
