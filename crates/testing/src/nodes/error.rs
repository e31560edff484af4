//! Tests that do not fit their graph.
//!
//! Start at [`NodeTestError`].

use std::fmt::{self, Display};

use superstep_graph::{
    CompileError, CompiledGraph, Interrupt, RunError, State, error::chain, node::NodeName,
};

/// A node test that does not fit its graph, its node or its state. The failure of the node itself is
/// [`Transition::error`](crate::Transition::error).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum NodeTestError {
    /// The graph has no such node.
    #[error("graph `{graph}` has no node `{node}`; its nodes are {}", list(.nodes))]
    UnknownNode {
        /// The graph.
        graph: String,
        /// The requested name.
        node: String,
        /// The nodes of the graph.
        nodes: Vec<NodeName>,
    },
    /// A worker without an item.
    #[error("node `{node}` is a worker, whose tasks take an item; give one with `item`")]
    NoItem {
        /// The worker.
        node: String,
    },
    /// An item for a node that is not a worker.
    #[error("node `{node}` is not a worker and takes no item")]
    NotAWorker {
        /// The node.
        node: String,
    },
    /// An error handler without a failure.
    #[error("node `{node}` is the error handler of `{of}`; give the failure with `failure`")]
    NoFailure {
        /// The error handler.
        node: String,
        /// The node whose failures it handles.
        of: NodeName,
    },
    /// A failure for a node that is not an error handler.
    #[error("node `{node}` is not an error handler and takes no failure")]
    NotAHandler {
        /// The node.
        node: String,
    },
    /// Answers that no question took.
    #[error("no question took the answer {}; {}", list(.names), if .asked.is_empty() {
        "the node has none".to_owned()
    } else {
        format!("the questions were {}", questions(.asked))
    })]
    NotAsked {
        /// The names of the answers.
        names: Vec<String>,
        /// The questions.
        asked: Vec<Interrupt>,
    },
    /// Results of effects that the node did not use.
    #[error("the given result of {} was not used; {}", list(.names), if .used.is_empty() {
        "the node has no other effects".to_owned()
    } else {
        format!("the other effects were {}", list(.used))
    })]
    UnusedEffects {
        /// The names of the given results.
        names: Vec<String>,
        /// The effects that ran.
        used: Vec<String>,
    },
    /// A chain that did not reach its last node.
    #[error("the chain from `{from}` did not reach `{until}`: it ended after {}", list(.ran))]
    NotReached {
        /// The first node.
        from: String,
        /// The node before which it should stop.
        until: String,
        /// The nodes that ran.
        ran: Vec<NodeName>,
    },
    /// A value without a JSON form.
    #[error("{what} has no JSON form")]
    Unstorable {
        /// The value.
        what: String,
        /// The reason.
        source: serde_json::Error,
    },
    /// A node name of a test context that no graph can have.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A state that cannot be stored, or another run that cannot begin.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl NodeTestError {
    pub(super) fn unknown_node<S: State>(graph: &CompiledGraph<S>, node: &str) -> Self {
        let nodes = graph.topology().names().cloned().collect();
        Self::UnknownNode { graph: graph.name().to_owned(), node: node.to_owned(), nodes }
    }
}

/// The text with its causes, which a failing test shows.
impl fmt::Debug for NodeTestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(self))
    }
}

fn list(names: &[impl Display]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn questions(asked: &[Interrupt]) -> String {
    asked.iter().map(|asked| format!("`{}` {}", asked.key, asked.question)).collect::<Vec<_>>().join(", ")
}
