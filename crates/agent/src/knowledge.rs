//! What an agent can look up beside its memory.
//!
//! Start at [`Knowledge`].

use serde::{Deserialize, Serialize};

use crate::MemoryFuture;

/// A collection of texts in which something can be found for a question: documents, a wiki, a vector database.
///
/// The node `retrieve` asks it for each new message of a user, see [`Retrieve`](crate::Retrieve). What it finds is data for the
/// model, and delimited as such.
pub trait Knowledge: Send + Sync {
    /// Its name, for events.
    fn name(&self) -> &str;

    /// The passages that fit `query`, best first, `limit` at the most.
    fn search<'a>(&'a self, query: &'a str, limit: usize) -> MemoryFuture<'a, Vec<Passage>>;
}

/// A piece of a text that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// Where it is from, in words that the model can quote: a title, a path, an address.
    pub source: String,
    /// What it says.
    pub text: String,
}
