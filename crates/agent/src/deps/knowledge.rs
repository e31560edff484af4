//! Knowledge: external sources that an agent searches beside its memory.
//!
//! Start at [`Knowledge`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::deps::MemoryFuture;

/// A searchable collection of texts: documents, a wiki, a vector database.
///
/// The node `retrieve` searches it for each new user message; see [`Retrieve`](crate::config::Retrieve). The results
/// are data for the model, and delimited as such.
pub trait Knowledge: Send + Sync {
    /// Returns its name, for events.
    fn name(&self) -> &str;

    /// Returns the passages that match `query`, best first, at most `limit`.
    fn search<'a>(&'a self, query: &'a str, limit: usize) -> MemoryFuture<'a, Vec<Passage>>;
}

impl<K: Knowledge + ?Sized> Knowledge for Arc<K> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> MemoryFuture<'a, Vec<Passage>> {
        (**self).search(query, limit)
    }
}

/// A found piece of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// The source of the passage in a form that the model can quote: a title, a path, an address.
    pub source: String,
    /// The text.
    pub text: String,
}
