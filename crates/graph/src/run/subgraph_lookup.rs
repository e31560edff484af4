//! The path to the thread of a subgraph.
//!
//! Start at [`LocatedSubgraph`].

use std::{any::Any, sync::Arc};

use futures::future::BoxFuture;
use serde_json::{Map, Value};
use superstep_checkpoint::{CheckpointMeta, Segment};
use superstep_engine::{ChannelSet, NodeName};

use crate::{
    Checkpointer, CompiledGraph, RunError, State, ThreadId,
    compiled::subgraph::{At, RemainingPath, Subgraph},
    journal::{
        memories::{self, SubgraphPosition},
        task_origin::Origins,
    },
    node::Persistence,
    run::{
        channel_values::values,
        conflicts::set_back_refused,
        restore::{Restored, RestoredTask, load, load_seeded},
        resumable::check,
    },
};

/// A subgraph and its storage.
pub(crate) struct LocatedSubgraph<T: State> {
    pub(crate) graph: CompiledGraph<T>,
    pub(crate) thread: ThreadId,
    /// The position on its thread.
    pub(crate) at: At,
    /// The state of its caller, if it works on that state.
    pub(crate) seed: Option<T>,
}

/// The state of a subgraph of any type.
#[derive(Clone, Debug)]
pub struct SubgraphValues {
    /// The thread of the subgraph.
    pub thread: ThreadId,
    /// The checkpoint of the state.
    pub checkpoint: CheckpointMeta,
    /// The stored channels with their values.
    pub values: Map<String, Value>,
}

/// A node that runs a graph on `T`.
pub(crate) struct SubgraphNode<S: State, T: State> {
    pub(crate) graph: CompiledGraph<T>,
    /// Returns the state with which it starts, from that of its caller; `None` if it has its own state.
    pub(crate) seed: fn(S) -> Option<T>,
}

impl<S: State, T: State> Subgraph<S> for SubgraphNode<S, T> {
    fn persistence(&self) -> Persistence {
        self.graph.persistence()
    }

    fn find(
        &self,
        state: S,
        (thread, at): (ThreadId, At),
        down: RemainingPath,
    ) -> BoxFuture<'static, Result<Box<dyn Any + Send>, RunError>> {
        let (graph, seed) = (self.graph.clone(), (self.seed)(state));
        Box::pin(find(LocatedSubgraph { graph, thread, at, seed }, down))
    }

    fn check(
        &self,
        state: S,
        checkpointer: Arc<dyn Checkpointer>,
        thread: ThreadId,
    ) -> BoxFuture<'static, Result<(), RunError>> {
        check(self.graph.inner().clone(), checkpointer, thread, (self.seed)(state))
    }
}

/// Follows the rest of the path.
pub(crate) async fn find<T: State>(
    from: LocatedSubgraph<T>,
    mut down: RemainingPath,
) -> Result<Box<dyn Any + Send>, RunError> {
    let Some(name) = down.path.next() else {
        return Ok(if down.reads_values {
            Box::new(from.values(&down.checkpointer).await?)
        } else {
            Box::new(from)
        });
    };
    let inner = from.graph.inner().clone();
    let refuse = |why| RunError::NoSubgraph { graph: inner.name.clone(), node: name.clone(), why };
    let node = inner.topology.find(&name).ok_or_else(|| refuse("it has no such node"))?;
    let declared = inner.nodes[node.position()].subgraph.clone();
    let subgraph = declared.ok_or_else(|| refuse("the node was not added as a subgraph"))?;
    let restored = from.load(&down.checkpointer).await?;
    let Restored { meta, state, mut tasks, .. } =
        restored.ok_or_else(|| refuse("that graph has no stored checkpoint"))?;
    let task = match subgraph.persistence() {
        Persistence::Ephemeral => return Err(refuse("it has no storage")),
        Persistence::PerNode => None,
        Persistence::PerTask => {
            // As in `Thread::state`, a task in a conflict is pending.
            set_back_refused(&inner.topology, &meta.control, &state, &mut tasks);
            let slot = pending(&meta, &tasks, |next| inner.topology.find(next.as_str()) == Some(node));
            Some(slot.map_err(refuse)?)
        }
    };
    let planned = task.and_then(|slot| meta.control.next.get(slot as usize));
    let planned = planned.unwrap_or_else(|| inner.topology.name(node)).clone();
    let task = task.map(|slot| Origins::of(&meta).caller(slot));
    let segment = Segment { node: planned, task, key: String::new() };
    let segment = match task {
        Some(_) => segment,
        None => memories::memory_segment(&memories::bound(&meta), &segment, &inner.topology, node),
    };
    let thread = from.thread.child(&segment);
    let at = match task {
        Some(_) => At::Head,
        None => memory_at(&*down.checkpointer, &thread, &segment, &meta).await?,
    };
    subgraph.find(state, (thread, at), down).await
}

/// Returns the slot of the first unfinished task of a node. The subgraph of a finished one is not read any more.
fn pending<S: State>(
    meta: &CheckpointMeta,
    tasks: &[RestoredTask<S>],
    is_of: impl Fn(&NodeName) -> bool,
) -> Result<u32, &'static str> {
    let slots = (0u32..).zip(&meta.control.next).filter(|(_, next)| is_of(next));
    let is_finished = |slot: u32| tasks.iter().any(|task| task.slot == slot && task.update.is_some());
    let mut why = "the node is not pending";
    for (slot, _) in slots {
        if !is_finished(slot) {
            return Ok(slot);
        }
        why = "the node is not pending: its task has finished; update the caller in the name of the node";
    }
    Err(why)
}

/// Returns the position of a subgraph with a persistent thread, from a checkpoint of its caller.
async fn memory_at(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
    segment: &Segment,
    meta: &CheckpointMeta,
) -> Result<At, RunError> {
    let last = memories::last_input(checkpointer, thread).await?;
    let (called, origins) = (last.as_ref().and_then(memories::caller), Origins::of(meta));
    if (0u32..).zip(&meta.control.next).any(|(slot, _)| called == Some(origins.caller(slot))) {
        return Ok(At::Head);
    }
    let Some(head) = memories::head(checkpointer, thread).await? else { return Ok(At::Head) };
    let at = memories::found(checkpointer, thread, head.id, SubgraphPosition::of(meta, segment)).await?;
    Ok(at.map_or(At::Nowhere, |found| At::Checkpoint { found, caller: meta.id }))
}

impl<T: State> LocatedSubgraph<T> {
    pub(crate) async fn load(
        &self,
        checkpointer: &Arc<dyn Checkpointer>,
    ) -> Result<Option<Restored<T>>, RunError> {
        let at = match self.at {
            At::Head => None,
            At::Checkpoint { found, .. } => Some(found),
            At::Nowhere => return Ok(None),
        };
        match &self.seed {
            Some(seed) => load_seeded(self.graph.inner(), seed, checkpointer, &self.thread).await,
            None => load(self.graph.inner(), checkpointer, &self.thread, at, ChannelSet::EMPTY).await,
        }
    }
    async fn values(&self, checkpointer: &Arc<dyn Checkpointer>) -> Result<Option<SubgraphValues>, RunError> {
        let Some(Restored { meta, state, .. }) = self.load(checkpointer).await? else { return Ok(None) };
        Ok(Some(SubgraphValues {
            thread: self.thread.clone(),
            checkpoint: meta.shown(),
            values: values(&state)?,
        }))
    }
}
