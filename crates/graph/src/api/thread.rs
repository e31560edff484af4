//! One thread of a graph: its runs, its state, its history, and changes to it.
//!
//! Start at [`CompiledGraph::thread`].

use serde::Serialize;
use serde_json::Value;
use superstep_engine::NodeName;

use crate::{
    AsNode, CheckpointId, CheckpointMeta, Command, CompiledGraph, Drawing, History, Keep, Outcome, Replay,
    RunConfig, RunError, RunStream, Source, State, StateSnapshot, Streaming, ThreadId,
    node::run_config::run_options,
};

/// One thread of a graph, with the options of runs that start from this handle.
///
/// The options are those of [`RunConfig`] and consume the handle; operations borrow it, so one handle serves
/// any number of them. A clone shares cancellation and drain with its original.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # use superstep_graph::{END, MemoryCheckpointer, START, State, StateGraph};
/// # #[derive(State, Clone, Debug, Default)]
/// # struct Draft { words: usize }
/// # let mut graph = StateGraph::<Draft>::new("draft");
/// # let write = graph.add_node("write", async |draft: Draft, _| Draft::update().words(draft.words + 40));
/// # graph.add_edge(START, write);
/// # graph.add_edge(write, END);
/// let graph = graph.compile()?.with_checkpointer(MemoryCheckpointer::new());
/// let essay = graph.thread("essay");
///
/// assert_eq!(essay.run(Draft::update()).await?.state.words, 40);
/// essay.update(Draft::update().words(100)).await?;
/// assert_eq!(essay.state().await?.values.words, 100);
///
/// let first = essay.history().limit(2).checkpoints().await?[1].id;
/// assert_eq!(essay.clone().at(first).state().await?.values.words, 40);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing until one of its operations runs"]
pub struct Thread<S: State> {
    graph: CompiledGraph<S>,
    id: ThreadId,
    config: RunConfig,
}

impl<S: State> CompiledGraph<S> {
    /// Returns a handle to the thread with this id, which need not exist yet. The graph needs a checkpointer.
    pub fn thread(&self, id: impl Into<ThreadId>) -> Thread<S> {
        let id = id.into();
        Thread { graph: self.clone(), config: RunConfig::thread(id.clone()), id }
    }
}

impl<S: State> Thread<S> {
    run_options!(self, self.config);

    /// Returns the thread's id.
    pub fn id(&self) -> &ThreadId {
        &self.id
    }

    /// Folds `input` into the thread's state and runs the graph from `START` to its end. See
    /// [`CompiledGraph::invoke`].
    ///
    /// # Errors
    /// [`RunError`]. The thread stays at its last completed superstep, from which [`resume`](Self::resume) continues.
    pub async fn run(&self, input: S::Update) -> Result<Outcome<S>, RunError> {
        self.graph.invoke(input, self.config.clone()).await
    }

    /// Runs the thread's pending tasks, with the answers given by [`answer`](Self::answer). A finished thread
    /// is not changed. See [`CompiledGraph::resume`].
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and [`RunError::EmptyThread`] if the thread never ran.
    pub async fn resume(&self) -> Result<Outcome<S>, RunError> {
        self.graph.resume(self.config.clone()).await
    }

    /// Folds the command's update, then runs the nodes it names together with the thread's pending tasks. See
    /// [`CompiledGraph::resume_with`].
    ///
    /// # Errors
    /// Those of [`resume`](Self::resume), and [`RunError::UnknownNode`] or [`RunError::NoWayIn`] for a target
    /// that cannot be reached; the thread is then unchanged.
    pub async fn resume_with(&self, command: Command<S, &str>) -> Result<Outcome<S>, RunError> {
        self.graph.resume_with(command, self.config.clone()).await
    }

    /// Like [`run`](Self::run), as a stream of events.
    pub fn stream(&self, input: S::Update, streaming: impl Into<Streaming>) -> RunStream<S> {
        self.graph.stream(input, self.config.clone(), streaming)
    }

    /// Like [`resume`](Self::resume), as a stream of events.
    pub fn resume_stream(&self, streaming: impl Into<Streaming>) -> RunStream<S> {
        self.graph.stream_resume(self.config.clone(), streaming)
    }

    /// Like [`resume_with`](Self::resume_with), as a stream of events.
    pub fn resume_stream_with(
        &self,
        command: Command<S, &str>,
        streaming: impl Into<Streaming>,
    ) -> RunStream<S> {
        self.graph.stream_resume_with(command, self.config.clone(), streaming)
    }

    /// Returns the state at the head, or at the checkpoint named by [`at`](Self::at). A thread that never ran has the
    /// initial state.
    ///
    /// # Errors
    /// [`RunError::UnknownCheckpoint`], [`RunError::OtherGraph`], or the error of the checkpointer or the state.
    pub async fn state(&self) -> Result<StateSnapshot<S>, RunError> {
        self.graph.get_state(&self.id, self.config.checkpoint).await
    }

    /// Returns the thread's checkpoints, newest first: narrow them down with the methods of [`ThreadHistory`].
    pub fn history(&self) -> ThreadHistory<S> {
        ThreadHistory { graph: self.graph.clone(), thread: self.id.clone(), range: History::default() }
    }

    /// Stores an update in the name of the node that ran last. See [`CompiledGraph::update_state`].
    ///
    /// # Errors
    /// Those of [`CompiledGraph::update_state`]; nothing is stored then.
    pub async fn update(&self, update: S::Update) -> Result<CheckpointId, RunError> {
        self.update_as(AsNode::LastRun, update).await
    }

    /// Stores an update in the name of `node`: the node's successors run next. See [`CompiledGraph::update_state`].
    ///
    /// # Errors
    /// Those of [`CompiledGraph::update_state`]; nothing is stored then.
    pub async fn update_as(
        &self,
        node: impl Into<AsNode>,
        update: S::Update,
    ) -> Result<CheckpointId, RunError> {
        self.graph.update_state(self.config.clone(), update, node).await
    }

    /// Stores several updates: a checkpoint for each inner list, or none at all. See
    /// [`CompiledGraph::bulk_update_state`].
    ///
    /// # Errors
    /// Those of [`CompiledGraph::bulk_update_state`]; nothing is stored then.
    pub async fn bulk_update(
        &self,
        supersteps: Vec<Vec<(S::Update, AsNode)>>,
    ) -> Result<CheckpointId, RunError> {
        self.graph.bulk_update_state(self.config.clone(), supersteps).await
    }

    /// Makes a copy of the checkpoint `at` the thread's new head; its tasks are pending again. See [`CompiledGraph::fork`].
    ///
    /// # Errors
    /// [`RunError::UnknownCheckpoint`], [`RunError::EmptyThread`], or the error of the checkpointer or the state.
    pub async fn fork(&self, at: CheckpointId) -> Result<CheckpointId, RunError> {
        self.graph.fork(RunConfig { checkpoint: Some(at), ..self.config.clone() }).await
    }

    /// Returns a replay of the whole thread, to be narrowed down and run.
    pub fn replay(&self) -> Replay<S> {
        Replay::of(&self.graph, self.id.clone())
    }

    /// Adds an item to the thread's inbox and returns its number. See [`CompiledGraph::post`].
    ///
    /// # Errors
    /// Those of [`CompiledGraph::post`].
    pub async fn post(&self, item: impl Serialize) -> Result<u64, RunError> {
        self.graph.post(item, self.config.clone()).await
    }

    /// Copies the thread with its checkpoints and subgraph threads, and returns a handle to the copy with default options.
    ///
    /// # Errors
    /// Those of [`CompiledGraph::copy_thread`].
    pub async fn copy_to(&self, id: impl Into<ThreadId>) -> Result<Self, RunError> {
        let id = id.into();
        self.graph.copy_thread(&self.id, &id).await?;
        Ok(self.graph.thread(id))
    }

    /// Deletes the checkpoints that `keep` does not retain, and returns their number. See [`CompiledGraph::prune_thread`].
    ///
    /// # Errors
    /// Those of [`CompiledGraph::prune_thread`]; nothing is deleted then.
    pub async fn prune(&self, keep: Keep) -> Result<usize, RunError> {
        self.graph.prune_thread(&self.id, keep).await
    }

    /// Deletes the thread and the threads of its subgraphs.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`](crate::CheckpointError::Busy) while the thread runs.
    pub async fn delete(&self) -> Result<(), RunError> {
        self.graph.delete_thread(&self.id).await
    }

    /// Transfers a thread from another graph to this one. See [`CompiledGraph::adopt_thread`].
    ///
    /// # Errors
    /// Those of [`CompiledGraph::adopt_thread`].
    pub async fn adopt(&self) -> Result<(), RunError> {
        self.graph.adopt_thread(&self.id).await
    }

    /// Returns the graph with the path that the thread took to its head, or to the checkpoint named by [`at`](Self::at).
    ///
    /// # Errors
    /// Those of [`CompiledGraph::drawing_of`].
    pub async fn drawing(&self) -> Result<Drawing, RunError> {
        self.graph.drawing_of(&self.id, self.config.checkpoint).await
    }
}

/// The checkpoints of a thread, newest first; each method narrows them down, and all conditions apply together.
#[derive(Clone)]
#[must_use = "reads nothing until `checkpoints` or `states` runs"]
pub struct ThreadHistory<S: State> {
    graph: CompiledGraph<S>,
    thread: ThreadId,
    range: History,
}

impl<S: State> ThreadHistory<S> {
    /// Returns at most this many checkpoints.
    pub fn limit(mut self, count: usize) -> Self {
        self.range.limit = Some(count);
        self
    }

    /// Skips this checkpoint and newer ones: pass the last id of a page to read the next one.
    pub fn before(mut self, checkpoint: CheckpointId) -> Self {
        self.range.before = Some(checkpoint);
        self
    }

    /// Selects checkpoints that exist for this reason.
    pub fn source(mut self, source: Source) -> Self {
        self.range.source = Some(source);
        self
    }

    /// Selects checkpoints of this superstep; each branch may have one.
    pub fn step(mut self, step: i64) -> Self {
        self.range.step = Some(step);
        self
    }

    /// Selects checkpoints at which this node is pending.
    pub fn pending(mut self, node: impl Into<NodeName>) -> Self {
        self.range.next = Some(node.into());
        self
    }

    /// Selects checkpoints whose metadata has this entry.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.range.metadata.insert(name.into(), value.into());
        self
    }

    /// Reads the checkpoints without their states.
    ///
    /// # Errors
    /// [`RunError::OtherGraph`], or the error of the checkpointer.
    pub async fn checkpoints(&self) -> Result<Vec<CheckpointMeta>, RunError> {
        self.graph.get_history(&self.thread, self.range.clone()).await
    }

    /// Reads the checkpoints with their states, and with the updates of their tasks.
    ///
    /// # Errors
    /// [`RunError::OtherGraph`], or the error of the checkpointer or the state.
    pub async fn states(&self) -> Result<Vec<StateSnapshot<S>>, RunError> {
        self.graph.get_state_history(&self.thread, self.range.clone()).await
    }
}
