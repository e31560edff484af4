//! The graph that a thread belongs to.
//!
//! Start at [`Mark`].

use std::sync::Arc;

use serde_json::{Map, Value};
use superstep_checkpoint::{
    CheckpointMeta, GraphId,
    internal::own::{GRAPH, NONCE, VERSION},
};

/// The ownership mark that is stored with every checkpoint of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) graph: Option<GraphId>,
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
