//! Ownership of threads: the graph that a thread belongs to, and the nonce that distinguishes it from deleted
//! threads of its name.
//!
//! Every checkpoint stores both in its metadata, so that the head alone is enough, even after a prune.
//!
//! Start at [`Thread::adopt`].

use superstep_checkpoint::Prune;

use crate::{
    Checkpointer, History, RunError, State, Thread, ThreadId, compiled::owner::Mark, run::prune::callers,
};

impl<S: State> Thread<S> {
    /// Transfers a thread from another graph, or from this one under another name, to this graph: all of its checkpoints.
    /// Nothing else of it changes, so its pending nodes have to be among the nodes of this graph, and its state has to fit.
    ///
    /// Threads of called graphs belong to those graphs. Adopt each with the graph that is called now, by its
    /// id from [`Checkpointer::children`](crate::Checkpointer::children).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # use std::sync::Arc;
    /// # use superstep_graph::{END, MemoryCheckpointer, START, State, StateGraph};
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
    /// old.thread("t").run(Chat::update()).await?;
    /// assert!(renamed.thread("t").run(Chat::update()).await.is_err());
    /// renamed.thread("t").adopt().await?;
    /// assert_eq!(renamed.thread("t").run(Chat::update()).await?.state.turns, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError::EmptyThread`] if there is none, [`CheckpointError::Busy`](crate::checkpoint::CheckpointError::Busy) if someone runs it,
    /// or the error of the checkpointer.
    pub async fn adopt(&self) -> Result<(), RunError> {
        let (checkpointer, thread) = self.stored()?;
        let _lease = checkpointer.lease(&thread.root()).await?;
        if mark_all(&**checkpointer, thread, |before| self.graph.inner.mark(before.nonce)).await? {
            Ok(())
        } else {
            Err(RunError::EmptyThread { thread: thread.clone() })
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
    let keep = history.iter().map(|meta| meta.id).collect();
    let mut prune = Prune { keep, callers: callers(history.iter()), ..Prune::default() };
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
