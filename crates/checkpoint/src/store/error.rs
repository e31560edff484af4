//! The errors of stores.

use std::error::Error;

use superstep_engine::NodeName;

use super::Namespace;
use crate::CheckpointError;

/// The error of an embedding.
pub type EmbedError = Box<dyn Error + Send + Sync>;

/// A failed operation of a store.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Labels that do not form a valid namespace.
    #[error("SS305: invalid namespace `{namespace}`: {why}")]
    Namespace {
        /// The labels, joined with `.`.
        namespace: String,
        /// The problem and a remedy.
        why: &'static str,
    },
    /// An invalid filter.
    #[error("SS306: {what}")]
    Filter {
        /// The problem and a remedy.
        what: String,
    },
    /// A search by meaning in a store without an embedding.
    #[error(
        "SS307: the store has no embedding model, so it cannot search by meaning; search for words, or set \
         `StoreOptions::embed`"
    )]
    NoEmbedding,
    /// The embedding failed or returned an invalid result.
    #[error("SS308: the embedding of model `{model}` failed: {what}")]
    Embedding {
        /// The model's name.
        model: String,
        /// A description of the problem.
        what: String,
        /// The cause.
        #[source]
        source: Option<EmbedError>,
    },
    /// A value that cannot be stored and read back as equal.
    #[error("SS309: the value of item `{key}` in `{namespace}` cannot be stored; give it another form")]
    Unstorable {
        /// The namespace of the item.
        namespace: Namespace,
        /// The key of the item.
        key: String,
        /// The error of the serializer.
        #[source]
        source: serde_json::Error,
    },
    /// The storage cannot be opened, read or written.
    #[error("SS303: {what}")]
    Storage {
        /// The failed operation, its place, and a remedy.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// A key of encrypted data is unknown or cannot be obtained.
    #[error("SS316: {what}")]
    Key {
        /// The data, the id of its key, and a remedy.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Data is not encrypted where encryption is required.
    #[error("SS317: {what}")]
    Unencrypted {
        /// The data and a remedy.
        what: String,
    },
    /// The storage contains data that this program did not write.
    #[error("SS304: {what}")]
    Corrupt {
        /// The problem and its place.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl StoreError {
    /// Returns whether the request itself is invalid, so that it would fail again.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            Self::Namespace { .. } | Self::Filter { .. } | Self::NoEmbedding | Self::Unstorable { .. }
        )
    }
}

/// A node that requested the store of a graph without one.
#[derive(Debug, thiserror::Error)]
#[error(
    "SS185: node `{node}` requested the store, but the graph has none; add one with \
     `CompiledGraph::with_store`"
)]
pub struct NoStore {
    /// The node.
    pub node: NodeName,
}

/// Converts the error of a store that shares a database with a checkpointer.
impl From<CheckpointError> for StoreError {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Storage { what, source } => Self::Storage { what, source },
            CheckpointError::Corrupt { what, source } => Self::Corrupt { what, source },
            CheckpointError::Key { what, source } => Self::Key { what, source },
            CheckpointError::Unencrypted { what } => Self::Unencrypted { what },
            other => Self::Storage { what: "the database is in use".into(), source: Some(other.into()) },
        }
    }
}

superstep_state::debug_by_chain!(StoreError);
