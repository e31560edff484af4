//! Ownership of threads: the graph that a thread belongs to, and the nonce that distinguishes it from deleted
//! threads of its name.
//!
//! Every checkpoint stores both in its metadata, so that the head alone is enough, even after a prune.
//!
//! Start at [`CompiledGraph::adopt_thread`].

use crate::{Checkpointer, CompiledGraph, History, Prune, RunError, State, ThreadId, compiled::owner::Mark};

impl<S: State> CompiledGraph<S> {
    /// Transfers a thread of a graph with another name to this graph, with all of its checkpoints. Nothing
    /// else changes: the thread's pending nodes must exist in this graph, and its state must fit.
    ///
    /// Threads of called graphs belong to those graphs. Adopt each with the graph that is called now, by its
    /// id from [`Checkpointer::children`](crate::Checkpointer::children).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # use std::sync::Arc;
    /// # use superstep_graph::{END, CompiledGraph, MemoryCheckpointer, RunConfig, START, State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Chat { turns: i64 }
    /// # let store = Arc::new(MemoryCheckpointer::new());
    /// # let graph = |name: &str| {
    /// #     let mut graph = StateGraph::<Chat>::new(name);
    /// #     let count = graph.add_node("count", async |chat: Chat, _| Chat::update().turns(chat.turns + 1));
    /// #     graph.add_edge(START, count);
    /// #     graph.add_edge(count, END);
    /// #     graph.compile().unwrap().with_checkpointer(store.clone())
    /// # };
    /// let (old, renamed) = (graph("chat"), graph("support"));
    /// old.invoke(Chat::update(), RunConfig::thread("t")).await?;
    /// assert!(renamed.invoke(Chat::update(), RunConfig::thread("t")).await.is_err());
    /// renamed.adopt_thread(&"t".into()).await?;
    /// assert_eq!(renamed.invoke(Chat::update(), RunConfig::thread("t")).await?.state.turns, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError::EmptyThread`] if it does not exist,
    /// [`CheckpointError::Busy`](crate::CheckpointError::Busy) if it has another writer, and errors of the
    /// checkpointer.
    pub async fn adopt_thread(&self, thread: &ThreadId) -> Result<(), RunError> {
        let checkpointer = self.checkpointer()?;
        let _lease = checkpointer.lease(&thread.root()).await?;
        match mark_all(&**checkpointer, thread, |before| self.inner.mark(before.nonce)).await? {
            true => Ok(()),
            false => Err(RunError::EmptyThread { thread: thread.clone() }),
        }
    }
}

/// Changes the mark of each checkpoint of a thread. Returns whether the thread exists.
pub(crate) async fn mark_all(
    checkpointer: &dyn Checkpointer,
    thread: &ThreadId,
    new: impl Fn(Mark) -> Mark,
) -> Result<bool, RunError> {
    let history = checkpointer.history(thread, History::default()).await?;
    let Some(head) = history.first().map(|meta| meta.id) else { return Ok(false) };
    let mut prune = Prune { keep: history.iter().map(|meta| meta.id).collect(), ..Prune::default() };
    for meta in history {
        let before = Mark::of(&meta);
        let (mark, mut metadata) = (new(before.clone()), meta.metadata);
        if mark != before {
            mark.put(&mut metadata);
            prune.metadata.insert(meta.id, metadata);
        }
    }
    if !prune.metadata.is_empty() {
        checkpointer.prune(thread, head, prune).await?;
    }
    Ok(true)
}
