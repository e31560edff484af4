//! Long-term memory across threads.
//!
//! Start at [`LongTermMemory`]; [`StoreMemory`], [`MemoryFiles`] and `Mem0` implement it.

mod bullets;
pub(crate) mod files;
#[cfg(feature = "mem0")]
mod mem0;
mod stored;
mod tools;

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use superstep_graph::ThreadId;
use superstep_llm::{Message, Role};

use crate::AgentState;

#[cfg(feature = "mem0")]
pub use self::mem0::{Mem0, Mem0Config, Mem0ConfigError, Mem0Form};
pub use self::{files::MemoryFiles, stored::StoreMemory, tools::memory_tools};

/// The future of a memory operation.
pub type MemoryFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, MemoryError>> + Send + 'a>>;

/// A memory that outlives threads, separate for each user.
pub trait LongTermMemory: Send + Sync {
    /// Stores the memorable content of `messages` for a user and returns the stored entries, if any.
    ///
    /// `key` identifies this memory request: it is the same when a stopped run is resumed and requests again,
    /// and a memory that has seen it for this user stores nothing twice.
    fn add<'a>(
        &'a self,
        messages: Vec<Message>,
        user_id: &'a str,
        key: &'a str,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>>;

    /// Returns this user's entries that match `query`, best first, each text once, at most `limit`. Never
    /// returns another user's entries.
    fn search<'a>(
        &'a self,
        query: &'a str,
        user_id: &'a str,
        limit: usize,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>>;

    /// Returns this user's entries, at most `limit`, in an order of the implementation. Never returns another
    /// user's entries.
    fn list<'a>(&'a self, user_id: &'a str, limit: usize) -> MemoryFuture<'a, Vec<MemoryEntry>>;

    /// Deletes the entry with this id from this user's memory, and returns whether it existed.
    fn forget<'a>(&'a self, id: &'a str, user_id: &'a str) -> MemoryFuture<'a, bool>;
}

/// An entry of a memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryEntry {
    /// Its id in its memory.
    pub id: String,
    /// Its text.
    pub text: String,
    /// The relevance to the query, higher is better; `None` if unknown. Scores are comparable within one
    /// search only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

/// An error of a memory. Never ends a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MemoryError(pub String);

/// Maximum number of characters of one entry of a [`StoreMemory`] or [`MemoryFiles`]. Longer texts are
/// rejected.
pub const LONGEST_MEMORY: usize = 8_000;

/// The memory of an agent, and the condition under which messages are stored in it.
#[derive(Clone)]
pub struct MemoryTrigger {
    /// The memory that stores them, and that [`Retrieve`](crate::Retrieve) searches.
    pub store: Arc<dyn LongTermMemory>,
    /// Returns whether a user's text is a memory request.
    pub asks: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// The memory requests that this process has started, in turns that have not ended; the oldest first.
    begun: Arc<Mutex<VecDeque<BegunWish>>>,
}

/// Maximum number of started requests. Beyond it, a request may be sent to the memory twice, which stores it
/// once.
const MOST_BEGUN: usize = 10_000;

/// The phrases that [`MemoryTrigger::new`] detects, in any case.
pub const MEMORY_PHRASES: [&str; 6] =
    ["remember that", "please remember", "remember this", "don't forget that", "请记住", "记住"];

impl MemoryTrigger {
    /// Stores messages with one of [`MEMORY_PHRASES`] in `store`.
    pub fn new(store: Arc<dyn LongTermMemory>) -> Self {
        Self::with_phrases(store, MEMORY_PHRASES)
    }

    /// Stores messages with one of these phrases in `store`, in any case; nothing if there are no phrases.
    pub fn with_phrases(
        store: Arc<dyn LongTermMemory>,
        phrases: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let phrases: Vec<_> = phrases.into_iter().map(|phrase| phrase.into().to_lowercase()).collect();
        Self::asking(store, move |text: &str| {
            let text = text.to_lowercase();
            phrases.iter().any(|phrase| text.contains(phrase))
        })
    }

    /// Stores messages for which this function returns `true` in `store`. It may be called twice for a
    /// message and must return the same value.
    pub fn asking(
        store: Arc<dyn LongTermMemory>,
        asks: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { store, asks: Arc::new(asks), begun: Arc::default() }
    }

    /// Records that a memory request was started.
    pub(crate) fn begin(&self, wish: BegunWish) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if begun.contains(&wish) {
            return;
        }
        if begun.len() >= MOST_BEGUN {
            begun.pop_front();
        }
        begun.push_back(wish);
    }

    /// Records that the turn of a memory request has ended, and returns whether this process had started it.
    pub(crate) fn end(&self, wish: &BegunWish) -> bool {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let at = begun.iter().position(|other| other == wish);
        at.and_then(|at| begun.remove(at)).is_some()
    }
}

/// The user of a memory request, if any, and the key under which it is added.
pub(crate) type BegunWish = (Option<String>, String);

/// Returns the owner of the memory: the user, or the thread if no user is set; `None` if there is neither.
pub(crate) fn owner(state: &AgentState, thread: Option<&ThreadId>) -> Option<String> {
    let user = Some(state.user_id.as_str()).filter(|user| !user.is_empty());
    user.or(thread.map(ThreadId::as_str)).map(str::to_owned)
}

/// The message when there is neither a user nor a thread.
pub(crate) const NOBODY: &str =
    "there is nobody to remember it for; give the run a thread, or the input a `user_id`";

/// Returns the user's and the model's texts of these messages, each short enough for an entry.
fn said(messages: &[Message]) -> Result<Vec<String>, MemoryError> {
    let said = messages.iter().filter(|message| matches!(message.role, Role::User | Role::Assistant));
    let texts = said.map(|message| message.content.trim()).filter(|text| !text.is_empty());
    texts
        .map(|text| match text.chars().count() {
            0..=LONGEST_MEMORY => Ok(text.to_owned()),
            chars => Err(MemoryError(format!(
                "a text of {chars} characters is too long to be remembered; say it in {LONGEST_MEMORY}"
            ))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use superstep_graph::store::MemoryStore;

    use super::*;

    fn wish(nth: usize) -> BegunWish {
        (Some("ada".to_owned()), format!("t/{nth}"))
    }

    #[test]
    fn wishes_are_those_of_their_users_and_the_oldest_are_given_up() {
        let trigger = MemoryTrigger::new(Arc::new(StoreMemory::new(Arc::new(MemoryStore::new()))));
        (0..MOST_BEGUN).for_each(|nth| trigger.begin(wish(nth)));
        trigger.begin(wish(0));
        assert!(!trigger.end(&(Some("bob".to_owned()), "t/1".to_owned())));
        assert!(trigger.end(&wish(1)) && !trigger.end(&wish(1)));
        (MOST_BEGUN..MOST_BEGUN + 3).for_each(|nth| trigger.begin(wish(nth)));
        let is_left: Vec<_> = [0, 2, 3, 4, MOST_BEGUN].map(|nth| trigger.end(&wish(nth))).into();
        assert_eq!(is_left, [false, false, true, true, true]);
    }
}
