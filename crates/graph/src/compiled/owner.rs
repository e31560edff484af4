//! The graph that a thread belongs to.
//!
//! Start at [`Mark`].

use std::sync::Arc;

use serde_json::{Map, Value};
use superstep_checkpoint::{
    CheckpointError, CheckpointMeta, GraphId,
    internal::own::{self, GRAPH, NONCE, VERSION},
};

use crate::{RunError, State, ThreadId, compiled::graph::Inner};

/// The ownership mark that is stored with every checkpoint of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    graph: Option<GraphId>,
    pub(crate) nonce: Option<String>,
}

impl Mark {
    /// Reads the mark of a stored checkpoint.
    pub(crate) fn of(meta: &CheckpointMeta) -> Self {
        Self { graph: meta.graph(), nonce: meta.nonce().map(str::to_owned) }
    }

    pub(crate) fn with_nonce(self, nonce: Option<String>) -> Self {
        Self { nonce, ..self }
    }

    /// Returns metadata with nothing else.
    pub(crate) fn metadata(&self) -> Arc<Map<String, Value>> {
        let mut metadata = Map::new();
        self.put(&mut metadata);
        metadata.into()
    }

    pub(crate) fn put(&self, metadata: &mut Map<String, Value>) {
        let version = self.graph.as_ref().and_then(|graph| graph.version.as_ref());
        let name = self.graph.as_ref().map(|graph| &graph.name);
        for (entry, text) in [(GRAPH, name), (VERSION, version), (NONCE, self.nonce.as_ref())] {
            match text {
                Some(text) => metadata.insert(entry.to_owned(), text.as_str().into()),
                None => metadata.remove(entry),
            };
        }
    }
}

impl<S: State> Inner<S> {
    fn id(&self) -> GraphId {
        GraphId { name: self.name.clone(), version: self.version.clone() }
    }

    /// Returns the mark of this graph on a thread that has this nonce.
    pub(crate) fn mark(&self, nonce: Option<String>) -> Mark {
        Mark { graph: Some(self.id()), nonce }
    }

    /// Rejects a checkpoint of another graph, and one that no layer has decrypted. Accepts other versions of this one, and older
    /// programs, which stored no mark.
    ///
    /// # Errors
    /// [`RunError::OtherGraph`], or [`CheckpointError::Key`].
    pub(crate) fn owns(&self, thread: &ThreadId, meta: &CheckpointMeta) -> Result<(), RunError> {
        if meta.metadata.contains_key(own::SEALED) {
            let what = format!(
                "thread `{thread}` is encrypted; open it through `SealedCheckpointer`, of the feature `sealed`"
            );
            return Err(CheckpointError::Key { what, source: None }.into());
        }
        match meta.metadata.get(GRAPH).and_then(Value::as_str) {
            Some(name) if name != self.name => {
                Err(self.other(thread, meta.graph().expect("its name is there")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the error for a thread of another graph.
    pub(crate) fn other(&self, thread: &ThreadId, stored: GraphId) -> RunError {
        let (stored, graph) = (Box::new(stored), Box::new(self.id()));
        RunError::OtherGraph { thread: thread.clone(), stored, graph }
    }
}
