//! The history of turns: user messages and replies.
//!
//! Start at [`TurnHistory`].

use std::{future::Future, io, pin::Pin, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use superstep_graph::{Cx, ThreadId};
use superstep_llm::{Message, Role};

use crate::{AgentOutcome, AgentState, plain_name::plain, repair::steering::is_steered};

/// Maximum number of bytes of the user's text, and of the reply, in a line.
const MAX_TEXT_BYTES: usize = 32 << 10;

/// Maximum length of a name in bytes; longer ones are truncated.
const MAX_NAME_LENGTH: usize = 300;

/// The future of a history operation.
pub type HistoryFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A store of ended turns, separate for each user.
///
/// An agent with a history ([`AgentBuilder::history`](crate::AgentBuilder::history)) has a sixth node, `record`, after
/// `finalize`. The node calls [`end`](Self::end) once and records the result, and then [`add`](Self::add), again after a crash.
pub trait TurnHistory: Send + Sync {
    /// Returns the position after the last turn of a user. Waits at most for `within` for other writers.
    fn end<'a>(&'a self, user: &'a str, within: Duration) -> HistoryFuture<'a, u64>;

    /// Adds a turn to a user's history, unless one with its id is stored after the position `since`. Waits at most for
    /// `within` for other writers.
    fn add<'a>(
        &'a self,
        user: &'a str,
        turn: TurnRecord,
        since: u64,
        within: Duration,
    ) -> HistoryFuture<'a, ()>;
}

/// A stored turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// The turn's id. It is unique, except for turns without a thread that began in the same millisecond.
    pub id: String,
    /// The thread; empty without a checkpointer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
    /// The user; empty for the thread's own memory.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user_id: String,
    /// The end time in UTC milliseconds, by the clock of the run.
    pub at_ms: i64,
    /// The user's message, and additions while the turn ran.
    pub user: String,
    /// The reply shown to the user.
    pub reply: String,
    /// The outcome.
    pub outcome: AgentOutcome,
    /// The first hundred executed tools, in call order, with repetitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools_used: Vec<String>,
}

impl<H: TurnHistory + ?Sized> TurnHistory for Arc<H> {
    fn end<'a>(&'a self, user: &'a str, within: Duration) -> HistoryFuture<'a, u64> {
        (**self).end(user, within)
    }

    fn add<'a>(
        &'a self,
        user: &'a str,
        turn: TurnRecord,
        since: u64,
        within: Duration,
    ) -> HistoryFuture<'a, ()> {
        (**self).add(user, turn, since, within)
    }
}

impl TurnRecord {
    /// Creates the record of a turn that has just ended.
    pub(crate) fn new(outcome: AgentOutcome, state: &AgentState, cx: &Cx) -> Self {
        let key = cx.key();
        let said: Vec<_> =
            user_messages_of_turn(state).into_iter().map(|message| &*message.content).collect();
        Self {
            id: if key.len() > MAX_NAME_LENGTH { plain(&key) } else { key },
            thread: short(cx.thread().map_or("", ThreadId::as_str), MAX_NAME_LENGTH),
            user_id: short(&state.user_id, MAX_NAME_LENGTH),
            at_ms: cx.now_ms(),
            user: short(&said.join("\n"), MAX_TEXT_BYTES),
            reply: short(&state.final_reply, MAX_TEXT_BYTES),
            outcome,
            tools_used: state.metadata.tools_used.iter().take(100).cloned().collect(),
        }
    }
}

/// Returns the user's messages of the last turn, including those sent while it ran, and those before its first one that an earlier
/// turn did not read.
pub(crate) fn user_messages_of_turn(state: &AgentState) -> Vec<&Message> {
    let by_user = |message: &Message| message.role == Role::User && !message.synthetic;
    let (mut said, mut has_begun) = (Vec::new(), false);
    for message in state.messages.iter().rev() {
        if has_begun && !is_steered(message) {
            break;
        }
        if by_user(message) {
            said.push(message);
            has_begun |= !is_steered(message);
        }
    }
    said.reverse();
    said
}

/// Truncates a text to `most` bytes and adds a note.
fn short(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let kept = &text[..text.floor_char_boundary(most)];
    format!("{kept}… [{} more bytes]", text.len() - kept.len())
}
