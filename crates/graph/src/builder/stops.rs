//! Breakpoints of every run of a graph.

use std::panic::Location;

use superstep_engine::{Endpoint, Problem, ProblemKind};

use super::state_graph::StateGraph;
use crate::{State, node::refs::NodeRef};

/// Where runs stop, by the position of the declaration.
#[derive(Default)]
pub(super) struct Stops {
    pub(super) before: Vec<usize>,
    pub(super) after: Vec<usize>,
}

impl<S: State> StateGraph<S> {
    /// Every run stops before this node runs, beside where its own [`Breakpoints`](crate::Breakpoints) say. A run that begins
    /// there passes it. Before an error handler nothing can stop: it is in no plan.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use superstep_graph::{Cx, MemoryCheckpointer, RunConfig, START, State, StateGraph, Status};
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Order { paid: bool }
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let mut graph = StateGraph::<Order>::new("order");
    /// let pay = graph.add_node("pay", async |_: Order, _: Cx| Order::update().paid(true));
    /// graph.add_edge(START, pay);
    /// graph.stop_before(pay);
    /// let graph = graph.compile()?.with_checkpointer(Arc::new(MemoryCheckpointer::new()));
    /// let stopped = graph.invoke(Order::update(), RunConfig::thread("t")).await?;
    /// assert_eq!((stopped.status, stopped.state.paid), (Status::Interrupted, false));
    /// assert!(graph.resume(RunConfig::thread("t")).await?.state.paid);
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

    /// Every run stops after this node has run, if it could go on. Otherwise as [`stop_before`](Self::stop_before).
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
