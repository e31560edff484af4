//! One thread of a graph: its runs, its state, its history, and changes to it.
//!
//! Start at [`Thread`].

use std::{fmt, sync::Arc};

use crate::{
    CheckpointId, Checkpointer, CompiledGraph, RunError, RunOptions, State, ThreadId,
    node::run_options::run_options,
};

/// One thread of a graph, with the options of runs that start from this handle.
///
/// Methods that set options return another handle with them; operations borrow the handle, so one serves any number of them. A handle shares
/// cancellation and drain with those that were made of it.
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
/// assert_eq!(essay.at(first).state().await?.values.words, 40);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Thread<S: State> {
    pub(crate) graph: CompiledGraph<S>,
    pub(crate) options: RunOptions,
}

impl<S: State> CompiledGraph<S> {
    /// Returns a handle to the thread with this id, which need not exist yet. The graph needs a checkpointer.
    #[must_use = "a handle does nothing until one of its operations runs"]
    pub fn thread(&self, id: impl Into<ThreadId>) -> Thread<S> {
        Thread { graph: self.clone(), options: RunOptions::new().thread(id) }
    }

    /// Returns a handle with these options, to the thread that they name, if any.
    #[must_use = "a handle does nothing until one of its operations runs"]
    pub fn configured(&self, options: RunOptions) -> Thread<S> {
        Thread { graph: self.clone(), options }
    }

    /// Returns a handle to runs that belong to no thread and are not stored, to set their options. A run with the default
    /// options needs none: [`run`](Self::run).
    #[must_use = "a handle does nothing until one of its operations runs"]
    pub fn without_thread(&self) -> Thread<S> {
        Thread { graph: self.clone(), options: RunOptions::new() }
    }
}

impl<S: State> Thread<S> {
    run_options!(self, &self);

    /// Raises the limit of supersteps to this number, if it is lower.
    #[must_use = "a handle does nothing until one of its operations runs"]
    pub fn step_limit_at_least(&self, supersteps: u32) -> Self {
        self.with(|options| options.step_limit = options.step_limit.max(supersteps))
    }

    pub(crate) fn with(&self, change: impl FnOnce(&mut RunOptions)) -> Self {
        let mut changed = self.clone();
        change(&mut changed.options);
        changed
    }

    /// Returns the checkpoint set by [`at`](Self::at).
    pub fn start(&self) -> Option<CheckpointId> {
        self.options.checkpoint
    }

    /// Returns the thread's id; `None` for runs [without a thread](CompiledGraph::without_thread).
    pub fn id(&self) -> Option<&ThreadId> {
        self.options.thread.as_ref()
    }

    /// The thread and where it is stored.
    ///
    /// # Errors
    /// [`RunError::NoCheckpointer`], [`RunError::NoThread`].
    pub(crate) fn stored(&self) -> Result<(&Arc<dyn Checkpointer>, &ThreadId), RunError> {
        let checkpointer = self.graph.checkpointer()?;
        let missing = || RunError::NoThread { graph: self.graph.name().to_owned() };
        Ok((checkpointer, self.id().ok_or_else(missing)?))
    }

    /// Like [`stored`](Self::stored), for a thread that is written: not that of a subgraph.
    ///
    /// # Errors
    /// Those of [`stored`](Self::stored), and [`RunError::ChildThread`].
    pub(crate) fn stored_root(&self) -> Result<(&Arc<dyn Checkpointer>, &ThreadId), RunError> {
        Ok((self.graph.checkpointer()?, self.graph.thread_of(&self.options)?))
    }
}

impl<S: State> fmt::Debug for Thread<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("graph", &self.graph.name()).field("options", &self.options).finish()
    }
}
