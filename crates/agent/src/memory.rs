//! What an agent remembers across threads.
//!
//! Start at [`LongTermMemory`]; [`StoreMemory`] and [`MemoryFiles`] are two, and `Mem0` is one more.

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

pub(crate) use self::files::PATIENCE;
#[cfg(feature = "mem0")]
pub use self::mem0::{Mem0, Mem0Config, Mem0ConfigError, Mem0Form};
pub use self::{files::MemoryFiles, stored::StoreMemory, tools::memory_tools};

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

    /// What this user's memory has that fits `query`, best first, each text once and `limit` entries at the most. Never another
    /// user's.
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

/// The most characters of one entry of a [`StoreMemory`] or [`MemoryFiles`]. What is longer is refused.
pub const LONGEST_MEMORY: usize = 8_000;

/// The memory of an agent, and which messages ask to be remembered in it.
#[derive(Clone)]
pub struct MemoryTrigger {
    /// Where they go, and where [`Retrieve`](crate::Retrieve) looks.
    pub store: Arc<dyn LongTermMemory>,
    /// Whether a user's text asks to be remembered.
    pub asks: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// The wishes that this process has begun to fulfil, in turns that have not ended; the oldest first.
    begun: Arc<Mutex<VecDeque<BegunWish>>>,
}

/// So many turns with a wish may run at once, or have failed, before one is handed to the memory twice, which stores it once.
const MOST_BEGUN: usize = 10_000;

/// The phrases that [`MemoryTrigger::new`] looks for, in any case.
pub const MEMORY_PHRASES: [&str; 6] =
    ["remember that", "please remember", "remember this", "don't forget that", "请记住", "记住"];

impl MemoryTrigger {
    /// Stores in `store` what has one of [`MEMORY_PHRASES`].
    pub fn new(store: Arc<dyn LongTermMemory>) -> Self {
        Self::with_phrases(store, MEMORY_PHRASES)
    }

    /// Stores in `store` what has one of these phrases, in any case; nothing if there are none.
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

    /// Stores in `store` what this function says `true` of. It may be asked twice for a message, and gives the same answer then.
    pub fn asking(
        store: Arc<dyn LongTermMemory>,
        asks: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { store, asks: Arc::new(asks), begun: Arc::default() }
    }

    /// Notes that a user's wish is being fulfilled.
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

    /// Notes that the turn of a wish is over, and says whether this process had begun to fulfil it.
    pub(crate) fn end(&self, wish: &BegunWish) -> bool {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let at = begun.iter().position(|other| other == wish);
        at.and_then(|at| begun.remove(at)).is_some()
    }
}

/// Whose wish it is, if anybody's, and the key under which it is added.
pub(crate) type BegunWish = (Option<String>, String);

/// Whose memory is meant: the user's, or the thread's own if nobody is named; `None` if there is neither.
pub(crate) fn owner(state: &AgentState, thread: Option<&ThreadId>) -> Option<String> {
    let user = Some(state.user_id.as_str()).filter(|user| !user.is_empty());
    user.or(thread.map(ThreadId::as_str)).map(str::to_owned)
}

/// Why nothing is remembered or found for nobody.
pub(crate) const NOBODY: &str =
    "there is nobody to remember it for; give the run a thread, or the input a `user_id`";

/// What people and models said in these messages, each text short enough to be an entry.
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
