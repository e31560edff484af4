//! Updates of a thread by its callers.
//!
//! Start at [`update_states`].

use std::sync::Arc;

use superstep_checkpoint::{Commit, Source, internal::own::OUTSIDE};
use superstep_engine::{ChannelSet, END, NodeName, START, Topology};

use crate::{
    CheckpointId, Checkpointer, RunError, RunOptions, State, Thread, ThreadId,
    compiled::graph::Inner,
    journal::memories::{add_memories, bound},
    run::{
        conflicts::set_back_refused,
        external_update::{As, AsNode, Change},
        restore::{Restored, left_by_slots, load, load_seeded, require},
    },
};

/// See [`Thread::bulk_update`]. The caller has the lease. `seed` is the
/// state that a subgraph began with.
pub(crate) async fn update_states<S: State>(
    graph: &Inner<S>,
    checkpointer: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    config: &RunOptions,
    supersteps: Vec<Vec<(S::Update, AsNode)>>,
    seed: Option<&S>,
) -> Result<CheckpointId, RunError> {
    if supersteps.is_empty() || supersteps.iter().any(Vec::is_empty) {
        return Err(RunError::NoUpdates { thread: thread.clone() });
    }
    let written = |updates: &Vec<(S::Update, AsNode)>| {
        let written = updates.iter().map(|(update, _)| graph.initial.written(update));
        written.fold(ChannelSet::EMPTY, ChannelSet::union)
    };
    let written = supersteps.iter().map(written).fold(ChannelSet::EMPTY, ChannelSet::union);
    let mut restored = match seed {
        Some(seed) => load_seeded(graph, seed, checkpointer, thread).await?,
        None => load(graph, checkpointer, thread, config.checkpoint, written).await?,
    };
    if restored.is_none() {
        require(&*graph.initial, written, None)?;
    }
    let head = restored.as_ref().map(|it| it.head);
    let mark = graph.mark(match &restored {
        Some(restored) => restored.meta.nonce().map(str::to_owned),
        None if thread.is_child() => None,
        None => checkpointer.nonce(thread).await?,
    });
    // The head's id stands for its tasks, which remain on this branch.
    let live = restored.as_ref().is_none_or(|it| it.meta.id == it.head);
    if let Some(Restored { meta, state, tasks, .. }) = restored.as_mut().filter(|_| live) {
        set_back_refused(&graph.topology, &meta.control, state, tasks);
    }
    let mut last_run = match &restored {
        Some(restored) => last_run(&graph.topology, checkpointer, thread, restored, live).await?,
        None => vec![START.into()],
    };
    let meta = restored.as_ref().map(|it| it.meta.clone());
    let mut memories = meta.as_ref().map(bound).unwrap_or_default();
    let mut config = config.clone();
    add_memories(&mut config.metadata, &memories);
    let mut parent = restored.as_ref().map(|it| it.meta.id);
    let before = restored.map(|Restored { meta, state, tasks, .. }| (meta, state, tasks));
    let mut change = Change::after(graph, before, live)?;
    let mut commits = Vec::with_capacity(supersteps.len());
    for updates in supersteps {
        let mut named = Vec::with_capacity(updates.len());
        for (update, node) in updates {
            named.push((update, find(graph, thread, node, &last_run)?));
        }
        last_run = named.iter().map(|(_, node)| node.name(graph)).collect();
        change.take_over(graph, thread, &named)?;
        // A replaced task leaves nothing in the memories of the graphs that it called.
        if let Some(meta) = meta.as_ref().filter(|_| live) {
            memories.extend(
                left_by_slots(&**checkpointer, thread, &graph.topology, meta, &change.ended(graph)).await?,
            );
            add_memories(&mut config.metadata, &memories);
        }
        change.fold_ended(graph)?;
        change.add(graph, named)?;
        let id = CheckpointId(head.map_or(0, |head| head.0) + commits.len() as u64 + 1);
        let (mut commit, next) = change.into_commit(graph, (parent, id), &config);
        mark.put(Arc::make_mut(&mut commit.metadata));
        commits.push(commit);
        change = next;
        parent = Some(id);
    }
    checkpointer.commit_all(thread, head, commits).await?;
    Ok(parent.expect("a chain of updates has at least one superstep"))
}

/// See [`Thread::fork`].
pub(crate) async fn fork<S: State>(
    graph: &Inner<S>,
    checkpointer: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    config: &RunOptions,
) -> Result<CheckpointId, RunError> {
    let _lease = checkpointer.lease(thread).await?;
    let restored = load(graph, checkpointer, thread, config.checkpoint, ChannelSet::EMPTY).await?;
    let restored = restored.ok_or_else(|| RunError::EmptyThread { thread: thread.clone() })?;
    let mut metadata = config.metadata.clone();
    add_memories(&mut metadata, &bound(&restored.meta));
    graph.mark(restored.meta.nonce().map(str::to_owned)).put(&mut metadata);
    let mut control = restored.meta.control;
    // Its tasks run afresh, except an input, which cannot run again.
    let is_input = |slot: u32| control.next.get(slot as usize).is_some_and(|node| node.as_str() == START);
    let tasks = restored.tasks.into_iter().filter(|task| is_input(task.slot));
    let records = tasks.map(|task| (task.slot, task.record)).collect();
    control.step += 1;
    let commit = Commit {
        parent: Some(restored.meta.id),
        source: Source::Fork,
        control,
        created_ms: config.clock.now_ms(),
        metadata: metadata.into(),
        applied: Vec::new(),
        snapshot: None,
        fingerprints: None,
        records,
    };
    Ok(checkpointer.commit(thread, Some(restored.head), commit).await?)
}

/// Returns the nodes that ran last before a checkpoint, in fold order; empty if that is not stored any more.
// Several nodes are an error of an update without a name, because the choice determines what runs next.
async fn last_run<S: State>(
    topology: &Topology,
    checkpointer: &Arc<dyn Checkpointer>,
    thread: &ThreadId,
    restored: &Restored<S>,
    live: bool,
) -> Result<Vec<NodeName>, RunError> {
    let meta = &restored.meta;
    let finished = restored.tasks.iter().filter(|task| live && task.update.is_some());
    let finished: Vec<_> = finished.map(|task| task.author(topology, &meta.control)).collect();
    if !finished.is_empty() {
        return Ok(finished);
    }
    let (mut meta, mut applied) = (meta.clone(), restored.applied.clone());
    loop {
        match (meta.source, meta.metadata.get(OUTSIDE)) {
            // A fork has the state of its parent.
            (Source::Fork, _) => applied.clear(),
            // The write of an external command has no author, but finished tasks were included.
            (Source::Update, Some(wrote)) => {
                if wrote.as_bool() == Some(true) {
                    applied.pop();
                }
            }
            // A manual update comes after the tasks that it includes, and has one slot for all.
            (Source::Update, None) => {
                let by_hand = applied.last().map(|(slot, _)| *slot);
                applied.retain(|(slot, _)| Some(*slot) == by_hand);
            }
            (Source::Input, _) => return Ok(vec![START.into()]),
            (Source::Loop, _) => {}
        }
        if !applied.is_empty() {
            return Ok(applied.into_iter().map(|(_, node)| node).collect());
        }
        // Unknown if the parent was pruned.
        let Some(id) = meta.parent else { return Ok(Vec::new()) };
        let Some(parent) = checkpointer.load(thread, Some(id)).await? else { return Ok(Vec::new()) };
        (meta, applied) = (parent.meta, parent.applied);
    }
}

pub(crate) fn find<S: State>(
    graph: &Inner<S>,
    thread: &ThreadId,
    node: AsNode,
    last_run: &[NodeName],
) -> Result<As, RunError> {
    let last = matches!(node, AsNode::LastRun);
    let name = match node {
        AsNode::Named(name) => name,
        AsNode::Input => START.to_owned(),
        AsNode::End => END.to_owned(),
        AsNode::LastRun => {
            let mut nodes = last_run.to_vec();
            nodes.sort();
            nodes.dedup();
            match &*nodes {
                [only] => only.to_string(),
                _ => return Err(RunError::AmbiguousUpdate { thread: thread.clone(), nodes }),
            }
        }
    };
    if name == END {
        return Ok(if last { As::LastEnd } else { As::End });
    }
    let unknown = || RunError::UnknownNode { graph: graph.name.clone(), node: name.clone() };
    let node = graph.topology.find(&name).ok_or_else(unknown)?;
    Ok(if last { As::LastRun(node) } else { As::Node(node) })
}

impl<S: State> Thread<S> {
    /// Stores an update in the name of the node that ran last: see [`update_as`](Self::update_as) and
    /// [`AsNode::LastRun`].
    ///
    /// # Errors
    /// Those of [`update_as`](Self::update_as), and [`RunError::AmbiguousUpdate`] if several nodes ran last.
    pub async fn update(&self, update: impl Into<S::Update>) -> Result<CheckpointId, RunError> {
        self.update_as(AsNode::LastRun, update).await
    }

    /// Stores an update in the name of `node`, as a new checkpoint after the head, or after the checkpoint named by
    /// [`at`](Self::at). The node's successors run next, together with the pending tasks, but for those of `node` itself.
    /// Use [`resume`](Self::resume) to run them. [`AsNode::End`] leaves nothing to run.
    ///
    /// At the head, the updates of tasks that finished before their superstep did are folded before this one, and their
    /// successors run next as well; if `node` itself has finished, this update replaces its writes and successors. Tasks whose
    /// writes are in conflict, or refused by a reducer, have failed and stay pending.
    ///
    /// # Errors
    /// [`RunError::UnknownNode`], or the error of a router, a reducer, the checkpointer or the state. Nothing is stored
    /// then.
    pub async fn update_as(
        &self,
        node: impl Into<AsNode>,
        update: impl Into<S::Update>,
    ) -> Result<CheckpointId, RunError> {
        self.bulk_update(vec![vec![(update.into(), node.into())]]).await
    }

    /// Stores several updates: a checkpoint for each inner list, whose updates are folded in the order given. Stores all of
    /// them or none. Returns the last checkpoint.
    ///
    /// # Errors
    /// Those of [`update_as`](Self::update_as); [`RunError::NoUpdates`] if a list is empty, and [`RunError::Conflict`] if
    /// two updates of one superstep write a channel that takes one write.
    pub async fn bulk_update(
        &self,
        supersteps: Vec<Vec<(S::Update, AsNode)>>,
    ) -> Result<CheckpointId, RunError> {
        let (checkpointer, thread) = self.stored_root()?;
        self.options.check_metadata()?;
        let _lease = checkpointer.lease(thread).await?;
        update_states(&self.graph.inner, checkpointer, thread, &self.options, supersteps, None).await
    }

    /// Makes a copy of the checkpoint `at` the thread's new head, or a copy of the head for `None`; its tasks are pending
    /// again. Use [`resume`](Self::resume) to run them; on a handle [`at`](Self::at) the checkpoint, `resume` does both.
    ///
    /// # Errors
    /// [`RunError::UnknownCheckpoint`], [`RunError::EmptyThread`], or the error of the checkpointer or the state.
    pub async fn fork(&self, at: impl Into<Option<CheckpointId>>) -> Result<CheckpointId, RunError> {
        let config = RunOptions { checkpoint: at.into().or(self.options.checkpoint), ..self.options.clone() };
        config.check_metadata()?;
        let (checkpointer, thread) = self.stored_root()?;
        fork(&self.graph.inner, checkpointer, thread, &config).await
    }
}
