//! Work of a program after a turn.
//!
//! Start at [`AfterTurn`].

use std::sync::Arc;

use futures::future::BoxFuture;
use superstep_graph::RunOptions;

/// Work after an ended turn, such as the consolidation of memories.
pub trait AfterTurn: Send + Sync {
    /// Runs after a turn of the user, with the options of its run. `user` is the
    /// [owner of the memory](crate::AgentState::memory_owner). Its failures do not reach the reply; it reports them itself.
    fn after_turn<'a>(&'a self, user: &'a str, options: RunOptions) -> BoxFuture<'a, ()>;
}

impl<A: AfterTurn + ?Sized> AfterTurn for Arc<A> {
    fn after_turn<'a>(&'a self, user: &'a str, options: RunOptions) -> BoxFuture<'a, ()> {
        (**self).after_turn(user, options)
    }
}
