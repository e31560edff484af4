//! Work that a run does before it writes to its thread.
//!
//! Start at [`BeforeWrite`].

use futures::future::BoxFuture;
use superstep_checkpoint::CheckpointError;

use crate::{CheckpointId, ThreadId};

/// A function that a run calls before each write of results to its thread, and whose future it waits for. An error ends the run, as
/// an error of the write does.
///
/// See [`RunOptions::before_writes`](crate::RunOptions::before_writes).
pub type BeforeWrite =
    dyn Fn(PendingWrite) -> BoxFuture<'static, Result<(), CheckpointError>> + Send + Sync + 'static;

/// A write that is about to be made, or, with [`Durability::Async`](crate::Durability::Async), to be queued.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingWrite {
    /// The thread, of the run or of a graph that it called.
    pub thread: ThreadId,
    /// The checkpoint that the write creates; `None` for the results of some tasks of a superstep.
    pub checkpoint: Option<CheckpointId>,
}
