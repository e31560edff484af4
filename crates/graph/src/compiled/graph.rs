//! A runnable graph.
//!
//! Start at [`CompiledGraph`].

use std::{fmt, sync::Arc};

use serde_json::Value;
use superstep_checkpoint::{
    CheckpointError, CheckpointMeta, GraphId, IntoShared, Retention,
    internal::{
        Fingerprints,
        own::{self, GRAPH},
    },
};
use superstep_engine::{Endpoint, EngineError, NodeIndex, Problem, Target, Topology};
use superstep_state::RawJson;

use crate::{
    Checkpointer, RunError, RunOptions, State, Store, ThreadId,
    compiled::{node::CompiledNode, owner::Mark},
    flat_drop::drop_flat,
    node::{
        Persistence,
        output::Goto,
        refs::{NodeRef, endpoint},
        routing::Targets,
    },
};

/// A validated, immutable graph. Cheap to clone; it supports concurrent runs on different threads.
pub struct CompiledGraph<S: State> {
    pub(crate) inner: Arc<Inner<S>>,
    pub(crate) backends: Backends,
    persistence: Persistence,
}

impl<S: State> fmt::Debug for CompiledGraph<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledGraph").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

/// The storage backends of a graph.
#[derive(Clone, Default)]
pub(crate) struct Backends {
    pub(crate) checkpointer: Option<Arc<dyn Checkpointer>>,
    pub(crate) store: Option<Arc<dyn Store>>,
    /// The checkpoints to retain at the end of a run; all if `None`.
    pub(crate) retention: Option<Retention>,
}

pub(crate) struct Inner<S: State> {
    pub(crate) name: String,
    pub(crate) version: Option<String>,
    /// The state at the start of a thread.
    pub(crate) initial: Arc<S>,
    /// Computes fingerprints of stored states for replays.
    pub(crate) fingerprints: Arc<dyn Fingerprints>,
    /// The builder's stamp, which distinguishes its handles from those of other graphs.
    pub(crate) stamp: u64,
    pub(crate) topology: Arc<Topology>,
    /// The nodes, by index in the topology.
    pub(crate) nodes: Vec<CompiledNode<S>>,
    /// The nodes with a concurrency limit, and the limits.
    pub(crate) limits: Vec<(NodeIndex, usize)>,
    /// The breakpoints of every run.
    pub(crate) breakpoints: superstep_engine::Breakpoints,
    pub(crate) failed_ends: Vec<FailedEnd<S>>,
    pub(crate) warnings: Vec<Problem>,
}

/// The ends that are failures.
pub(crate) struct FailedEnd<S> {
    pub(crate) reason: FailureReason<S>,
    /// The node that a retry runs again.
    pub(crate) again: NodeIndex,
}

/// Returns why the end with this state is a failure; `None` if it is not.
pub(crate) type FailureReason<S> = Arc<dyn Fn(&S) -> Option<String> + Send + Sync>;

impl<S: State> Drop for Inner<S> {
    /// Drops the nodes one after another, because they may contain other graphs, whose nodes contain further ones.
    fn drop(&mut self) {
        drop_flat(std::mem::take(&mut self.nodes));
    }
}

impl<S: State> Inner<S> {
    /// Returns the node of this handle; `None` if it belongs to another graph.
    pub(crate) fn find(&self, node: NodeRef) -> Option<NodeIndex> {
        match endpoint(self.stamp, node) {
            Endpoint::Node(declared) => self.topology.declared(declared),
            Endpoint::Start | Endpoint::End | Endpoint::Foreign => None,
        }
    }

    /// Returns the targets of a command: the `recorded` ones, if there are any.
    ///
    /// # Errors
    /// [`EngineError::UnknownSend`] if a worker belongs to another graph.
    pub(crate) fn command_targets(
        &self,
        node: NodeIndex,
        goto: Vec<Goto<usize, RawJson>>,
        recorded: Option<Box<Targets>>,
    ) -> Result<Targets, EngineError> {
        let mut targets = recorded.map_or_else(Targets::default, |recorded| *recorded);
        if !targets.ends.is_empty() || goto.is_empty() {
            return Ok(targets);
        }
        for goto in goto {
            match goto {
                Goto::Route(route) => targets.ends.push(self.nodes[node.position()].routes[route]),
                Goto::Send { worker, item } => {
                    let stranger = || EngineError::UnknownSend {
                        node: self.topology.name(node).clone(),
                        to: "a worker of another graph".to_owned(),
                    };
                    targets.ends.push(Target::Send(self.find(worker).ok_or_else(stranger)?));
                    targets.items.push(item);
                }
            }
        }
        Ok(targets)
    }

    fn id(&self) -> GraphId {
        GraphId { name: self.name.clone(), version: self.version.clone() }
    }

    /// Returns the mark of this graph on a thread that has this nonce.
    pub(crate) fn mark(&self, nonce: Option<String>) -> Mark {
        Mark { graph: Some(self.id()), nonce }
    }

    /// Rejects a checkpoint of another graph, and one that no layer has decrypted. Accepts other versions of this one, and older
    /// programs, which stored no mark.
    ///
    /// # Errors
    /// [`RunError::OtherGraph`], or [`CheckpointError::Key`].
    pub(crate) fn owns(&self, thread: &ThreadId, meta: &CheckpointMeta) -> Result<(), RunError> {
        if meta.metadata.contains_key(own::SEALED) {
            let what = format!(
                "thread `{thread}` is encrypted; open it through `SealedCheckpointer`, of the feature `sealed`"
            );
            return Err(CheckpointError::Key { what, source: None }.into());
        }
        match meta.metadata.get(GRAPH).and_then(Value::as_str) {
            Some(name) if name != self.name => {
                Err(self.other(thread, meta.graph().expect("a checkpoint with a graph's name has its id")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the error for a thread of another graph.
    pub(crate) fn other(&self, thread: &ThreadId, stored: GraphId) -> RunError {
        let (stored, graph) = (Box::new(stored), Box::new(self.id()));
        RunError::OtherGraph { thread: thread.clone(), stored, graph }
    }
}

impl<S: State> CompiledGraph<S> {
    pub(crate) fn new(inner: Inner<S>) -> Self {
        Self { inner: Arc::new(inner), backends: Backends::default(), persistence: Persistence::default() }
    }

    /// Returns the same graph with its threads stored in `checkpointer`, a value or an `Arc` of one.
    #[must_use]
    pub fn with_checkpointer(self, checkpointer: impl IntoShared<dyn Checkpointer>) -> Self {
        let checkpointer = Some(checkpointer.into_shared());
        Self { backends: Backends { checkpointer, ..self.backends }, ..self }
    }

    /// Returns the same graph with `store` for data shared by its threads: see
    /// [`Cx::store`](crate::Cx::store).
    ///
    /// Several graphs may share an `Arc` of one.
    #[must_use]
    pub fn with_store(self, store: impl IntoShared<dyn Store>) -> Self {
        Self { backends: Backends { store: Some(store.into_shared()), ..self.backends }, ..self }
    }

    /// Returns the same graph with older checkpoints deleted at the end of each run, as by
    /// [`Thread::prune`](crate::Thread::prune). Without this, all checkpoints are retained.
    ///
    /// The oldest retained checkpoint gets a full state at each deletion, so the deletion waits until it deletes a quarter of
    /// the retained number: with [`Retention::Last`] of 100, a thread has up to 125 checkpoints after a run. A failed run
    /// deletes nothing. The threads of called graphs have the checkpoints that retained checkpoints of their callers need.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # use superstep_graph::{checkpoint::Retention, *};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Count { n: u32 }
    /// # let mut graph = StateGraph::<Count>::new("count");
    /// # let more = graph.add_node("more", async |count: Count, _| Count::update().n(count.n + 1));
    /// # graph.add_edge(START, more);
    /// # graph.add_edge(more, END);
    /// let graph = graph.compile()?.with_checkpointer(MemoryCheckpointer::new()).with_retention(Retention::Last(2));
    /// for _ in 0..5 {
    ///     graph.thread("t").run(Count::update()).await?;
    /// }
    /// assert_eq!(graph.thread("t").history().checkpoints().await?.len(), 2);
    /// assert_eq!(graph.thread("t").state().await?.values.n, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_retention(self, keep: Retention) -> Self {
        Self { backends: Backends { retention: Some(keep), ..self.backends }, ..self }
    }

    /// Sets the persistence for calls from other graphs. Direct runs are not affected.
    #[must_use]
    pub fn with_persistence(self, persistence: Persistence) -> Self {
        Self { persistence, ..self }
    }

    pub(crate) fn persistence(&self) -> Persistence {
        self.persistence
    }

    pub(crate) fn store(&self) -> Option<&Arc<dyn Store>> {
        self.backends.store.as_ref()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner<S>> {
        &self.inner
    }

    /// Returns the graph's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the graph's version, if it was set with [`StateGraph::version`](crate::StateGraph::version).
    pub fn version(&self) -> Option<&str> {
        self.inner.version.as_deref()
    }

    /// Returns the state in which every thread starts.
    pub fn initial(&self) -> &S {
        &self.inner.initial
    }

    /// Returns why a thread that ended with this state [failed](crate::StateGraph::failed_end); `None` if it did not.
    pub fn failed_end(&self, state: &S) -> Option<String> {
        self.inner.failed_ends.iter().find_map(|failed| (failed.reason)(state))
    }

    /// Returns the warnings about the graph.
    pub fn warnings(&self) -> &[Problem] {
        &self.inner.warnings
    }

    /// Returns the shape of the graph; it draws itself as Mermaid, DOT, text and SVG.
    pub fn topology(&self) -> &Topology {
        &self.inner.topology
    }

    pub(crate) fn thread_of<'a>(&self, config: &'a RunOptions) -> Result<&'a ThreadId, RunError> {
        let missing = || RunError::NoThread { graph: self.inner.name.clone() };
        let thread = config.thread.as_ref().ok_or_else(missing)?;
        if thread.is_child() {
            return Err(RunError::ChildThread { thread: thread.clone() });
        }
        Ok(thread)
    }

    pub(crate) fn checkpointer(&self) -> Result<&Arc<dyn Checkpointer>, RunError> {
        let missing = || RunError::NoCheckpointer { graph: self.inner.name.clone() };
        self.backends.checkpointer.as_ref().ok_or_else(missing)
    }
}

impl<S: State> Clone for CompiledGraph<S> {
    fn clone(&self) -> Self {
        let Self { inner, backends, persistence } = self;
        Self { inner: inner.clone(), backends: backends.clone(), persistence: *persistence }
    }
}
