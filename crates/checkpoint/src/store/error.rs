//! What can go wrong with a store.

use std::{error::Error, fmt};

use superstep_engine::NodeName;

use super::{EmbedError, Namespace};
use crate::{CheckpointError, chain};

/// A store that could not do what it was asked.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Labels that make no namespace.
    #[error("SS305: `{namespace}` is no namespace: {why}")]
    Namespace {
        /// The labels, joined with `.`.
        namespace: String,
        /// What is wrong and what to do.
        why: &'static str,
    },
    /// A filter that cannot be understood.
    #[error("SS306: {what}")]
    Filter {
        /// What is wrong and what to do.
        what: String,
    },
    /// A search by meaning in a store without an embedding.
    #[error(
        "SS307: this store was given no embedding, so it cannot search by meaning; search for words, or give it one \
         with `StoreOptions::embed`"
    )]
    NoEmbedding,
    /// The embedding failed, or gave something that is no embedding.
    #[error("SS308: the embedding of model `{model}` failed: {what}")]
    Embedding {
        /// The model's name.
        model: String,
        /// What happened.
        what: String,
        /// The cause.
        #[source]
        source: Option<EmbedError>,
    },
    /// A value that cannot be stored so that it can be read again.
    #[error("SS309: the value of item `{key}` in `{namespace}` cannot be stored; give it another form")]
    Unstorable {
        /// Where.
        namespace: Namespace,
        /// Which item.
        key: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The storage cannot be opened, read or written.
    #[error("SS303: {what}")]
    Storage {
        /// What failed, where, and what to do.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The storage holds something that this program did not write.
    #[error("SS304: {what}")]
    Corrupt {
        /// What is wrong and where.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl StoreError {
    /// Whether the same request would fail again, because the request is what is wrong.
    pub fn is_misuse(&self) -> bool {
        matches!(
            self,
            Self::Namespace { .. } | Self::Filter { .. } | Self::NoEmbedding | Self::Unstorable { .. }
        )
    }
}

/// A node that asked for the store of a graph that has none.
#[derive(Debug, thiserror::Error)]
#[error(
    "SS185: node `{node}` asked for the store, and the graph was given none; compile it and add `.with_store(..)`"
)]
pub struct NoStore {
    /// The node.
    pub node: NodeName,
}

/// For stores that share a database with a checkpointer.
impl From<CheckpointError> for StoreError {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Storage { what, source } => Self::Storage { what, source },
            CheckpointError::Corrupt { what, source } => Self::Corrupt { what, source },
            other => Self::Storage { what: "the database is in use".into(), source: Some(other.into()) },
        }
    }
}

/// Its code, message, help and causes, not its fields: what `main` shows of it.
impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(self))
    }
}
