//! Actions on threads that concern more than their checkpoints.
//!
//! Start at [`ThreadActions`].

use futures::future::BoxFuture;
use superstep_graph::{CheckpointId, ThreadId, checkpoint::Retention};

/// The actions of the studio on threads of a graph that concern more than their checkpoints, such as files that tools changed. Errors
/// are texts for the user.
///
/// Without them the studio copies, prunes and deletes checkpoints, and neither steers runs nor restores files.
pub trait ThreadActions: Send + Sync {
    /// Sends a message to the run of a thread, which reads it before its next call of a model.
    ///
    /// # Errors
    /// The thread does not run.
    fn steer(&self, thread: ThreadId, text: String) -> BoxFuture<'_, Result<(), String>>;

    /// Copies a thread to a new name.
    ///
    /// # Errors
    /// The name is taken, or something cannot be copied.
    fn copy(&self, from: ThreadId, to: ThreadId) -> BoxFuture<'_, Result<(), String>>;

    /// Deletes older checkpoints, and returns their number.
    ///
    /// # Errors
    /// The thread is busy, or something cannot be deleted.
    fn prune(&self, thread: ThreadId, keep: Retention) -> BoxFuture<'_, Result<usize, String>>;

    /// Deletes a thread.
    ///
    /// # Errors
    /// The thread is busy, or something cannot be deleted.
    fn delete(&self, thread: ThreadId) -> BoxFuture<'_, Result<(), String>>;

    /// Restores the files that tools changed after a checkpoint, and returns what was done, a line for each file.
    ///
    /// # Errors
    /// The thread is not finished, files have changed since, or they are not stored.
    fn revert(&self, thread: ThreadId, to: CheckpointId) -> BoxFuture<'_, Result<Vec<String>, String>>;
}
