//! The options of nodes.
//!
//! Start at [`NodeOptions`].

use std::time::Duration;

use superstep_engine::{NodeName, OnCancel};

use crate::Retries;

/// The options of a node. By default it has one attempt and no limits, and is dropped when the run is cancelled.
///
/// ```
/// # use std::time::Duration;
/// # use superstep_graph::{NodeOptions, RetryPolicy};
/// let options = NodeOptions::new().retry(RetryPolicy::attempts(5)).timeout(Duration::from_secs(30));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub(crate) retry: Retries,
    pub(crate) timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) max_concurrency: Option<usize>,
    pub(crate) on_cancel: OnCancel,
    pub(crate) deferred: bool,
    pub(crate) was: Vec<NodeName>,
}

impl NodeOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self {
            retry: Retries::default(),
            timeout: None,
            idle_timeout: None,
            max_concurrency: None,
            on_cancel: OnCancel::Drop,
            deferred: false,
            was: Vec::new(),
        }
    }

    /// Sets the retry rules, such as a [`RetryPolicy`](crate::RetryPolicy), which retries transient failures.
    #[must_use]
    pub fn retry(self, rules: impl Into<Retries>) -> Self {
        Self { retry: rules.into(), ..self }
    }

    /// Limits how long an attempt takes; `None` is no limit. The limit takes effect when the node waits: code that blocks
    /// its thread cannot be stopped.
    #[must_use]
    pub fn timeout(self, limit: impl Into<Option<Duration>>) -> Self {
        Self { timeout: limit.into(), ..self }
    }

    /// Limits how long an attempt goes without activity: an event that it emits, or
    /// [`Cx::heartbeat`](crate::Cx::heartbeat); `None` is no limit. Activity of a called graph counts too, and so does the
    /// end of a task there.
    #[must_use]
    pub fn idle_timeout(self, limit: impl Into<Option<Duration>>) -> Self {
        Self { idle_timeout: limit.into(), ..self }
    }

    /// Limits how many tasks of the node run at the same time, in each superstep; 0 counts as 1, `None` is no limit.
    /// Tasks of other nodes may run meanwhile, up to [`Thread::max_concurrency`](crate::Thread::max_concurrency).
    #[must_use]
    pub fn max_concurrency(self, tasks: impl Into<Option<usize>>) -> Self {
        Self { max_concurrency: tasks.into(), ..self }
    }

    /// Sets the behaviour when the run is cancelled.
    #[must_use]
    pub fn on_cancel(self, behaviour: OnCancel) -> Self {
        Self { on_cancel: behaviour, ..self }
    }

    /// Defers the node: after it is reached it waits until no other task is left. Not possible for a worker or an error
    /// handler.
    #[must_use]
    pub fn deferred(self) -> Self {
        Self { deferred: true, ..self }
    }

    /// Adds a former name of the node, the latest first: stored tasks of that name resume at this node, with their questions,
    /// answers, effects, attempts and called graphs. Remove it when no thread has such a task any more. No other node may
    /// have the name, or have had it.
    ///
    /// ```
    /// # use superstep_graph::*;
    /// # #[derive(State, Clone, Debug, Default)]
    /// # struct Order { paid: bool }
    /// # let mut graph = StateGraph::<Order>::new("orders");
    /// let review = graph.add_node("review", async |_: Order, _: Cx| Order::update().paid(true));
    /// graph.configure(review, NodeOptions::new().was("check"));
    /// ```
    #[must_use]
    pub fn was(mut self, name: &str) -> Self {
        self.was.push(name.into());
        self
    }
}

impl Default for NodeOptions {
    /// Creates the default options.
    fn default() -> Self {
        Self::new()
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
