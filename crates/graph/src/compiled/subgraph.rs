//! A node that is a graph, as its caller knows it.
//!
//! Start at [`Subgraph`].

use std::{any::Any, sync::Arc};

use futures::future::BoxFuture;

use crate::{CheckpointId, Checkpointer, Persistence, RunError, State, ThreadId};

/// Where on its thread a subgraph is.
#[derive(Clone, Copy)]
pub(crate) enum At {
    Head,
    /// Where the checkpoint `caller` of its caller finds it.
    Checkpoint {
        found: CheckpointId,
        caller: CheckpointId,
    },
    /// Nowhere: nothing has called it yet on that branch of its caller.
    Nowhere,
}

/// What is left of the way down.
pub(crate) struct Down {
    pub(crate) checkpointer: Arc<dyn Checkpointer>,
    /// The nodes still to go down through.
    pub(crate) path: std::vec::IntoIter<String>,
}

/// A node of a graph on `S` that runs another graph.
pub(crate) trait Subgraph<S: State>: Send + Sync {
    fn persistence(&self) -> Persistence;

    /// The graph at the end of the way, a `Found` of its state. `state` is what the node is given.
    fn find(
        &self,
        state: S,
        thread: (ThreadId, At),
        down: Down,
    ) -> BoxFuture<'static, Result<Box<dyn Any + Send>, RunError>>;
}
