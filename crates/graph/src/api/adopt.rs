//! Whose a thread is: the graph that runs on it, and what tells it from others that had its name.
//!
//! Every checkpoint says so in its metadata, so that the head alone tells it, whatever was pruned.
//!
//! Start at [`Mark`].

use std::collections::BTreeMap;

use crate::{CompiledGraph, History, Prune, RunError, State, ThreadId, compiled::owner::Mark};

impl<S: State> CompiledGraph<S> {
    /// Makes a thread this graph's that another one began, under another name: all of its checkpoints. Nothing else of it
    /// changes, so what is to run on it has to be among the nodes of this graph, and its state has to fit.
    ///
    /// The threads of the graphs that it called belong to those. Adopt one with the graph that is called now, by the id that
    /// [`Checkpointer::children`](crate::Checkpointer::children) has.
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
    /// [`RunError::EmptyThread`] if there is none, [`CheckpointError::Busy`](crate::CheckpointError::Busy) if someone runs it,
    /// or what the checkpointer reports.
    pub async fn adopt_thread(&self, thread: &ThreadId) -> Result<(), RunError> {
        let checkpointer = self.checkpointer()?;
        let _lease = checkpointer.lease(&thread.root()).await?;
        let history = checkpointer.history(thread, History::default()).await?;
        let empty = || RunError::EmptyThread { thread: thread.clone() };
        let head = history.first().ok_or_else(empty)?.id;
        let mut prune = Prune { keep: history.iter().map(|meta| meta.id).collect(), ..Prune::default() };
        let marked = history.into_iter().map(|meta| {
            let (mark, mut metadata) = (self.inner.mark(Mark::of(&meta).nonce), meta.metadata);
            mark.put(&mut metadata);
            (meta.id, metadata)
        });
        prune.metadata = marked.collect::<BTreeMap<_, _>>();
        checkpointer.prune(thread, head, prune).await?;
        Ok(())
    }
}
