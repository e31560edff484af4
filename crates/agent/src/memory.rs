//! Where the agent puts what a user asks it to remember.

use std::{future::Future, pin::Pin, sync::Arc};

use superstep_llm::Message;

/// The future of one store.
pub type MemoryFuture<'a> = Pin<Box<dyn Future<Output = Result<(), MemoryError>> + Send + 'a>>;

/// A memory that outlives threads.
pub trait MemoryStore: Send + Sync {
    /// Stores what is worth remembering of `messages` for a user.
    fn add<'a>(&'a self, messages: Vec<Message>, user_id: &'a str) -> MemoryFuture<'a>;
}

/// A memory that could not store something. Never ends a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MemoryError(pub String);

/// Decides which messages ask to be remembered, and where they go.
#[derive(Clone)]
pub struct MemoryTrigger {
    /// Where they go.
    pub store: Arc<dyn MemoryStore>,
    /// Whether a user's text asks to be remembered.
    pub asks: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

/// The phrases that [`MemoryTrigger::new`] looks for, in any case.
pub const MEMORY_PHRASES: [&str; 6] =
    ["remember that", "please remember", "remember this", "don't forget that", "请记住", "记住"];

impl MemoryTrigger {
    /// Stores in `store` what has one of [`MEMORY_PHRASES`].
    pub fn new(store: Arc<dyn MemoryStore>) -> Self {
        let asks = |text: &str| {
            let text = text.to_lowercase();
            MEMORY_PHRASES.iter().any(|phrase| text.contains(phrase))
        };
        Self { store, asks: Arc::new(asks) }
    }
}
