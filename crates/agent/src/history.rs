//! The history of turns: user messages and replies, as lines of JSON in a file.
//!
//! Start at [`TurnHistory`].

mod file;

use std::{io, path::Path, time::Duration};

use serde::{Deserialize, Serialize};
use superstep_graph::{Cx, NodeError, ThreadId};
use superstep_llm::{Message, Role};
use superstep_tools::internal::{PATIENCE, ThreadFolders, blocking, patiently};

use self::file::HistoryFile;
use crate::{AgentOutcome, AgentState, plain_name::plain, transcript::steering::is_steered};

pub use file::{HistoryPlace, Unread};

/// Maximum number of bytes of the user's text, and of the reply, in a line.
const MOST_OF_A_TEXT: usize = 32 << 10;

/// Maximum length of a name in bytes; longer ones are truncated.
const LONGEST_NAME: usize = 300;

/// Name of the lock file of dreams, beside the history.
pub(crate) const DREAM_LOCK: &str = "dream.lock";

/// Stores a line for each ended turn, in a file `history.jsonl` for each user.
///
/// An agent with a history ([`AgentBuilder::history`](crate::AgentBuilder::history)) has a sixth node,
/// `record`, after `finalize`. A turn is stored once, however often its node runs: a crash between the line
/// and the checkpoint does not duplicate it. A line that a crash truncated is never read, and is removed by
/// the next write. Several processes may write.
///
/// A line contains no more than the state: values redacted there are redacted here. The file is readable by
/// its owner only.
/// # Units    At most 32 KiB of the user's text, and of the reply, are stored.
/// # Example
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::{Agent, AgentBuilder, TurnHistory};
/// # fn example(agent: AgentBuilder) -> std::io::Result<AgentBuilder> {
/// let history = TurnHistory::new(".".as_ref(), ".superstep/history")?;
/// # let agent =
/// agent.history(history)
/// # ; Ok(agent)
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TurnHistory {
    folders: ThreadFolders,
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

impl TurnHistory {
    /// Stores the files in `folder`, a plain path relative to `root`, with one folder per user. Folders are
    /// created on the first write.
    ///
    /// # Errors    `root` is missing, or `folder` is not a plain path below it.
    pub fn new(root: &Path, folder: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { folders: ThreadFolders::new(root, folder.as_ref())? })
    }

    /// Returns the turns after a position: at most `max` turns and `max_bytes` of lines, but at least one
    /// turn. Lines that are not turns are skipped. A missing file is empty.
    ///
    /// # Errors    The file cannot be read.
    pub async fn read(
        &self,
        user: &str,
        from: HistoryPlace,
        max: usize,
        max_bytes: u64,
    ) -> io::Result<Unread> {
        let file = self.file(user);
        blocking(move || file.read(&from, max, max_bytes)).await
    }

    /// Deletes a user's history and its read position, if any. Waits for writers and running dreams; a
    /// stopped dream is not resumed.
    ///
    /// The messages are also stored in threads: in those of the user, and in the one of the user's dreams,
    /// until these are deleted.
    ///
    /// # Errors    An error of the file system; the file was locked for five seconds; or the user's folder
    /// was replaced by a link.
    pub async fn forget(&self, user: &str) -> io::Result<()> {
        let file = self.file(user);
        patiently(PATIENCE, move || file.forget()).await
    }

    fn file(&self, user: &str) -> HistoryFile {
        HistoryFile { folders: self.folders.clone(), user: user.to_owned() }
    }

    /// Returns the folder of a user, and creates it if absent.
    #[cfg(feature = "workspace-tools")]
    pub(crate) fn folder(&self, user: &str) -> io::Result<std::path::PathBuf> {
        self.folders.make(&self.folders.of_user(user)?)
    }

    /// Returns the folders of the users.
    #[cfg(feature = "workspace-tools")]
    pub(crate) fn folders(&self) -> &ThreadFolders {
        &self.folders
    }

    /// Returns the length of a user's file, recorded at the task's first call.
    pub(crate) async fn end(&self, user: &str, within: Duration, cx: &Cx) -> Result<u64, NodeError> {
        let file = self.file(user);
        cx.once("history", async |_| patiently(within, move || file.end()).await).await
    }

    /// Appends a turn to a user's file, unless a line after `since` has it.
    pub(crate) async fn add(
        &self,
        user: &str,
        turn: TurnRecord,
        since: u64,
        within: Duration,
    ) -> io::Result<()> {
        let file = self.file(user);
        patiently(within, move || file.append(&turn, since)).await
    }
}

impl TurnRecord {
    /// Creates the record of a turn that has just ended.
    pub(crate) fn new(outcome: AgentOutcome, state: &AgentState, cx: &Cx) -> Self {
        let key = cx.key();
        let said: Vec<_> = said_in_turn(state).into_iter().map(|message| &*message.content).collect();
        Self {
            id: if key.len() > LONGEST_NAME { plain(&key) } else { key },
            thread: short(cx.thread().map_or("", ThreadId::as_str), LONGEST_NAME),
            user_id: short(&state.user_id, LONGEST_NAME),
            at_ms: cx.now_ms(),
            user: short(&said.join("\n"), MOST_OF_A_TEXT),
            reply: short(&state.final_reply, MOST_OF_A_TEXT),
            outcome,
            tools_used: state.metadata.tools_used.iter().take(100).cloned().collect(),
        }
    }
}

/// Returns the user's messages of the last turn, including those sent while it ran.
pub(crate) fn said_in_turn(state: &AgentState) -> Vec<&Message> {
    let by_user = |message: &&Message| message.role == Role::User && !message.synthetic;
    let mut said = Vec::new();
    for message in state.messages.iter().rev().filter(by_user) {
        said.push(message);
        if !is_steered(message) {
            break;
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
