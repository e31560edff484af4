//! A node that is a graph, from its caller's view.
//!
//! Start at [`Subgraph`].

use std::{any::Any, sync::Arc};

use futures::future::BoxFuture;

use crate::{CheckpointId, Checkpointer, RunError, State, ThreadId, node::Persistence};

/// The position of a subgraph on its thread.
#[derive(Clone, Copy)]
pub(crate) enum At {
    Head,
    /// The position referenced by the checkpoint `caller` of its caller.
    Checkpoint {
        found: CheckpointId,
        caller: CheckpointId,
    },
    /// The subgraph has no position: it has not been called on that branch of its caller.
    Nowhere,
}

/// The remaining part of a path to a subgraph.
pub(crate) struct RemainingPath {
    pub(crate) checkpointer: Arc<dyn Checkpointer>,
    /// The remaining nodes of the path.
    pub(crate) path: std::vec::IntoIter<String>,
    /// `true` to read the values at the end of the path.
    pub(crate) reads_values: bool,
}

/// A node of a graph on `S` that runs another graph.
pub(crate) trait Subgraph<S: State>: Send + Sync {
    fn persistence(&self) -> Persistence;

    /// Returns the graph at the end of the path, as a `LocatedSubgraph` of its state, or its values, as an `Option<SubgraphValues>`.
    /// `state` is the node's state.
    fn find(
        &self,
        state: S,
        thread: (ThreadId, At),
        down: RemainingPath,
    ) -> BoxFuture<'static, Result<Box<dyn Any + Send>, RunError>>;

    /// Checks that its thread can be resumed. `state` is the node's state.
    ///
    /// # Errors
    /// See [`check`](crate::run::resumable::check).
    fn check(
        &self,
        state: S,
        checkpointer: Arc<dyn Checkpointer>,
        thread: ThreadId,
    ) -> BoxFuture<'static, Result<(), RunError>>;
}
