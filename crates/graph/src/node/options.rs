//! The options of nodes.
//!
//! Start at [`NodeOptions`].

use std::time::Duration;

use superstep_engine::OnCancel;

use crate::Retries;

/// The options of a node.
#[derive(Clone)]
pub struct NodeOptions {
    /// The retry rules.
    pub retry: Retries,
    /// The time limit of one attempt. It takes effect when the node waits: code that blocks its thread cannot
    /// be stopped.
    pub timeout: Option<Duration>,
    /// The maximum time without activity of an attempt: an event that it emits, or
    /// [`Cx::heartbeat`](crate::Cx::heartbeat). Activity of a called graph counts too, and so does the end of
    /// a task there.
    pub idle_timeout: Option<Duration>,
    /// The maximum number of concurrent tasks of the node, in each superstep; `None` for all, 0 counts as 1.
    /// Tasks of other nodes may run meanwhile, up to
    /// [`Thread::max_concurrency`](crate::Thread::max_concurrency).
    pub max_concurrency: Option<usize>,
    /// The behaviour when the run is cancelled.
    pub on_cancel: OnCancel,
    /// `true` if it waits, after it is reached, until no other task is left. Not possible for a worker or an
    /// error handler.
    pub deferred: bool,
}

impl Default for NodeOptions {
    /// Returns no retries, no timeout, and dropping when the run is cancelled.
    fn default() -> Self {
        Self {
            retry: Retries::default(),
            timeout: None,
            idle_timeout: None,
            max_concurrency: None,
            on_cancel: OnCancel::Drop,
            deferred: false,
        }
    }
}

/// The storage of a called graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Persistence {
    /// On a thread per calling task, below the caller's. A repeated task continues it, another task starts
    /// anew.
    #[default]
    PerTask,
    /// On one thread per node, below the caller's: its state persists across the node's tasks, and each task
    /// gives it an input. Pending work of an earlier task is discarded.
    PerNode,
    /// Without storage. A repeated task starts it anew, with the answers given so far and the
    /// results of its effects ([`Cx::once`](crate::Cx::once)).
    Ephemeral,
}
