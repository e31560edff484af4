//! Looking into subgraphs, and changing their state from outside.
//!
//! A subgraph that works on its caller's state can be read only from there, because that state is not stored with it: so
//! one goes down from the root, graph by graph, whatever the types of their states are.
//!
//! Start at [`CompiledGraph::get_subgraph_state`].

use std::{any::Any, sync::Arc};

use futures::future::BoxFuture;
use superstep_engine::ChannelSet;

use crate::{
    AsNode, CheckpointId, CheckpointMeta, Checkpointer, CompiledGraph, History, Persistence, RunConfig,
    RunError, Segment, Source, State, StateSnapshot, TaskKey, TaskRecord, ThreadId,
    checkpoint::own::{EDITED, SEEDED},
    compiled::Inner,
    load::{Restored, load, load_seeded},
    memories::{self, Place},
    origin::Origins,
    update::update_states,
};

/// A subgraph that was found, and where it is kept.
struct Found<T: State> {
    graph: CompiledGraph<T>,
    thread: ThreadId,
    /// Where on the thread it is.
    at: At,
    /// The state of its caller, if it works on that.
    seed: Option<T>,
}

/// Where on its thread a subgraph is.
#[derive(Clone, Copy)]
pub(crate) enum At {
    Head,
    /// Where the checkpoint `caller` of its caller finds it.
    Checkpoint {
        found: CheckpointId,
        caller: CheckpointId,
    },
    /// Nowhere: nothing has called it yet on that branch of its caller.
    Nowhere,
}

/// What is left of the way down.
pub(crate) struct Down {
    checkpointer: Arc<dyn Checkpointer>,
    /// The nodes still to go down through.
    path: std::vec::IntoIter<String>,
}

/// A node of a graph on `S` that runs another graph.
pub(crate) trait Subgraph<S: State>: Send + Sync {
    fn persistence(&self) -> Persistence;

    /// The graph at the end of the way, a [`Found`] of its state. `state` is what the node is given.
    fn find(
        &self,
        state: S,
        thread: (ThreadId, At),
        down: Down,
    ) -> BoxFuture<'static, Result<Box<dyn Any + Send>, RunError>>;
}

/// A subgraph that works on its caller's state.
pub(crate) struct Same<S: State>(pub(crate) CompiledGraph<S>);

/// A subgraph that has a state of its own.
pub(crate) struct Mapped<T: State>(pub(crate) CompiledGraph<T>);

impl<S: State> Subgraph<S> for Same<S> {
    fn persistence(&self) -> Persistence {
        self.0.persistence()
    }

    fn find(
        &self,
        state: S,
        thread: (ThreadId, At),
        down: Down,
    ) -> BoxFuture<'static, Result<Box<dyn Any + Send>, RunError>> {
        let (thread, at) = thread;
        Box::pin(find(Found { graph: self.0.clone(), thread, at, seed: Some(state) }, down))
    }
}

impl<S: State, T: State> Subgraph<S> for Mapped<T> {
    fn persistence(&self) -> Persistence {
        self.0.persistence()
    }

    fn find(
        &self,
        _: S,
        thread: (ThreadId, At),
        down: Down,
    ) -> BoxFuture<'static, Result<Box<dyn Any + Send>, RunError>> {
        let (thread, at) = thread;
        Box::pin(find(Found { graph: self.0.clone(), thread, at, seed: None }, down))
    }
}

/// Goes on down the way.
async fn find<T: State>(from: Found<T>, mut down: Down) -> Result<Box<dyn Any + Send>, RunError> {
    let Some(name) = down.path.next() else { return Ok(Box::new(from)) };
    let inner = from.graph.inner().clone();
    let refuse = |why| RunError::NoSubgraph { graph: inner.name.clone(), node: name.clone(), why };
    let node = inner.topology.find(&name).ok_or_else(|| refuse("it has no such node"))?;
    let declared = inner.nodes[node.position()].subgraph.clone();
    let subgraph = declared.ok_or_else(|| refuse("the node was not added as a subgraph"))?;
    let restored = from.load(&down.checkpointer).await?;
    let Restored { meta, state, .. } = restored.ok_or_else(|| refuse("nothing of that graph is stored"))?;
    let task = match subgraph.persistence() {
        Persistence::None => return Err(refuse("nothing of it is kept")),
        Persistence::Own => None,
        Persistence::Inherited => {
            let slot = meta.control.next.iter().position(|next| next.as_str() == name);
            let slot = slot.and_then(|slot| u32::try_from(slot).ok());
            let slot = slot.ok_or_else(|| refuse("the node is not what runs next"))?;
            Some(Origins::of(&meta).caller(slot))
        }
    };
    let segment = Segment { node: inner.topology.name(node).clone(), task, key: String::new() };
    let thread = from.thread.child(&segment);
    let at = match task {
        Some(_) => At::Head,
        None => memory_at(&*down.checkpointer, &thread, &segment, &meta).await?,
    };
    subgraph.find(state, (thread, at), down).await
}

/// Where a subgraph that lives on over its tasks is, as a checkpoint of its caller finds it.
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
    let at = memories::found(checkpointer, thread, head.id, Place::of(meta, segment)).await?;
    Ok(at.map_or(At::Nowhere, |found| At::Checkpoint { found, caller: meta.id }))
}

impl<T: State> Found<T> {
    async fn load(&self, checkpointer: &Arc<dyn Checkpointer>) -> Result<Option<Restored<T>>, RunError> {
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
}

impl<S: State> CompiledGraph<S> {
    /// The state of a subgraph at the head of its thread. `path` has the nodes that lead down to it, from a node of this
    /// graph on; `T` is the state of the last one. What a subgraph of the same state began with is part of it.
    ///
    /// A subgraph that has a thread for each of its tasks is found while its task is to run. Use
    /// [`TaskSnapshot::subgraphs`](crate::TaskSnapshot::subgraphs) and [`get_state`](Self::get_state) of the called graph
    /// for what a node calls with [`Cx::call`](crate::Cx::call).
    ///
    /// # Errors
    /// [`RunError::NoSubgraph`] if there is none, or its state is no `T`; else what the checkpointer or the state reports.
    pub async fn get_subgraph_state<T: State>(
        &self,
        thread: &ThreadId,
        path: &[&str],
    ) -> Result<StateSnapshot<T>, RunError> {
        let found = self.find_subgraph::<T>(thread, path).await?;
        let checkpointer = self.checkpointer()?;
        let restored = found.load(checkpointer).await?;
        let restored = restored.ok_or_else(|| self.no_subgraph(path, "nothing of it is stored yet"))?;
        let origins = Origins::of(&restored.meta);
        let snapshot = restored.into_snapshot(true, &found.graph.inner().topology)?;
        snapshot.with_subgraphs(&**checkpointer, &found.thread, &origins).await
    }

    /// Changes the state of a subgraph from outside, as [`update_state`](Self::update_state) does that of this graph. Its
    /// caller's task goes on with it when the thread is resumed; what the subgraph asked before is asked no more.
    ///
    /// # Errors
    /// Those of [`get_subgraph_state`](Self::get_subgraph_state) and [`update_state`](Self::update_state).
    pub async fn update_subgraph_state<T: State>(
        &self,
        config: RunConfig,
        path: &[&str],
        update: T::Update,
        as_node: impl Into<AsNode>,
    ) -> Result<CheckpointId, RunError> {
        let (checkpointer, thread) = (self.checkpointer()?, self.thread_of(&config)?);
        let supersteps = vec![vec![(update, as_node.into())]];
        let lease = checkpointer.lease(thread).await?;
        let Found { graph, thread, at, seed } = self.find_subgraph::<T>(thread, path).await?;
        config.check_metadata()?;
        let mut config = config.clone();
        config.checkpoint = match at {
            At::Head => None,
            At::Checkpoint { found, caller } => {
                config.metadata.insert(EDITED.to_owned(), caller.0.into());
                Some(found)
            }
            At::Nowhere => return Err(self.no_subgraph(path, "nothing of it is stored yet")),
        };
        let inner: &Inner<T> = graph.inner();
        let id = update_states(inner, checkpointer, &thread, &config, supersteps, seed.as_ref()).await?;
        forget_questions(&**checkpointer, thread).await?;
        drop(lease);
        Ok(id)
    }

    /// Refuses the thread of a subgraph that works on its caller's state, which is not stored with it.
    pub(crate) async fn refuse_seeded(&self, thread: &ThreadId) -> Result<(), RunError> {
        if !thread.is_child() {
            return Ok(());
        }
        let range = History { source: Some(Source::Input), limit: Some(1), ..History::default() };
        let inputs = self.checkpointer()?.history(thread, range).await?;
        if inputs.iter().any(|input| input.metadata.contains_key(SEEDED)) {
            let why = "it works on the state of its caller; ask the caller's graph with `get_subgraph_state`";
            let node = thread.to_string();
            return Err(RunError::NoSubgraph { graph: self.name().to_owned(), node, why });
        }
        Ok(())
    }

    async fn find_subgraph<T: State>(&self, thread: &ThreadId, path: &[&str]) -> Result<Found<T>, RunError> {
        if path.is_empty() {
            return Err(self.no_subgraph(path, "the path to it is empty"));
        }
        let checkpointer = self.checkpointer()?.clone();
        let path_down: Vec<String> = path.iter().map(|&node| node.to_owned()).collect();
        let root = Found { graph: self.clone(), thread: thread.clone(), at: At::Head, seed: None };
        let found = find(root, Down { checkpointer, path: path_down.into_iter() }).await?;
        let found = found.downcast::<Found<T>>();
        found.map(|found| *found).map_err(|_| self.no_subgraph(path, "its state is of another type"))
    }

    fn no_subgraph(&self, path: &[&str], why: &'static str) -> RunError {
        RunError::NoSubgraph { graph: self.name().to_owned(), node: path.join("/"), why }
    }
}

impl<S: State> StateSnapshot<S> {
    /// Adds the threads of the graphs that its unfinished tasks called.
    pub(crate) async fn with_subgraphs(
        mut self,
        checkpointer: &dyn Checkpointer,
        thread: &ThreadId,
        origins: &Origins,
    ) -> Result<Self, RunError> {
        if self.next.is_empty() {
            return Ok(self);
        }
        for child in checkpointer.children(thread).await? {
            let Some((_, segment)) = child.parent().filter(|(parent, _)| parent == thread) else { continue };
            for (slot, task) in (0u32..).zip(&mut self.tasks) {
                let calls = segment.task.is_none_or(|called| called == origins.caller(slot));
                if calls && segment.node == task.node && task.result.is_none() {
                    task.subgraphs.push(child.clone());
                }
            }
        }
        Ok(self)
    }
}

/// Takes the questions of a subgraph out of the records of those that called it: it went on without the answers.
async fn forget_questions(checkpointer: &dyn Checkpointer, mut thread: ThreadId) -> Result<(), RunError> {
    while let Some((parent, segment)) = thread.parent() {
        thread = parent;
        let Some(loaded) = checkpointer.load(&thread, None).await? else { break };
        let origins = Origins::of(&loaded.meta);
        let is_caller = |slot: u32| match segment.task {
            Some(task) => task == origins.caller(slot),
            None => loaded.meta.control.next.get(slot as usize) == Some(&segment.node),
        };
        for (slot, record) in loaded.tasks.iter().filter(|(slot, _)| is_caller(*slot)) {
            let mut record = record.clone();
            let TaskRecord::Interrupted { questions, .. } = &mut record else { continue };
            questions.retain(|asked| asked.within.as_ref().is_none_or(|within| within.call != segment.key));
            let key = TaskKey { thread: thread.clone(), checkpoint: loaded.meta.id, slot: *slot };
            checkpointer.record(&key, record).await?;
        }
    }
    Ok(())
}
