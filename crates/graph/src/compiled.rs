//! A graph that runs.
//!
//! Start at [`CompiledGraph`].

use std::{fmt, sync::Arc};

use superstep_engine::{ChannelSet, NodeIndex, NodeName, Problem, Topology};

use crate::{
    AsNode, CheckpointId, CheckpointMeta, Checkpointer, Command, GraphId, History, Interrupt, IntoShared,
    Persistence, Question, RunConfig, RunError, RunStream, State, Store, Streaming, TaskRecord, ThreadId,
    cache::NodeCache,
    flat_drop::drop_flat,
    load::{Restored, load},
    node::CompiledNode,
    origin::Origins,
    refused::set_back_refused,
    run::{self, Given},
    state::fold,
    update::{fork, update_states},
};

/// A validated, immutable graph. Cheap to clone; runs on different threads may go on at the same time.
pub struct CompiledGraph<S: State> {
    pub(crate) inner: Arc<Inner<S>>,
    keepers: Keepers,
    persistence: Persistence,
}

impl<S: State> fmt::Debug for CompiledGraph<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledGraph").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

/// Where a graph keeps what outlives a run.
#[derive(Clone, Default)]
pub(crate) struct Keepers {
    pub(crate) checkpointer: Option<Arc<dyn Checkpointer>>,
    pub(crate) store: Option<Arc<dyn Store>>,
}

pub(crate) struct Inner<S: State> {
    pub(crate) name: String,
    pub(crate) version: Option<String>,
    /// The state with which a thread begins.
    pub(crate) initial: S,
    /// The builder's, which tells its handles from those of other graphs.
    pub(crate) stamp: u64,
    pub(crate) topology: Arc<Topology>,
    /// By index in the topology.
    pub(crate) nodes: Vec<CompiledNode<S>>,
    /// The nodes that may not run all their tasks at once, and how many they may.
    pub(crate) limits: Vec<(NodeIndex, usize)>,
    /// Where every run stops.
    pub(crate) breakpoints: superstep_engine::Breakpoints,
    pub(crate) warnings: Vec<Problem>,
}

impl<S: State> Drop for Inner<S> {
    /// Its nodes may hold other graphs, whose nodes hold others.
    fn drop(&mut self) {
        drop_flat(std::mem::take(&mut self.nodes));
    }
}

/// How a run ended that did not fail.
#[derive(Clone, Debug)]
pub struct Outcome<S> {
    /// The state after the last superstep. If the run stopped in the middle of one, it has what tasks wrote that were over, as
    /// [`StateSnapshot::values`] has it.
    pub state: S,
    /// Whether the graph came to its end.
    pub status: Status,
    /// The last checkpoint; `None` without a checkpointer.
    pub checkpoint: Option<CheckpointId>,
    /// What waits for an answer, if it was interrupted, or cancelled beside that.
    pub interrupts: Vec<Interrupt>,
    /// Why it was drained, if it was.
    pub drained: Option<String>,
}

/// Whether a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Nothing is left to run.
    Completed,
    /// It waits for someone outside: for answers to [`Outcome::interrupts`], or, if there are none, at a breakpoint.
    Interrupted,
    /// It ended after a superstep because it was asked to, [`Outcome::drained`] says why; resume it to go on.
    Drained,
    /// It was cancelled with tasks left to run; resume it to go on. [`Outcome::interrupts`] has what waits for an answer.
    Cancelled,
}

/// The state of a thread at a checkpoint.
#[derive(Clone, Debug)]
pub struct StateSnapshot<S: State> {
    /// The state. At the head it has the updates of tasks that finished before their superstep did; those that cannot be
    /// folded there are an error of their tasks.
    pub values: S,
    /// The nodes still to run.
    pub next: Vec<NodeName>,
    /// The checkpoint's tasks and what is known of them.
    pub tasks: Vec<TaskSnapshot<S>>,
    /// The checkpoint; `None` if the thread has none.
    pub checkpoint: Option<CheckpointMeta>,
    /// The graph that stored it, which is this one, in whatever version; `None` if nothing is stored, or an older program
    /// did it.
    pub graph: Option<GraphId>,
    /// The channels that are stored and that this state does not know, by name. Whoever goes on with the thread keeps them.
    pub unknown: Vec<String>,
}

/// A task of a checkpoint.
#[derive(Clone, Debug)]
pub struct TaskSnapshot<S: State> {
    /// Its node.
    pub node: NodeName,
    /// What it wrote, if it is done.
    pub result: Option<S::Update>,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// What it waits for.
    pub interrupts: Vec<Interrupt>,
    /// The threads of the graphs that it called, as far as it is to run and they are kept. Those that have no type of their
    /// own here: [`CompiledGraph::get_subgraph_state`] looks into a subgraph, [`CompiledGraph::get_state`] of the called
    /// graph into one that a node called.
    pub subgraphs: Vec<ThreadId>,
}

impl<S: State> CompiledGraph<S> {
    pub(crate) fn new(inner: Inner<S>) -> Self {
        Self { inner: Arc::new(inner), keepers: Keepers::default(), persistence: Persistence::default() }
    }

    /// Returns the same graph with its threads stored in `checkpointer`, a value or an `Arc` of one.
    #[must_use]
    pub fn with_checkpointer(self, checkpointer: impl IntoShared<dyn Checkpointer>) -> Self {
        let checkpointer = Some(checkpointer.into_shared());
        Self { keepers: Keepers { checkpointer, ..self.keepers }, ..self }
    }

    /// Returns the same graph with `store` for what its nodes remember across threads: see [`Cx::store`](crate::Cx::store).
    ///
    /// Several graphs may share an `Arc` of one.
    #[must_use]
    pub fn with_store(self, store: impl IntoShared<dyn Store>) -> Self {
        Self { keepers: Keepers { store: Some(store.into_shared()), ..self.keepers }, ..self }
    }

    /// The same graph, kept like this when another graph calls it. Nothing changes when it is run by itself.
    #[must_use]
    pub fn with_persistence(self, persistence: Persistence) -> Self {
        Self { persistence, ..self }
    }

    pub(crate) fn persistence(&self) -> Persistence {
        self.persistence
    }

    pub(crate) fn store(&self) -> Option<&Arc<dyn Store>> {
        self.keepers.store.as_ref()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner<S>> {
        &self.inner
    }

    /// Forgets what the nodes with a [`CachePolicy`](crate::CachePolicy) gave, so that they run again; also what tasks give
    /// that are at work now.
    pub fn clear_cache(&self) {
        self.inner.nodes.iter().filter_map(|node| node.cache.as_ref()).for_each(NodeCache::clear);
    }

    /// The graph's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The graph's version, if it said one with [`StateGraph::version`](crate::StateGraph::version).
    pub fn version(&self) -> Option<&str> {
        self.inner.version.as_deref()
    }

    /// What is suspicious in the graph.
    pub fn warnings(&self) -> &[Problem] {
        &self.inner.warnings
    }

    /// The shape of the graph; it draws itself as Mermaid, DOT, text and SVG.
    pub fn topology(&self) -> &Topology {
        &self.inner.topology
    }

    /// Folds `input` into the state of the thread and runs the graph from `START` to its end.
    ///
    /// # Errors
    /// [`RunError`]. The thread stands where its last superstep ended, and [`resume`](Self::resume) goes on from there. A
    /// thread that another graph began is refused with [`RunError::OtherGraph`], see [`adopt_thread`](Self::adopt_thread).
    pub async fn invoke(&self, input: S::Update, config: RunConfig) -> Result<Outcome<S>, RunError> {
        run::run(self.inner.clone(), self.keepers.clone(), Given::Input(input), config, None).await
    }

    /// Goes on with what the thread has still to run. A finished thread stays as it is.
    ///
    /// # Errors
    /// Those of [`invoke`](Self::invoke), and [`RunError::EmptyThread`] if the thread never ran.
    pub async fn resume(&self, config: RunConfig) -> Result<Outcome<S>, RunError> {
        run::run(self.inner.clone(), self.keepers.clone(), Given::Nothing, config, None).await
    }

    /// Changes the thread from outside and goes on: the command's update is folded first, and the nodes that it names run
    /// beside what the thread has still to run. On a thread that is finished they run alone.
    ///
    /// Both is stored as a checkpoint before anything runs. [`RunConfig::answers`] are given as with
    /// [`resume`](Self::resume); tasks that finished before their superstep did are taken along, as by
    /// [`update_state`](Self::update_state).
    ///
    /// ```no_run
    /// # use superstep_graph::{Command, CompiledGraph, RunConfig, RunError, State};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Chat { turns: i64 }
    /// # async fn review(graph: CompiledGraph<Chat>) -> Result<(), RunError> {
    /// let command = Command::update(Chat::update().turns(0)).goto("review");
    /// graph.resume_with(command, RunConfig::thread("support-17")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`resume`](Self::resume), and [`RunError::UnknownNode`] or [`RunError::NoWayIn`] if the command leads
    /// where it cannot. Nothing is stored then.
    pub async fn resume_with(
        &self,
        command: Command<S, &str>,
        config: RunConfig,
    ) -> Result<Outcome<S>, RunError> {
        let command = Given::Command(command.by_name());
        run::run(self.inner.clone(), self.keepers.clone(), command, config, None).await
    }

    /// Like [`invoke`](Self::invoke), telling what happens as it happens.
    ///
    /// A list of modes says enough for most; [`Streaming`] has the rest.
    pub fn stream(
        &self,
        input: S::Update,
        config: RunConfig,
        streaming: impl Into<Streaming>,
    ) -> RunStream<S> {
        self.stream_run(Given::Input(input), config, streaming.into())
    }

    /// Like [`resume`](Self::resume), telling what happens as it happens.
    pub fn stream_resume(&self, config: RunConfig, streaming: impl Into<Streaming>) -> RunStream<S> {
        self.stream_run(Given::Nothing, config, streaming.into())
    }

    /// Like [`resume_with`](Self::resume_with), telling what happens as it happens.
    pub fn stream_resume_with(
        &self,
        command: Command<S, &str>,
        config: RunConfig,
        streaming: impl Into<Streaming>,
    ) -> RunStream<S> {
        self.stream_run(Given::Command(command.by_name()), config, streaming.into())
    }

    fn stream_run(&self, given: Given<S>, config: RunConfig, streaming: Streaming) -> RunStream<S> {
        let (inner, keepers) = (self.inner.clone(), self.keepers.clone());
        RunStream::new(streaming, move |events| run::run(inner, keepers, given, config, Some(events)))
    }

    /// The thread at its head, or at the checkpoint `at`. An unknown thread has the initial state and nothing to run.
    ///
    /// # Errors
    /// [`RunError::UnknownCheckpoint`], [`RunError::OtherGraph`], or what the checkpointer or the state reports;
    /// [`RunError::NoSubgraph`] for the thread of a subgraph that can be read from its caller only.
    pub async fn get_state(
        &self,
        thread: &ThreadId,
        at: Option<CheckpointId>,
    ) -> Result<StateSnapshot<S>, RunError> {
        let checkpointer = self.checkpointer()?;
        self.refuse_seeded(thread).await?;
        match load(&self.inner, checkpointer, thread, at, ChannelSet::EMPTY).await? {
            Some(restored) => {
                let origins = Origins::of(&restored.meta);
                let snapshot = restored.into_snapshot(at.is_none(), &self.inner.topology)?;
                snapshot.with_subgraphs(&**checkpointer, thread, &origins).await
            }
            None => Ok(StateSnapshot {
                values: self.inner.initial.clone(),
                next: Vec::new(),
                tasks: Vec::new(),
                checkpoint: None,
                graph: None,
                unknown: Vec::new(),
            }),
        }
    }

    /// The thread's checkpoints without their states, newest first.
    ///
    /// # Errors
    /// [`RunError::OtherGraph`], or what the checkpointer reports.
    pub async fn get_history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> Result<Vec<CheckpointMeta>, RunError> {
        let history = self.checkpointer()?.history(thread, range).await?;
        history.iter().try_for_each(|meta| self.inner.owns(thread, meta))?;
        Ok(history.into_iter().map(CheckpointMeta::shown).collect())
    }

    /// The thread's checkpoints with their states, newest first.
    ///
    /// # Errors
    /// What the checkpointer or the state reports.
    pub async fn get_state_history(
        &self,
        thread: &ThreadId,
        range: History,
    ) -> Result<Vec<StateSnapshot<S>>, RunError> {
        let mut snapshots = Vec::new();
        for meta in self.checkpointer()?.history(thread, range).await? {
            snapshots.push(self.get_state(thread, Some(meta.id)).await?);
        }
        Ok(snapshots)
    }

    /// Changes the state from outside as if `as_node` had made `update`, on a new checkpoint after `config`'s. What
    /// follows `as_node` runs next, beside what was to run already; only `as_node` itself does not run for that any more.
    /// Use [`resume`](Self::resume) to run it.
    ///
    /// `as_node` is a node's name; `None` takes the node that ran last, and [`AsNode::End`] leaves nothing to run.
    /// At the head, tasks that finished before their superstep did are taken along: their updates are folded before
    /// this one, and what follows them runs next as well. Those whose writes are in conflict, or refused by a reducer, have
    /// failed and stay to be run.
    ///
    /// # Errors
    /// [`RunError::UnknownNode`], [`RunError::AmbiguousUpdate`] if several nodes ran last, or what a router, a reducer,
    /// the checkpointer or the state reports. Nothing is stored then.
    pub async fn update_state(
        &self,
        config: RunConfig,
        update: S::Update,
        as_node: impl Into<AsNode>,
    ) -> Result<CheckpointId, RunError> {
        let supersteps = vec![vec![(update, as_node.into())]];
        self.bulk_update_state(config, supersteps).await
    }

    /// Like [`update_state`](Self::update_state), several times over: a checkpoint for each superstep, in which several
    /// nodes may have made updates, folded in the order given. Stores all of them or none. Returns the last.
    ///
    /// # Errors
    /// Those of [`update_state`](Self::update_state); [`RunError::NoUpdates`] if there are no supersteps or one is empty,
    /// and [`RunError::Conflict`] if two updates of one superstep write a channel that takes one write.
    pub async fn bulk_update_state(
        &self,
        config: RunConfig,
        supersteps: Vec<Vec<(S::Update, AsNode)>>,
    ) -> Result<CheckpointId, RunError> {
        let (checkpointer, thread) = (self.checkpointer()?, self.thread_of(&config)?);
        config.check_metadata()?;
        let _lease = checkpointer.lease(thread).await?;
        update_states(&self.inner, checkpointer, thread, &config, supersteps, None).await
    }

    /// Makes a checkpoint that is like `config`'s, or like the head, and becomes the head: what was to run there is to
    /// run again. Use [`resume`](Self::resume) to run it; with [`RunConfig::checkpoint`] that does both at once.
    ///
    /// # Errors
    /// [`RunError::UnknownCheckpoint`], [`RunError::EmptyThread`], or what the checkpointer or the state reports.
    pub async fn fork(&self, config: RunConfig) -> Result<CheckpointId, RunError> {
        config.check_metadata()?;
        fork(&self.inner, self.checkpointer()?, self.thread_of(&config)?, &config).await
    }

    pub(crate) fn thread_of<'a>(&self, config: &'a RunConfig) -> Result<&'a ThreadId, RunError> {
        let missing = || RunError::NoThread { graph: self.inner.name.clone() };
        let thread = config.thread.as_ref().ok_or_else(missing)?;
        if thread.is_child() {
            return Err(RunError::ChildThread { thread: thread.clone() });
        }
        Ok(thread)
    }

    pub(crate) fn checkpointer(&self) -> Result<&Arc<dyn Checkpointer>, RunError> {
        let missing = || RunError::NoCheckpointer { graph: self.inner.name.clone() };
        self.keepers.checkpointer.as_ref().ok_or_else(missing)
    }
}

impl<S: State> Clone for CompiledGraph<S> {
    fn clone(&self) -> Self {
        let Self { inner, keepers, persistence } = self;
        Self { inner: inner.clone(), keepers: keepers.clone(), persistence: *persistence }
    }
}

impl<S: State> Restored<S> {
    /// `live` folds in what finished tasks wrote before their superstep ended.
    pub(crate) fn into_snapshot(self, live: bool, topology: &Topology) -> Result<StateSnapshot<S>, RunError> {
        let Self { meta, state: mut values, tasks: mut records, kept, .. } = self;
        if live {
            set_back_refused(topology, &meta.control, &values, &mut records);
        }
        let origins = Origins::of(&meta);
        let mut tasks: Vec<TaskSnapshot<S>> = meta
            .control
            .next
            .iter()
            .map(|node| TaskSnapshot {
                node: node.clone(),
                result: None,
                error: None,
                interrupts: Vec::new(),
                subgraphs: Vec::new(),
            })
            .collect();
        let mut next = meta.control.next.clone();
        if live && meta.control.next.first().is_some_and(|node| node.as_str() != superstep_engine::START) {
            let done = |slot: u32| records.iter().any(|task| task.slot == slot && task.update.is_some());
            next = (0u32..).zip(next).filter(|(slot, _)| !done(*slot)).map(|(_, node)| node).collect();
        }
        let folds_early = next.len() < meta.control.next.len();
        if folds_early {
            values.clear_ephemeral();
        }
        for record in records {
            let Some(task) = tasks.get_mut(record.slot as usize) else {
                continue;
            };
            if let (true, Some(update)) = (folds_early, &record.update) {
                let (node, step) = (task.node.clone(), meta.control.step + 1);
                fold(&mut values, update.clone()).map_err(|source| RunError::Fold { node, step, source })?;
            }
            task.result = record.update;
            let (asks, questions) = record.record.questions(&task.node, topology);
            let origin = origins.get(record.slot);
            let ask = |asked: &Question| asked.clone().into_interrupt(origin, asks.clone());
            task.interrupts = questions.iter().map(ask).collect();
            let (failure, end) = record.record.taken_apart();
            task.error = match end {
                TaskRecord::Failed { error, .. } => Some(error),
                TaskRecord::Interrupted { error, .. } => {
                    error.or_else(|| failure.map(|failure| failure.chain()))
                }
                TaskRecord::Cancelled { .. } if failure.is_none() => Some("cancelled".to_owned()),
                TaskRecord::Finished { .. } => None,
                // While its error handler has still to run, what the node failed of stands.
                TaskRecord::Started { .. } | TaskRecord::Cancelled { .. } | TaskRecord::Handled { .. } => {
                    failure.map(|failure| failure.chain())
                }
            };
        }
        let (graph, checkpoint) = (meta.graph(), Some(meta.shown()));
        Ok(StateSnapshot { values, next, tasks, checkpoint, graph, unknown: kept.channels() })
    }
}
