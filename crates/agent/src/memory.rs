//! What an agent remembers across threads.
//!
//! Start at [`LongTermMemory`].

use std::{future::Future, pin::Pin, sync::Arc};

use serde::{Deserialize, Serialize};
use superstep_llm::Message;

/// The future of what a memory does.
pub type MemoryFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, MemoryError>> + Send + 'a>>;

/// A memory that outlives threads, user by user.
pub trait LongTermMemory: Send + Sync {
    /// Stores what is worth remembering of `messages` for a user, and says what that was; nothing if nothing was.
    ///
    /// `key` names this one wish to remember: it is the same when a run that was stopped is resumed and asks again, and a memory
    /// that has seen it for this user stores nothing twice.
    fn add<'a>(
        &'a self,
        messages: Vec<Message>,
        user_id: &'a str,
        key: &'a str,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>>;

    /// What this user's memory has that fits `query`, best first, `limit` entries at the most. Never another user's.
    fn search<'a>(
        &'a self,
        query: &'a str,
        user_id: &'a str,
        limit: usize,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>>;

    /// What this user's memory has, `limit` entries at the most, in an order of the memory's own. Never another user's.
    fn list<'a>(&'a self, user_id: &'a str, limit: usize) -> MemoryFuture<'a, Vec<MemoryEntry>>;

    /// Forgets the entry with this id, if this user's memory has it, and says whether it had.
    fn forget<'a>(&'a self, id: &'a str, user_id: &'a str) -> MemoryFuture<'a, bool>;
}

/// Something that is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryEntry {
    /// Its name in the memory that it is in.
    pub id: String,
    /// What it says.
    pub text: String,
    /// How well it fits what was searched for, the more the better; `None` if the memory does not say. Compare scores of one
    /// search only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

/// A memory that could not do what it was asked. Never ends a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MemoryError(pub String);

/// Decides which messages ask to be remembered, and where they go.
#[derive(Clone)]
pub struct MemoryTrigger {
    /// Where they go.
    pub store: Arc<dyn LongTermMemory>,
    /// Whether a user's text asks to be remembered.
    pub asks: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

/// The phrases that [`MemoryTrigger::new`] looks for, in any case.
pub const MEMORY_PHRASES: [&str; 6] =
    ["remember that", "please remember", "remember this", "don't forget that", "请记住", "记住"];

impl MemoryTrigger {
    /// Stores in `store` what has one of [`MEMORY_PHRASES`].
    pub fn new(store: Arc<dyn LongTermMemory>) -> Self {
        let asks = |text: &str| {
            let text = text.to_lowercase();
            MEMORY_PHRASES.iter().any(|phrase| text.contains(phrase))
        };
        Self { store, asks: Arc::new(asks) }
    }
}
