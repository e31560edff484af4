//! Checks beyond validity: lints, and declared writes.

use std::panic::Location;

use superstep_engine::{Endpoint, Level, Lint, WritesSpec};

use super::state_graph::StateGraph;
use crate::{State, node::refs::NodeRef};

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
}
