//! Ending a run between two supersteps.
//!
//! Start at [`Drain`].

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

/// Asks runs to end where nothing is lost: after the superstep they are in. Clones are the same request.
///
/// A program that is about to stop hands one to all its runs with [`RunConfig::drain`](crate::RunConfig::drain). Unlike a
/// cancel it drops no task. What it was asked for cannot be taken back, so the run that goes on needs a new one.
///
/// ```
/// # use superstep_graph::{Drain, RunConfig};
/// let drain = Drain::new();
/// let config = RunConfig { drain: drain.clone(), ..RunConfig::thread("report-3") };
/// drain.request("a new version is installed");
/// assert_eq!(config.drain.requested(), Some("a new version is installed"));
/// ```
#[derive(Clone, Default)]
pub struct Drain(Arc<OnceLock<String>>);

impl Drain {
    /// Nothing is requested yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for it. The first reason stands.
    pub fn request(&self, reason: impl Into<String>) {
        self.0.get_or_init(|| reason.into());
    }

    /// Why it was asked for, if it was.
    pub fn requested(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Drain").field(&self.requested()).finish()
    }
}
