//! The threads of subgraphs, relative to the thread of the calling graph.
//!
//! ```text
//! t                          a thread
//! t ␟ sub:0@2                the subgraph of its task 0 of checkpoint 2, node `sub`
//! t ␟ sub:0@2 ␟ inner:1@3:k  a graph that a task of that one called under the key `k`
//! t ␟ memory                 a subgraph of its own persistence: one thread for all calling tasks
//! ```
//!
//! Start at [`ThreadId::child`].

use std::fmt;

use serde::{Serialize, Serializer};
use superstep_engine::NodeName;

use crate::{CheckpointId, ThreadId, ids::SEPARATOR};

/// One step from a graph to a subgraph: the calling task and the key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment {
    /// The node of the calling task.
    pub node: NodeName,
    /// The task: its slot and the checkpoint where it is pending. The first such checkpoint, if external
    /// updates left the task to later ones; 0 if no checkpoint is stored. `None` for a subgraph with one
    /// thread for all calling tasks.
    pub task: Option<(u32, CheckpointId)>,
    /// The key that distinguishes the graphs called by one task; empty for a subgraph that is a node.
    pub key: String,
}

/// The path from a graph to a subgraph; empty for the graph itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubgraphPath(pub Vec<Segment>);

impl SubgraphPath {
    /// Returns whether it is the graph itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the nodes on the path, outermost first.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.0.iter().map(|segment| &segment.node)
    }
}

impl ThreadId {
    /// Returns the thread of a subgraph of this thread's graph. A checkpointer stores it with its
    /// [`root`](Self::root): it is not among the [`threads`](crate::Checkpointer::threads), and is deleted
    /// with its root.
    #[must_use]
    pub fn child(&self, segment: &Segment) -> Self {
        Self::from(format!("{}{SEPARATOR}{segment}", self.as_str()))
    }

    /// Returns whether it is a thread of a subgraph.
    pub fn is_child(&self) -> bool {
        self.as_str().contains(SEPARATOR)
    }

    /// Returns the thread on which the run started; itself if it is not of a subgraph.
    #[must_use]
    pub fn root(&self) -> Self {
        match self.as_str().split_once(SEPARATOR) {
            Some((root, _)) => root.into(),
            None => self.clone(),
        }
    }

    /// Returns the thread of the graph that called the subgraph, and how; `None` if it is of no subgraph.
    pub fn parent(&self) -> Option<(Self, Segment)> {
        let (parent, segment) = self.as_str().rsplit_once(SEPARATOR)?;
        Some((parent.into(), Segment::parse(segment)))
    }

    /// Returns whether it is a thread of a subgraph under another thread, at any depth.
    pub fn is_under(&self, thread: &Self) -> bool {
        let rest = self.as_str().strip_prefix(thread.as_str());
        rest.is_some_and(|rest| rest.starts_with(SEPARATOR))
    }

    /// Returns the checkpoint of `thread` that this thread is there for: the one whose task called the
    /// subgraph. `None` if it is not under that thread, or is there for all of its checkpoints.
    pub fn caller_under(&self, thread: &Self) -> Option<CheckpointId> {
        let rest = self.as_str().strip_prefix(thread.as_str())?.strip_prefix(SEPARATOR)?;
        let segment = rest.split(SEPARATOR).next()?;
        Segment::parse(segment).task.map(|(_, checkpoint)| checkpoint)
    }

    /// Returns the name of a thread under `from`, moved to `to`.
    #[must_use]
    pub fn moved(&self, from: &Self, to: &Self) -> Self {
        match self.as_str().strip_prefix(from.as_str()) {
            Some(rest) => Self::from(format!("{}{rest}", to.as_str())),
            None => self.clone(),
        }
    }

    /// Returns the path from the root to this thread.
    pub fn path(&self) -> SubgraphPath {
        SubgraphPath(self.as_str().split(SEPARATOR).skip(1).map(Segment::parse).collect())
    }
}

impl Segment {
    /// Parses the output of [`Display`](fmt::Display). Any other text counts as a node's name.
    #[doc(hidden)]
    pub fn parse(text: &str) -> Self {
        let own = |node: &str, key: &str| Self { node: node.into(), task: None, key: key.to_owned() };
        let Some((node, rest)) = text.split_once(':') else { return own(text, "") };
        if let Some(key) = rest.strip_prefix(':') {
            return own(node, key);
        }
        let (task, key) = rest.split_once(':').unwrap_or((rest, ""));
        let task = task.split_once('@').and_then(|(slot, checkpoint)| {
            Some((slot.parse().ok()?, CheckpointId(checkpoint.parse().ok()?)))
        });
        match task {
            Some(task) => Self { node: node.into(), task: Some(task), key: key.to_owned() },
            None => own(text, ""),
        }
    }
}

/// Writes `node:slot@checkpoint`, or `node` if it has a thread of its own; the key follows.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, task, key } = self;
        match task {
            Some((slot, checkpoint)) => write!(f, "{node}:{slot}@{checkpoint}")?,
            // A second colon in place of a slot.
            None if !key.is_empty() => write!(f, "{node}:")?,
            None => write!(f, "{node}")?,
        }
        if key.is_empty() { Ok(()) } else { write!(f, ":{key}") }
    }
}

/// Serializes the path as its text.
impl Serialize for SubgraphPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Writes the segments, separated by `/`.
impl fmt::Display for SubgraphPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, segment) in self.0.iter().enumerate() {
            write!(f, "{}{segment}", if nth == 0 { "" } else { "/" })?;
        }
        Ok(())
    }
}

/// Writes the name; for the thread of a subgraph, its root's name and the path, separated by `/`.
impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_str().split_once(SEPARATOR) {
            Some((root, _)) => write!(f, "{root}/{}", self.path()),
            None => f.write_str(self.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(node: &str, task: Option<(u32, u64)>, key: &str) -> Segment {
        let task = task.map(|(slot, checkpoint)| (slot, CheckpointId(checkpoint)));
        Segment { node: node.into(), task, key: key.into() }
    }

    #[test]
    fn a_path_is_parsed_and_formatted_losslessly() {
        let segments = [
            segment("sub", Some((0, 2)), ""),
            segment("sub", Some((7, 19)), "k:0@3"),
            segment("sub", None, ""),
            segment("sub", None, "0@3"),
            segment("a/b", Some((0, 1)), ":"),
        ];
        let mut thread = ThreadId::from("t/1:0@2");
        for segment in &segments {
            let child = thread.child(segment);
            assert_eq!(child.parent(), Some((thread, segment.clone())));
            thread = child;
        }
        assert_eq!(thread.root(), "t/1:0@2".into());
        assert_eq!(thread.path().0, segments);
        assert_eq!(thread.path().to_string(), "sub:0@2/sub:7@19:k:0@3/sub/sub::0@3/a/b:0@1::");
    }

    #[test]
    fn a_thread_of_no_subgraph_is_its_own_root() {
        let thread = ThreadId::from("sub:0@2");
        assert_eq!((thread.is_child(), thread.parent(), thread.root()), (false, None, thread.clone()));
        assert!(thread.path().is_root());
    }

    #[test]
    fn an_arbitrary_text_is_a_node_name() {
        let thread = ThreadId::from("t\u{1f}x:y\u{1f}:");
        assert_eq!(thread.path().0, [segment("x:y", None, ""), segment(":", None, "")]);
    }
}
