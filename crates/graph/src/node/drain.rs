//! Drains: requests to end a run between two supersteps.
//!
//! Start at [`Drain`].

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

/// A request to end runs without loss, after the current superstep. Clones share the request.
///
/// A program that is about to stop passes one to all its runs with
/// [`Thread::drain`](crate::Thread::drain). Unlike a cancellation it drops no task. It cannot be
/// revoked, so the run that continues needs a new one.
///
/// ```
/// # use superstep_graph::{CompiledGraph, RunError, State, thread::Drain};
/// # async fn example<S: State>(graph: CompiledGraph<S>, input: S::Update) -> Result<(), RunError> {
/// let drain = Drain::new();
/// let run = graph.thread("report-3").drain(drain.clone()).run(input);
/// drain.request("a new version is installed");
/// assert_eq!(run.await?.drained.as_deref(), Some("a new version is installed"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Drain(Arc<OnceLock<String>>);

impl Drain {
    /// Creates a drain without a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the drain. The first reason is retained.
    pub fn request(&self, reason: impl Into<String>) {
        self.0.get_or_init(|| reason.into());
    }

    /// Returns the reason of the request, if there is one.
    pub fn requested(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Drain").field(&self.requested()).finish()
    }
}
