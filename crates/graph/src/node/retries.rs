//! The retry rules of a node.

use std::{fmt, sync::Arc};

use superstep_engine::RetryPolicy;

use crate::NodeError;

/// The retry rules of a node: the first rule that matches a failure decides. Without rules no failure is
/// retried.
///
/// A [`RetryPolicy`] converts into a single rule for transient failures, [`NodeError::is_transient`].
/// # Example: more attempts for a busy server
/// ```
/// # use std::io;
/// # use superstep_graph::{NodeError, NodeOptions, Retries, RetryPolicy};
/// let busy = |error: &NodeError| {
///     error.cause().downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::ResourceBusy)
/// };
/// let patient = RetryPolicy::attempts(8);
/// let retry = Retries::on(busy, patient).or(RetryPolicy::default());
/// let options = NodeOptions::new().retry(retry);
/// # let _ = options;
/// ```
/// # Source
/// A sequence of langgraph's `RetryPolicy`, each with its `retry_on`.
#[derive(Clone, Default)]
pub struct Retries(Vec<Rule>);

#[derive(Clone)]
struct Rule {
    fits: Arc<dyn Fn(&NodeError) -> bool + Send + Sync>,
    policy: RetryPolicy,
}

impl Retries {
    /// Creates one rule: matching failures are retried by `policy`. Fatal failures are never retried.
    /// Attempts count for the task, across all rules.
    pub fn on(fits: impl Fn(&NodeError) -> bool + Send + Sync + 'static, policy: RetryPolicy) -> Self {
        Self(vec![Rule { fits: Arc::new(fits), policy }])
    }

    /// Appends the other rules after these.
    #[must_use]
    pub fn or(mut self, others: impl Into<Self>) -> Self {
        self.0.extend(others.into().0);
        self
    }

    /// Returns the retry policy for a failure of a task.
    pub(crate) fn policy(&self, error: &NodeError) -> Option<RetryPolicy> {
        self.0.iter().find(|rule| !error.is_fatal() && (rule.fits)(error)).map(|rule| rule.policy)
    }
}

impl From<RetryPolicy> for Retries {
    fn from(policy: RetryPolicy) -> Self {
        Self::on(NodeError::is_transient, policy)
    }
}

impl fmt::Debug for Retries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|rule| rule.policy)).finish()
    }
}
