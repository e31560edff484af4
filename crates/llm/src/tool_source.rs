//! Tools that come and go.

use std::{future::Future, pin::Pin, sync::Arc};

use crate::ToolRegistry;

/// The future of [`ToolSource::refresh`].
pub type RefreshFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Tools that come and go while an agent lives, such as those of a server that gains some.
///
/// An agent looks here at the beginning of each superstep that has to do with tools, and keeps to what it found until that
/// superstep ends: a round of calls that runs is not disturbed.
pub trait ToolSource: Send + Sync {
    /// The tools as far as is known.
    fn tools(&self) -> Arc<ToolRegistry>;

    /// Learns what has changed, if anything did. What cannot be learned leaves the tools as they were.
    fn refresh(&self) -> RefreshFuture<'_>;
}
