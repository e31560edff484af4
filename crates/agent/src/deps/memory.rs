//! Long-term memory across threads.
//!
//! Start at [`LongTermMemory`].

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use superstep_llm::Message;

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

impl<M: LongTermMemory + ?Sized> LongTermMemory for Arc<M> {
    fn add<'a>(
        &'a self,
        messages: Vec<Message>,
        user_id: &'a str,
        key: &'a str,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        (**self).add(messages, user_id, key)
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        user_id: &'a str,
        limit: usize,
    ) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        (**self).search(query, user_id, limit)
    }

    fn list<'a>(&'a self, user_id: &'a str, limit: usize) -> MemoryFuture<'a, Vec<MemoryEntry>> {
        (**self).list(user_id, limit)
    }

    fn forget<'a>(&'a self, id: &'a str, user_id: &'a str) -> MemoryFuture<'a, bool> {
        (**self).forget(id, user_id)
    }
}

/// An entry of a memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryEntry {
    /// The id of the entry in its memory.
    pub id: String,
    /// The text of the entry.
    pub text: String,
    /// The relevance to the query, higher is better; `None` if unknown. Scores are comparable within one
    /// search only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

/// An error of a memory. Never ends a run.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MemoryError(pub String);

superstep_graph::__private::debug_by_chain!(MemoryError);

/// The memory of an agent, and the condition under which messages are stored in it.
#[derive(Clone)]
pub struct MemoryTrigger {
    /// The memory that stores them, and that [`Retrieve`](crate::config::Retrieve) searches.
    pub store: Arc<dyn LongTermMemory>,
    /// Returns whether a user's text is a memory request.
    pub asks: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// The memory requests that this process has started, in turns that have not ended; the oldest first.
    begun: Arc<Mutex<VecDeque<BegunRequest>>>,
}

/// Maximum number of started requests. Beyond it, a request may be sent to the memory twice, which stores it
/// once.
const MAX_PENDING: usize = 10_000;

/// The phrases that [`MemoryTrigger::new`] detects, in any case.
pub const MEMORY_PHRASES: [&str; 6] =
    ["remember that", "please remember", "remember this", "don't forget that", "请记住", "记住"];

impl fmt::Debug for MemoryTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTrigger").finish_non_exhaustive()
    }
}

impl MemoryTrigger {
    /// Stores messages with one of [`MEMORY_PHRASES`] in `store`.
    pub fn new(store: impl LongTermMemory + 'static) -> Self {
        Self::with_phrases(store, MEMORY_PHRASES)
    }

    /// Stores messages with one of these phrases in `store`, in any case, with any white space and any apostrophe; nothing if
    /// there are no phrases.
    pub fn with_phrases(
        store: impl LongTermMemory + 'static,
        phrases: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let phrases: Vec<_> = phrases.into_iter().map(|phrase| plain(&phrase.into())).collect();
        Self::asking(store, move |text: &str| {
            let text = plain(text);
            phrases.iter().any(|phrase| text.contains(phrase))
        })
    }

    /// Stores messages for which this function returns `true` in `store`. It may be called twice for a
    /// message and must return the same value.
    pub fn asking(
        store: impl LongTermMemory + 'static,
        asks: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { store: Arc::new(store), asks: Arc::new(asks), begun: Arc::default() }
    }

    /// Records that a memory request was started.
    pub(crate) fn begin(&self, request: BegunRequest) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if begun.contains(&request) {
            return;
        }
        if begun.len() >= MAX_PENDING {
            begun.pop_front();
        }
        begun.push_back(request);
    }

    /// Records that the turn of a memory request has ended, and returns whether this process had started it.
    pub(crate) fn end(&self, request: &BegunRequest) -> bool {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let at = begun.iter().position(|other| other == request);
        at.and_then(|at| begun.remove(at)).is_some()
    }
}

/// The user of a memory request, if any, and the key under which it is added.
pub(crate) type BegunRequest = (Option<String>, String);

/// The message when there is neither a user nor a thread.
pub(crate) const NO_OWNER: &str =
    "no user to store the memory for; give the run a thread, or the input a `user_id`";

impl MemoryError {
    /// Returns the error for a run that has neither a user nor a thread.
    pub fn no_owner() -> Self {
        Self(NO_OWNER.to_owned())
    }
}

/// Returns a text as phrases are compared: in lower case, with single spaces and plain apostrophes.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\u{2019}' | '\u{2018}' | '\u{2bc}' | '\u{ff07}' => plain.push('\''),
            char if char.is_whitespace() && plain.ends_with(' ') => {}
            char if char.is_whitespace() => plain.push(' '),
            char => plain.extend(char.to_lowercase()),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    /// A memory that stores nothing.
    struct Nothing;

    impl LongTermMemory for Nothing {
        fn add<'a>(&'a self, _: Vec<Message>, _: &'a str, _: &'a str) -> MemoryFuture<'a, Vec<MemoryEntry>> {
            Box::pin(ready(Ok(Vec::new())))
        }

        fn search<'a>(&'a self, _: &'a str, _: &'a str, _: usize) -> MemoryFuture<'a, Vec<MemoryEntry>> {
            Box::pin(ready(Ok(Vec::new())))
        }

        fn list<'a>(&'a self, _: &'a str, _: usize) -> MemoryFuture<'a, Vec<MemoryEntry>> {
            Box::pin(ready(Ok(Vec::new())))
        }

        fn forget<'a>(&'a self, _: &'a str, _: &'a str) -> MemoryFuture<'a, bool> {
            Box::pin(ready(Ok(false)))
        }
    }

    fn request(nth: usize) -> BegunRequest {
        (Some("ada".to_owned()), format!("t/{nth}"))
    }

    #[test]
    fn requests_belong_to_their_users_and_the_oldest_are_dropped() {
        let trigger = MemoryTrigger::new(Nothing);
        (0..MAX_PENDING).for_each(|nth| trigger.begin(request(nth)));
        trigger.begin(request(0));
        assert!(!trigger.end(&(Some("bob".to_owned()), "t/1".to_owned())));
        assert!(trigger.end(&request(1)) && !trigger.end(&request(1)));
        (MAX_PENDING..MAX_PENDING + 3).for_each(|nth| trigger.begin(request(nth)));
        let is_left: Vec<_> = [0, 2, 3, 4, MAX_PENDING].map(|nth| trigger.end(&request(nth))).into();
        assert_eq!(is_left, [false, false, true, true, true]);
    }
}
