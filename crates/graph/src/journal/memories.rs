//! Subgraphs of [`Persistence::PerNode`](crate::node::Persistence::PerNode), as they were at a checkpoint of their caller.
//!
//! The thread of such a subgraph is a tree, like any other. Each checkpoint of its caller references a
//! checkpoint of the subgraph, so that a fork of the caller starts with the memory at that time:
//!
//! ```text
//! caller   1 ── 2 ── 3 {sub: 4} ── 4 {sub: 8}
//!                     └── 5 {sub: 4} ── 6 {sub: 12}
//! sub      1 ── … ── 4 ── 5 ── … ── 8
//!                    └── 9 ── … ── 12
//! ```
//!
//! Start at [`Memories`] and [`found`].

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Deserialize;
use serde_json::{Map, Value};
use superstep_checkpoint::{
    AppliedTask, CheckpointError, CheckpointMeta, Segment, Source,
    internal::own::{BOUND, EDITED, MEMORIES, SETTLED, TASK},
};
use superstep_engine::{NodeIndex, Topology};

use crate::{CheckpointId, Checkpointer, History, ThreadId};

// The caller names them: if each checkpoint of the subgraph named its calling task instead, finding it would need the
// caller's whole path, which a prune cuts. An external update of a memory names the caller's checkpoint, because it
// changes no checkpoint of the caller; a prune moves these to the checkpoints that it retains.
/// The checkpoints of subgraphs, by the last segment of their threads.
pub(crate) type Bound = BTreeMap<String, CheckpointId>;

/// A call of the current superstep.
pub(crate) struct MemoryCall {
    /// The last segment of the subgraph's thread.
    pub(crate) segment: Segment,
    /// The slot of the task.
    slot: u32,
    /// The task as its inputs name it, see [`caller`].
    pub(crate) task: (u32, CheckpointId),
    /// The position after the call; `None` if the node did not wait for its end.
    at: Option<CheckpointId>,
}

/// See [`Memories::named`].
pub(crate) fn memory_segment(bound: &Bound, task: &Segment, topology: &Topology, node: NodeIndex) -> Segment {
    let names = [&task.node, topology.name(node)].into_iter().chain(topology.former_names(node));
    let mut segments = names.map(|name| Segment { node: name.clone(), task: None, key: task.key.clone() });
    let known = segments.find(|segment| bound.contains_key(&segment.to_string()));
    known.unwrap_or_else(|| Segment { task: None, ..task.clone() })
}

/// The subgraphs called by a run's tasks.
#[derive(Default)]
pub(crate) struct Memories(Mutex<Book>);

#[derive(Default)]
struct Book {
    /// The positions at the start of the current superstep.
    at: Bound,
    /// The positions after the calls of tasks that had finished before the run.
    left: Bound,
    /// The calls of the current superstep, by the last segment of the subgraph's thread.
    calls: BTreeMap<String, MemoryCall>,
    /// The checkpoint of the caller from which the run continues, and the one that it forks, or itself;
    /// `None` on a new thread.
    stood: Option<(CheckpointId, CheckpointId)>,
}

impl Memories {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves to a checkpoint of the caller. `left` has the subgraphs that its finished tasks called.
    pub(crate) fn set_current(&self, meta: &CheckpointMeta, left: Bound) {
        let stood = Some((meta.id, since(meta)));
        *self.book() = Book { at: bound(meta), left, calls: BTreeMap::new(), stood };
    }

    /// Begins a call by the task in a slot. Returns the known position of the subgraph.
    pub(crate) fn begin(&self, segment: &Segment, slot: u32, task: (u32, CheckpointId)) -> SubgraphPosition {
        let mut book = self.book();
        let (here, since) = book.stood.unwrap_or((CheckpointId(0), CheckpointId(0)));
        let name = segment.to_string();
        let bound = book.at.get(&name).copied();
        book.calls.insert(name, MemoryCall { segment: segment.clone(), slot, task, at: None });
        SubgraphPosition { bound, here, since }
    }

    /// Returns the last segment of the subgraph's thread for a call by this task: under a former name of its node, if the
    /// subgraph has a position under that.
    pub(crate) fn named(&self, task: &Segment, topology: &Topology, node: NodeIndex) -> Segment {
        memory_segment(&self.book().at, task, topology, node)
    }

    /// Records the position of a subgraph after a call.
    pub(crate) fn leave(&self, segment: &Segment, at: CheckpointId) {
        if let Some(call) = self.book().calls.get_mut(&segment.to_string()) {
            call.at = Some(at);
        }
    }

    /// Adds the positions at the end of the superstep to the metadata of the next checkpoint. A node that is not the author of
    /// its task's update has failed, and leaves none. Returns the calls of the others whose position is unknown.
    pub(crate) fn commit(
        &self,
        metadata: &mut Arc<Map<String, Value>>,
        applied: &[AppliedTask],
        topology: &Topology,
    ) -> Vec<MemoryCall> {
        let mut book = self.book();
        let Book { at, left, calls, .. } = &mut *book;
        // Appending an empty map has a cost.
        if !left.is_empty() {
            at.append(left);
        }
        let mut unknown = Vec::new();
        if !calls.is_empty() {
            for (name, call) in mem::take(calls) {
                let is_author = |task: &AppliedTask| {
                    task.slot == call.slot && topology.is_same(&task.node, &call.segment.node)
                };
                match call.at {
                    _ if !applied.iter().any(is_author) => {}
                    Some(position) => drop(at.insert(name, position)),
                    None => unknown.push(call),
                }
            }
        }
        if !at.is_empty() {
            add_memories(Arc::make_mut(metadata), at);
        }
        unknown
    }

    /// Adds the position of a subgraph that is found after [`commit`](Self::commit).
    pub(crate) fn add(&self, metadata: &mut Map<String, Value>, segment: &Segment, position: CheckpointId) {
        let mut book = self.book();
        book.at.insert(segment.to_string(), position);
        add_memories(metadata, &book.at);
    }
}

/// A subgraph's position in a checkpoint of the caller.
#[derive(Clone, Copy)]
pub(crate) struct SubgraphPosition {
    /// The checkpoint of the subgraph.
    pub(crate) bound: Option<CheckpointId>,
    /// The checkpoint of the caller.
    pub(crate) here: CheckpointId,
    /// The checkpoint that it forks, or itself.
    pub(crate) since: CheckpointId,
}

impl SubgraphPosition {
    pub(crate) fn of(meta: &CheckpointMeta, segment: &Segment) -> Self {
        let bound = bound(meta).get(&segment.to_string()).copied();
        Self { bound, here: meta.id, since: since(meta) }
    }
}

fn since(meta: &CheckpointMeta) -> CheckpointId {
    meta.parent.filter(|_| meta.source == Source::Fork).unwrap_or(meta.id)
}

/// Reads the positions stored in a checkpoint.
pub(crate) fn bound(meta: &CheckpointMeta) -> Bound {
    // Unreadable data was not written by this program.
    meta.metadata.get(MEMORIES).and_then(|stored| Bound::deserialize(stored).ok()).unwrap_or_default()
}

/// Adds the positions of subgraphs to the metadata.
pub(crate) fn add_memories(metadata: &mut Map<String, Value>, bound: &Bound) {
    if !bound.is_empty() {
        let bound = serde_json::to_value(bound).expect("numbers have a JSON form");
        metadata.insert(MEMORIES.to_owned(), bound);
    }
}

/// Returns the checkpoint of a subgraph at its first call by a task; `None` if the subgraph starts anew.
/// `head` is that of the subgraph's thread.
///
/// It includes later updates of the subgraph, if they were made on the branch of the caller's checkpoint.
pub(crate) async fn found(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
    head: CheckpointId,
    place: SubgraphPosition,
) -> Result<Option<CheckpointId>, CheckpointError> {
    let Some(at) = place.bound else { return unbound(checkpointer, thread, head, place.since).await };
    if head == at {
        return Ok(Some(at));
    }
    let updates = updates(checkpointer, thread).await?;
    let is_edit = |update: &CheckpointMeta| update.id > at && edited_at(update).is_some();
    let branch = match thread.parent().filter(|_| updates.iter().any(is_edit)) {
        Some((caller, _)) => {
            Branch::of(&checkpointer.history(&caller, History::default()).await?, place.here)
        }
        None => Branch::default(),
    };
    Ok(Some(latest(at, &updates, &branch)))
}

/// Returns the external updates of a subgraph.
async fn updates(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
) -> Result<Vec<CheckpointMeta>, CheckpointError> {
    let updates = History { source: Some(Source::Update), ..History::default() };
    checkpointer.history(thread, updates).await
}

/// Returns the last update after a position that is visible on a branch of the caller, or the position.
fn latest(mut at: CheckpointId, updates: &[CheckpointMeta], branch: &Branch) -> CheckpointId {
    let is_seen = |update: &CheckpointMeta| edited_at(update).is_none_or(|caller| branch.has(caller));
    while let Some(update) = updates.iter().find(|update| update.parent == Some(at) && is_seen(update)) {
        at = update.id;
    }
    at
}

/// Returns new metadata for the checkpoints of `history` that a prune retains without their path: the positions in them include
/// the updates of subgraphs that were made on that path.
pub(crate) async fn settle(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
    history: &[CheckpointMeta],
    retained: &BTreeSet<CheckpointId>,
) -> Result<BTreeMap<CheckpointId, Map<String, Value>>, CheckpointError> {
    let kept = history.iter().filter(|meta| retained.contains(&meta.id));
    let kept: Vec<_> = kept.map(|meta| (meta, bound(meta))).filter(|(_, bound)| !bound.is_empty()).collect();
    let names: BTreeSet<&String> = kept.iter().flat_map(|(_, bound)| bound.keys()).collect();
    let (mut edits, mut settled) = (BTreeMap::new(), BTreeMap::new());
    for name in names {
        let updates = updates(checkpointer, &thread.child(&Segment::parse(name))).await?;
        if updates.iter().any(|update| edited_at(update).is_some()) {
            edits.insert(name, updates);
        }
    }
    for (meta, positions) in &kept {
        let is_edited = positions.keys().any(|name| edits.contains_key(name));
        let branch = if is_edited { Branch::of(history, meta.id) } else { Branch::default() };
        if branch.is_within(retained) {
            continue;
        }
        let end = |(name, at): (&String, &CheckpointId)| {
            let updates = edits.get(name).map_or(&[][..], Vec::as_slice);
            (name.clone(), latest(*at, updates, &branch))
        };
        let mut metadata = Map::new();
        add_memories(&mut metadata, &positions.iter().map(end).collect());
        if meta.parent.is_some_and(|parent| !retained.contains(&parent)) {
            metadata.insert(SETTLED.to_owned(), true.into());
        }
        settled.insert(meta.id, metadata);
    }
    Ok(settled)
}

/// The checkpoints on the path to one of the caller's.
#[derive(Default)]
struct Branch {
    checkpoints: BTreeSet<CheckpointId>,
    /// The last checkpoint that an older program pruned; it is unknown which checkpoints up to it are on the path.
    pruned: Option<CheckpointId>,
}

impl Branch {
    /// Reads the branch of `here` from `history`, which is newest first.
    fn of(history: &[CheckpointMeta], here: CheckpointId) -> Self {
        let (mut checkpoints, mut next, mut is_settled) = (BTreeSet::new(), Some(here), false);
        for meta in history.iter().filter(|meta| meta.id <= here) {
            if next == Some(meta.id) {
                checkpoints.insert(meta.id);
                next = meta.parent;
                is_settled = meta.metadata.contains_key(SETTLED);
            }
        }
        Self { checkpoints, pruned: next.filter(|_| !is_settled) }
    }

    fn has(&self, checkpoint: CheckpointId) -> bool {
        self.checkpoints.contains(&checkpoint) || self.pruned.is_some_and(|pruned| checkpoint <= pruned)
    }

    /// Returns whether the whole path is retained.
    fn is_within(&self, retained: &BTreeSet<CheckpointId>) -> bool {
        self.pruned.is_none() && self.checkpoints.is_subset(retained)
    }
}

/// Returns the checkpoint of the caller at an external update of a subgraph; `None` if an older program made
/// it.
fn edited_at(update: &CheckpointMeta) -> Option<CheckpointId> {
    update.metadata.get(EDITED)?.as_u64().map(CheckpointId)
}

/// Returns the checkpoint for a caller's checkpoint without a reference: the subgraph has not been called on
/// that branch, or only by an older program, which stored no reference. Then the last call before the
/// checkpoint counts.
async fn unbound(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
    head: CheckpointId,
    at: CheckpointId,
) -> Result<Option<CheckpointId>, CheckpointError> {
    let inputs = History { source: Some(Source::Input), ..History::default() };
    let inputs = checkpointer.history(thread, inputs).await?;
    let is_old = |input: &CheckpointMeta| {
        !input.metadata.contains_key(BOUND) && caller(input).is_none_or(|(_, called)| called < at)
    };
    let Some(last) = inputs.iter().position(is_old) else { return Ok(None) };
    let Some(next) = last.checked_sub(1) else { return Ok(Some(head)) };
    let before = CheckpointId(inputs[next].id.0 - 1);
    Ok(Some(before.max(inputs[last].id)))
}

/// Returns the task of an accepted input: its slot, and the checkpoint of its origin.
pub(crate) fn caller(input: &CheckpointMeta) -> Option<(u32, CheckpointId)> {
    Segment::parse(input.metadata.get(TASK)?.as_str()?).task
}

/// Returns the position of a subgraph after the call of this task; `None` if its last call was another's.
pub(crate) async fn after_call(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
    task: (u32, CheckpointId),
) -> Result<Option<CheckpointId>, CheckpointError> {
    let called = last_input(checkpointer, thread).await?.and_then(|input| caller(&input));
    if called != Some(task) {
        return Ok(None);
    }
    Ok(head(checkpointer, thread).await?.map(|head| head.id))
}

/// Returns the newest input of a thread.
pub(crate) async fn last_input(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
) -> Result<Option<CheckpointMeta>, CheckpointError> {
    let range = History { source: Some(Source::Input), limit: Some(1), ..History::default() };
    Ok(checkpointer.history(thread, range).await?.pop())
}

/// Returns the head of a thread.
pub(crate) async fn head(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
) -> Result<Option<CheckpointMeta>, CheckpointError> {
    let range = History { limit: Some(1), ..History::default() };
    Ok(checkpointer.history(thread, range).await?.pop())
}
