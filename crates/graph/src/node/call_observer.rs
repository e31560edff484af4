//! Observers of the calls that nodes make to their `Cx`.
//!
//! Start at [`CxObserver`].

use std::fmt;

use futures::future::BoxFuture;
use superstep_checkpoint::SubgraphPath;
use superstep_engine::NodeName;

/// Observes the beginnings and ends of nodes and their calls of [`Cx`](crate::Cx), for simulators: see
/// [`RunOptions::observe_calls`](crate::RunOptions::observe_calls).
pub trait CxObserver: Send + Sync {
    /// Called by a function of `Cx` that does not wait.
    fn passes(&self, at: CxCall<'_>);

    /// Called at the beginning and the end of a node, and by functions of `Cx` that wait. The node continues when the future
    /// ends.
    fn waits(&self, at: CxCall<'_>) -> BoxFuture<'static, ()>;
}

/// A place in a node where an observer is called. Its text names the node and the place.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CxCall<'a> {
    /// The calling graphs down to that of the node.
    pub path: &'a SubgraphPath,
    /// The node.
    pub node: &'a NodeName,
    /// The place: `begin` and `end` of the node, `before once`, `after once`, `before store`, `emit`, ...
    pub place: &'static str,
    /// The name of the effect, question or event; empty if there is none.
    pub name: &'a str,
}

impl fmt::Display for CxCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.0.iter().map(|segment| segment.node.as_str());
        let path: Vec<_> = path.chain([self.node.as_str()]).collect();
        write!(f, "`{}`, {}", path.join("/"), self.place)?;
        if self.name.is_empty() { Ok(()) } else { write!(f, " `{}`", self.name) }
    }
}
