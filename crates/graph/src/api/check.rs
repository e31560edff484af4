//! Checks of stored threads: whether this build can resume them, and whether they fold to the stored states.
//!
//! Start at [`CompiledGraph::check_threads`].

use crate::{
    CompiledGraph, RunError, State, Thread, ThreadId,
    run::{
        folded_states::{StateMismatch, mismatch},
        resumable::check,
    },
};

impl<S: State> CompiledGraph<S> {
    /// Returns the threads of this graph that it cannot resume, each with the reason: before a deployment, run it with the new program
    /// on the stored threads. See [`Thread::check`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # use std::sync::Arc;
    /// # use superstep_graph::{CompileError, CompiledGraph, Cx, MemoryCheckpointer, START, State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Order { paid: bool }
    /// # fn orders(ask: &str, store: Arc<MemoryCheckpointer>) -> Result<CompiledGraph<Order>, CompileError> {
    /// # let mut graph = StateGraph::<Order>::new("orders");
    /// # let ask = graph.add_node(ask, async |_: Order, cx: Cx| Order::update().paid(cx.interrupt::<bool>("pay", "?").await));
    /// # graph.add_edge(START, ask);
    /// # Ok(graph.compile()?.with_checkpointer(store))
    /// # }
    /// let store = Arc::new(MemoryCheckpointer::new());
    /// orders("approve", store.clone())?.thread("o-1").run(Order::update()).await?;
    ///
    /// // The new program has renamed the node that waits.
    /// let lost = orders("confirm", store)?.check_threads().await?;
    /// let (thread, reason) = &lost[0];
    /// assert!(thread.as_str() == "o-1" && reason.to_string().contains("`approve`"), "{reason}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError::NoCheckpointer`], or that of listing the threads.
    pub async fn check_threads(&self) -> Result<Vec<(ThreadId, RunError)>, RunError> {
        let mut lost = Vec::new();
        for thread in self.checkpointer()?.names().await? {
            match self.thread(thread.clone()).check().await {
                Ok(()) | Err(RunError::OtherGraph { .. }) => {}
                Err(reason) => lost.push((thread, reason)),
            }
        }
        Ok(lost)
    }
}

impl<S: State> Thread<S> {
    /// Checks that this graph can resume the thread, and runs nothing: its state and its recorded updates fit the state, its pending
    /// nodes and those of its pending subgraphs exist, and their items fit. A thread that does not exist, or is finished and fits,
    /// passes.
    ///
    /// The questions of a node are known only when it runs: an answer to a question that has changed is rejected then
    /// ([`RunError::ChangedQuestion`]).
    ///
    /// # Errors
    /// The error of a run that resumes the thread.
    pub async fn check(&self) -> Result<(), RunError> {
        let (checkpointer, thread) = self.stored_root()?;
        check(self.graph.inner().clone(), checkpointer.clone(), thread.clone(), None).await
    }

    /// Folds every checkpoint of the thread once, and returns the first whose state is not the one that was stored with it, by its
    /// snapshot or the fingerprints that a [recorded](Self::recording) superstep has. A changed reducer, a changed type of a channel or
    /// a changed thread is the reason. `None` even if the thread is redacted. Threads of subgraphs are not compared.
    ///
    /// # Errors
    /// [`RunError::OtherGraph`], [`RunError::Decode`], [`RunError::NewerChannel`], or that of the checkpointer.
    pub async fn check_states(&self) -> Result<Option<StateMismatch>, RunError> {
        let (checkpointer, thread) = self.stored_root()?;
        mismatch(self.graph.inner(), &**checkpointer, thread).await
    }
}
