//! Breakpoints of every run of a graph.

use std::panic::Location;

use superstep_engine::{Endpoint, Problem, ProblemKind};

use super::state_graph::StateGraph;
use crate::{State, node::refs::NodeRef};

impl<S: State> StateGraph<S> {
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
}
