//! Settings of a graph: lints and declared writes, breakpoints, and the treatment of discarded tasks and failed ends.

use std::{panic::Location, sync::Arc};

use superstep_engine::{Endpoint, Level, Lint, Problem, ProblemKind, WritesSpec};

use super::state_graph::StateGraph;
use crate::{
    State,
    node::{discarded::Discarded, refs::NodeRef},
};

impl<S: State> StateGraph<S> {
    /// Sets the level of a lint: allowed, a warning, or an error of [`compile`](Self::compile). The default
    /// is a warning.
    ///
    /// ```
    /// # use superstep_graph::{State, StateGraph, topology::{Level, Lint}};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Chat { answer: String }
    /// let mut graph = StateGraph::<Chat>::new("chat");
    /// graph.lint(Lint::Unreachable, Level::Deny);
    /// // It asks its user again and again, and is cancelled one day.
    /// graph.lint(Lint::Cycle, Level::Allow);
    /// ```
    pub fn lint(&mut self, lint: Lint, level: Level) {
        self.topology.levels.insert(lint, level);
    }

    /// Declares the channels that `node` writes. A write to another channel then fails the run with
    /// [`RunError::Undeclared`](crate::RunError::Undeclared).
    ///
    /// Several calls add up. [`Lint::ConcurrentWrites`] compares the declarations of nodes that can run in
    /// the same superstep.
    ///
    /// # Panics
    /// If `node` is not a node of this graph.
    #[track_caller]
    pub fn writes<C: Into<String>>(
        &mut self,
        node: impl Into<NodeRef>,
        channels: impl IntoIterator<Item = C>,
    ) {
        let node = self.endpoint(node.into());
        assert!(matches!(node, Endpoint::Node(_)), "only a node of graph `{}` can write in it", self.name);
        let channels = channels.into_iter().map(Into::into).collect();
        self.topology.writes.push(WritesSpec { node, channels, place: Location::caller() });
    }

    /// Stops every run before this node, in addition to the run's own [`Thread::break_before`](crate::Thread::break_before). A
    /// run that starts there passes it. A stop before an error handler is not possible, because it is never
    /// planned.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use superstep_graph::{Cx, MemoryCheckpointer, START, State, StateGraph, Status};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Order { paid: bool }
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let mut graph = StateGraph::<Order>::new("order");
    /// let pay = graph.add_node("pay", async |_: Order, _: Cx| Order::update().paid(true));
    /// graph.add_edge(START, pay);
    /// graph.stop_before(pay);
    /// let graph = graph.compile()?.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    /// let stopped = graph.thread("t").run(Order::update()).await?;
    /// assert_eq!((stopped.status, stopped.state.paid), (Status::Interrupted, false));
    /// assert!(graph.thread("t").resume().await?.state.paid);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If `node` is not a node of this graph.
    #[track_caller]
    pub fn stop_before(&mut self, node: impl Into<NodeRef>) {
        let declared = self.stop(node.into());
        let spec = &self.topology.nodes[declared];
        if spec.handles.is_some() {
            let kind = ProblemKind::StopBeforeHandler(spec.name.clone());
            self.topology.problems.push(Problem { kind, place: Location::caller() });
        }
        self.stops.before.push(declared);
    }

    /// Stops every run after this node, if the run could continue. Otherwise like
    /// [`stop_before`](Self::stop_before).
    ///
    /// # Panics
    /// If `node` is not a node of this graph.
    #[track_caller]
    pub fn stop_after(&mut self, node: impl Into<NodeRef>) {
        let declared = self.stop(node.into());
        self.stops.after.push(declared);
    }

    #[track_caller]
    fn stop(&self, node: NodeRef) -> usize {
        let Endpoint::Node(declared) = self.endpoint(node) else {
            panic!("only at a node of graph `{}` can its runs stop", self.name);
        };
        declared
    }

    /// Sets the update that remains of an unfinished task of `node` when a new input discards it. `keep`
    /// receives the task's state and its [effects](crate::Cx::once), and returns an update, which is stored
    /// before the input. A finished task of an incomplete superstep retains its own update.
    ///
    /// By default nothing remains, although the task's effects cannot be undone.
    ///
    /// `keep` is a pure function, like a router. It is also called if the task never started.
    ///
    /// ```
    /// # use superstep_graph::{Cx, NodeError, START, State, StateGraph};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Order { receipt: String }
    /// # async fn charge(key: &str) -> Result<String, std::io::Error> { Ok("r-1".to_owned()) }
    /// async fn pay(_: Order, cx: Cx) -> Result<OrderUpdate, NodeError> {
    ///     let receipt = cx.once("charge", async |key: String| charge(&key).await).await?;
    ///     let _seen: bool = cx.interrupt("show", &receipt).await;
    ///     Ok(Order::update().receipt(receipt))
    /// }
    /// let mut graph = StateGraph::<Order>::new("orders");
    /// let pay = graph.add_node("pay", pay);
    /// graph.add_edge(START, pay);
    /// graph.on_discard(pay, |_, task| match task.did::<String>("charge") {
    ///     Some(receipt) => Order::update().receipt(receipt),
    ///     None => Order::update(),
    /// });
    /// ```
    ///
    /// # Panics
    /// If `node` is not a node of this graph.
    #[track_caller]
    pub fn on_discard(
        &mut self,
        node: impl Into<NodeRef>,
        keep: impl Fn(&S, &Discarded<'_>) -> S::Update + Send + Sync + 'static,
    ) {
        let declared = self.declared(node.into(), "can be discarded");
        self.discards.push((declared, Arc::new(keep)));
    }

    /// Declares which ends are failures: those for whose state `reason` returns a text. A graph may run to its end without
    /// its purpose, as an agent does whose model is unavailable. The attempt of a job then fails with the reason, and the
    /// next one runs `again`, from the last checkpoint at which it was next; [`Thread::retry_failed_end`] does the same
    /// elsewhere. A graph may have several such nodes; the last declaration for a node counts, and of several reasons the first one.
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
        self.failed_ends.retain(|(earlier, _)| *earlier != declared);
        self.failed_ends.push((declared, Arc::new(reason)));
    }
}
