//! Settings of a node.
//!
//! Start at [`NodeOptions`].

use std::time::Duration;

use superstep_engine::OnCancel;

use crate::Retries;

/// How a node is run.
#[derive(Clone)]
pub struct NodeOptions {
    /// After which failures it runs again, and how often.
    pub retry: Retries,
    /// How long one attempt may take. It is noticed while the node waits: what blocks its thread cannot be stopped.
    pub timeout: Option<Duration>,
    /// How long an attempt may go without a sign of life: an event that it sends, or
    /// [`Cx::heartbeat`](crate::Cx::heartbeat). The same in a graph that it calls is one too, and so is the end of a task
    /// there.
    pub idle_timeout: Option<Duration>,
    /// How many of its tasks may run at the same time, in each superstep; `None` for all, and 0 counts as 1. Others may run
    /// meanwhile, as many as [`RunConfig::max_concurrency`](crate::RunConfig::max_concurrency) lets.
    pub max_concurrency: Option<usize>,
    /// What happens to it when the run is cancelled.
    pub on_cancel: OnCancel,
    /// Whether it waits, once it is reached, until nothing else is left to run. A worker or an error handler cannot.
    pub deferred: bool,
}

impl Default for NodeOptions {
    /// No retries, no timeout, dropped when the run is cancelled.
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

/// Where a graph that another one calls is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Persistence {
    /// On a thread for the task that calls it, under the caller's. A task that runs again goes on with it, another task
    /// begins anew.
    #[default]
    Inherited,
    /// On one thread under the caller's, whichever task of the node calls it: its state lives on, and each task gives it
    /// an input. What it had still to run for a task that is gone is discarded.
    Own,
    /// Nowhere. A task that runs again has it begin anew, with the answers that were given so far.
    None,
}
