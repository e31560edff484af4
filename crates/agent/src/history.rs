//! What users said and were answered, turn by turn, as lines of JSON in a file.
//!
//! Start at [`TurnHistory`].

mod file;

use std::{io, path::Path, time::Duration};

use serde::{Deserialize, Serialize};
use superstep_graph::{Cx, NodeError, ThreadId};
use superstep_llm::{Message, Role, check_timers};
use tokio::time::{Instant, sleep};

use self::file::HistoryFile;
use crate::{
    AgentOutcome, AgentState,
    memory::PATIENCE,
    nodes::steered::is_steered,
    thread_folders::{ThreadFolders, plain},
};

pub use file::{HistoryPlace, Unread};

/// Most bytes of what was said, and of the reply, in a line.
const MOST_OF_A_TEXT: usize = 32 << 10;

/// Names that are longer are shortened, in bytes.
const LONGEST_NAME: usize = 300;

/// What is locked, beside the file, while somebody dreams of it.
pub(crate) const DREAM_LOCK: &str = "dream.lock";

/// How long to wait before somebody else is asked again to let go of the file.
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// Keeps a line for each turn that ended, in a file `history.jsonl` for each user.
///
/// An agent that has one ([`AgentBuilder::history`](crate::AgentBuilder::history)) has a sixth node, `record`, behind `finalize`.
/// A turn is in the file once, however often its node runs: a crash between the line and the checkpoint does not make it two. A
/// line that a crash cut off is never read, and gone once the next one is written. Several processes may write.
///
/// A line has no more than the state has: what is a secret there is one here. The file is for its owner only.
/// # Units    At most 32 KiB of what was said, and of the reply, are kept.
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

/// A turn, as its line has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// Names the turn. No other line has it, but for turns without a thread that began in the same millisecond.
    pub id: String,
    /// The thread; empty without a checkpointer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
    /// Whose turn it was; empty for the thread's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user_id: String,
    /// When it ended: UTC milliseconds, by the clock of the run.
    pub at_ms: i64,
    /// What the user said, and what they added while the turn ran.
    pub user: String,
    /// What the user read.
    pub reply: String,
    /// How it ended.
    pub outcome: AgentOutcome,
    /// The first hundred of the tools that were executed, in call order, each as often as it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools_used: Vec<String>,
}

impl TurnHistory {
    /// Keeps the files in `folder`, a plain path relative to `root`, with a folder in it for each user. It is made when there is
    /// something to keep.
    ///
    /// # Errors    `root` is missing, or `folder` is not a plain path below it.
    pub fn new(root: &Path, folder: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { folders: ThreadFolders::new(root, folder.as_ref())? })
    }

    /// What a user's file has behind a place: at most `max` turns, or `max_bytes` of lines if that is less, but one in any case.
    /// Lines that are no turns are passed over. Without a file there is nothing.
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

    /// Deletes what was kept of a user, and how far it was read; nothing if there is nothing. It waits until nobody writes to it, or
    /// dreams of it, and a dream that was stopped is not gone on with.
    ///
    /// What was said is in threads as well: in those of the user, and in the one of the user's dreams, until they are deleted.
    ///
    /// # Errors    What the file system says; somebody has had it for five seconds; or there is a link where the user's folder should be.
    pub async fn forget(&self, user: &str) -> io::Result<()> {
        let file = self.file(user);
        patiently(PATIENCE, move || file.forget()).await
    }

    fn file(&self, user: &str) -> HistoryFile {
        HistoryFile { folders: self.folders.clone(), user: user.to_owned() }
    }

    /// The folder of a user, which is made if it is not there.
    #[cfg(feature = "workspace-tools")]
    pub(crate) fn folder(&self, user: &str) -> io::Result<std::path::PathBuf> {
        self.folders.make(&self.folders.of_user(user)?)
    }

    /// Where the folders of the users are.
    #[cfg(feature = "workspace-tools")]
    pub(crate) fn folders(&self) -> &ThreadFolders {
        &self.folders
    }

    /// Where a user's file ended when this task first asked.
    pub(crate) async fn end(&self, user: &str, within: Duration, cx: &Cx) -> Result<u64, NodeError> {
        let file = self.file(user);
        cx.once("history", async |_| patiently(within, move || file.end()).await).await
    }

    /// Adds a turn to a user's file, unless it is among the lines behind `since`.
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
    /// The turn that has just ended so.
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

/// What the user said in the last turn, and while it ran.
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

/// A text of at most so many bytes, and a word about what is missing.
fn short(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let kept = &text[..text.floor_char_boundary(most)];
    format!("{kept}… [{} more bytes]", text.len() - kept.len())
}

/// Does something to a file that somebody else may hold, which `None` says; waits so long for it to be free.
pub(crate) async fn patiently<T: Send + 'static>(
    within: Duration,
    work: impl Fn() -> io::Result<Option<T>> + Clone + Send + 'static,
) -> io::Result<T> {
    let end = Instant::now() + within;
    loop {
        let done = blocking(work.clone()).await?;
        match done {
            Some(done) => return Ok(done),
            None if Instant::now() >= end => {
                let message = format!("another process has had it for {} ms", within.as_millis());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
            }
            None => {
                check_timers().map_err(io::Error::other)?;
                sleep(BETWEEN_TRIES).await;
            }
        }
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(io::Error::other("it broke off")))
}
