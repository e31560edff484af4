//! Tools that change over time.

use std::{future::Future, pin::Pin, sync::Arc};

use crate::{ToolRegistry, shared::into_shared};

/// The future of [`ToolSource::refresh`].
pub type RefreshFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A source of tools that change during an agent's life, such as those of a server.
///
/// An agent reads the tools at the start of each superstep that uses them, and does not change them until
/// that superstep ends: a running round of calls is not affected.
pub trait ToolSource: Send + Sync {
    /// Returns the currently known tools.
    fn tools(&self) -> Arc<ToolRegistry>;

    /// Updates the tools. If the update fails, the tools do not change.
    fn refresh(&self) -> RefreshFuture<'_>;
}

into_shared!(ToolSource);
