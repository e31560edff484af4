//! Which failures of a node are tried again.

use std::{fmt, sync::Arc};

use superstep_engine::RetryPolicy;

use crate::NodeError;

/// Which failures of a node are tried again, and how often: rules, of which the first that fits a failure counts. Without
/// any, none is.
///
/// A [`RetryPolicy`] becomes the one rule for everything that may pass, [`NodeError::is_transient`].
/// # Example: a busy server is given more time than anything else
/// ```
/// # use std::io;
/// # use superstep_graph::{NodeError, NodeOptions, Retries, RetryPolicy};
/// let busy = |error: &NodeError| {
///     error.cause().downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::ResourceBusy)
/// };
/// let patient = RetryPolicy { max_attempts: 8, ..RetryPolicy::default() };
/// let retry = Retries::on(busy, patient).or(RetryPolicy::default());
/// let options = NodeOptions { retry, ..NodeOptions::default() };
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
    /// One rule: failures that fit are tried again as `policy` says. Nobody is asked about fatal ones. Attempts count for the
    /// task, whichever rules they fell under.
    pub fn on(fits: impl Fn(&NodeError) -> bool + Send + Sync + 'static, policy: RetryPolicy) -> Self {
        Self(vec![Rule { fits: Arc::new(fits), policy }])
    }

    /// These rules, then the others.
    #[must_use]
    pub fn or(mut self, others: impl Into<Self>) -> Self {
        self.0.extend(others.into().0);
        self
    }

    /// How a task that failed like this is tried again.
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
