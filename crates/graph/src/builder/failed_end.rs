//! Ends of a thread that are failures.
//!
//! Start at [`StateGraph::failed_end`].

use std::sync::Arc;

use crate::{NodeRef, State, StateGraph};

impl<S: State> StateGraph<S> {
    /// Declares which ends are failures: those for whose state `reason` returns a text. A graph may run to its end without
    /// its purpose, as an agent does whose model is unavailable. The attempt of a job then fails with the reason, and the
    /// next one runs `again`, from the last checkpoint at which it was next; [`Thread::retry_failed_end`] does the same
    /// elsewhere. The last declaration counts.
    ///
    /// `reason` is a pure function, like a router.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    /// # use superstep_graph::{END, MemoryCheckpointer, START, State, StateGraph};
    /// # static IS_UP: AtomicBool = AtomicBool::new(false);
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Mail { error: String }
    /// # let mut graph = StateGraph::<Mail>::new("mail");
    /// let send = graph.add_node("send", async |_: Mail, _| match IS_UP.load(SeqCst) {
    ///     true => Mail::update().error(""),
    ///     false => Mail::update().error("no connection"),
    /// });
    /// # graph.add_edge(START, send);
    /// # graph.add_edge(send, END);
    /// graph.failed_end(send, |mail: &Mail| (!mail.error.is_empty()).then(|| mail.error.clone()));
    /// let graph = graph.compile()?.with_checkpointer(MemoryCheckpointer::new());
    ///
    /// let mail = graph.thread("mail-7").input_id("order-7").retry_failed_end(true);
    /// let end = mail.run(Mail::update()).await?;
    /// assert_eq!(graph.failed_end(&end.state).as_deref(), Some("no connection"));
    /// # IS_UP.store(true, SeqCst);
    /// let end = mail.run(Mail::update()).await?;
    /// assert_eq!(graph.failed_end(&end.state), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If `again` is not a node of this graph.
    ///
    /// [`Thread::retry_failed_end`]: crate::Thread::retry_failed_end
    #[track_caller]
    pub fn failed_end(
        &mut self,
        again: impl Into<NodeRef>,
        reason: impl Fn(&S) -> Option<String> + Send + Sync + 'static,
    ) {
        let declared = self.declared(again.into(), "can be run again after a failed end");
        self.failed_end = Some((declared, Arc::new(reason)));
    }
}
