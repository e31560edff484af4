//! The history of turns: user messages and replies, as lines of JSON in a file.
//!
//! Start at [`HistoryFiles`].

use std::{io, path::Path, time::Duration};

use superstep_agent::deps::{HistoryFuture, TurnHistory, TurnRecord};
use superstep_tools::internal::{PATIENCE, ThreadFolders, blocking, patiently};

use super::file::{HistoryFile, HistoryPlace, Unread};

/// Stores a line for each ended turn, in a file `history.jsonl` for each user.
///
/// An agent with a history ([`AgentBuilder::history`](superstep_agent::AgentBuilder::history)) has a sixth node,
/// `record`, after `finalize`. A turn is stored once, however often its node runs: a crash between the line
/// and the checkpoint does not duplicate it. A line that a crash truncated is never read, and is removed by
/// the next write. Several processes may write.
///
/// A line contains no more than the state: values redacted there are redacted here. The file is readable by
/// its owner only.
/// # Units
/// At most 32 KiB of the user's text, and of the reply, are stored.
/// # Example
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::{Agent, AgentBuilder};
/// # use superstep_memory::HistoryFiles;
/// # fn example(agent: AgentBuilder) -> std::io::Result<AgentBuilder> {
/// let history = HistoryFiles::new(".".as_ref(), ".superstep/history")?;
/// # let agent =
/// agent.history(history)
/// # ; Ok(agent)
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct HistoryFiles {
    folders: ThreadFolders,
}

impl HistoryFiles {
    /// Stores the files in `folder`, a plain path relative to `root`, with one folder per user. Folders are
    /// created on the first write.
    ///
    /// # Errors
    /// `root` is missing, or `folder` is not a plain path below it.
    pub fn new(root: &Path, folder: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { folders: ThreadFolders::new(root, folder.as_ref())? })
    }

    /// Returns the turns after a position: at most `max` turns and `max_bytes` of lines, but at least one
    /// turn. Lines that are not turns are skipped. A missing file is empty.
    ///
    /// # Errors
    /// The file cannot be read.
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
    /// # Errors
    /// An error of the file system; the file was locked for five seconds; or the user's folder
    /// was replaced by a link.
    pub async fn delete(&self, user: &str) -> io::Result<()> {
        let file = self.file(user);
        patiently(PATIENCE, move || file.delete()).await
    }

    fn file(&self, user: &str) -> HistoryFile {
        HistoryFile { folders: self.folders.clone(), user: user.to_owned() }
    }

    /// Returns the folder of a user, and creates it if absent.
    #[cfg(feature = "dream")]
    pub(crate) fn folder(&self, user: &str) -> io::Result<std::path::PathBuf> {
        self.folders.make(&self.folders.of_user(user)?)
    }

    /// Returns the folders of the users.
    #[cfg(feature = "dream")]
    pub(crate) fn folders(&self) -> &ThreadFolders {
        &self.folders
    }
}

impl TurnHistory for HistoryFiles {
    fn end<'a>(&'a self, user: &'a str, within: Duration) -> HistoryFuture<'a, u64> {
        let file = self.file(user);
        Box::pin(patiently(within, move || file.end()))
    }

    fn add<'a>(
        &'a self,
        user: &'a str,
        turn: TurnRecord,
        since: u64,
        within: Duration,
    ) -> HistoryFuture<'a, ()> {
        let file = self.file(user);
        Box::pin(patiently(within, move || file.append(&turn, since)))
    }
}
