//! What tools do to the files around them: the files are kept as they were before each round of tools and after it.

use std::{future::Future, io, path::Path, pin::Pin, sync::Arc};

use serde::{Deserialize, Serialize};

/// Keeps files as they are now and then, and tells what changed in between.
///
/// The node `tools` has them kept before its first call runs and after its last one was answered. What differs is the event
/// `files_changed` and the channel [`AgentState::files`](crate::AgentState::files). A round that is interrupted, or goes on after a
/// crash, is compared with what was there when it began.
pub trait Snapshots: Send + Sync {
    /// Whether a tool may change files that does not say so itself ([`Tool::changes_files`](superstep_llm::Tool::changes_files)).
    /// Rounds without a call that may are not watched.
    fn concerns(&self, tool: &str) -> bool {
        let _ = tool;
        true
    }

    /// The same for another folder, which takes the place of this one in a turn that works there; `None` if it watches no folder.
    ///
    /// # Errors    The folder cannot be used; then no call of the round runs.
    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Snapshots>>> {
        let _ = folder;
        Ok(None)
    }

    /// Keeps the files as they are, and names that. Files that are equal have equal names.
    fn keep<'a>(&'a self, thread: Option<&'a str>) -> SnapshotFuture<'a, String>;

    /// What is different in `after`.
    fn compare<'a>(
        &'a self,
        thread: Option<&'a str>,
        before: &'a str,
        after: &'a str,
    ) -> SnapshotFuture<'a, FileChanges>;
}

/// The future of keeping and comparing files.
pub type SnapshotFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SnapshotError>> + Send + 'a>>;

/// Files could not be kept, or what was kept is not there. Never ends a run: the event `snapshot_failed` says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SnapshotError(pub String);

/// What happened to files between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChanges {
    /// What was kept first.
    pub before: String,
    /// What was kept then.
    pub after: String,
    /// The files that differ, by path.
    pub changes: Vec<FileChange>,
    /// How many more there are that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
}

/// What happened to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Relative to the folder that is watched, with `/` between names.
    pub path: String,
    /// What happened.
    pub kind: FileChangeKind,
    /// The lines that went and came, as a unified diff; empty if it is no text, or too long.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub diff: String,
}

/// What can happen to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// It was made.
    Made,
    /// It has another content, or is another kind of file.
    Changed,
    /// It is gone.
    Removed,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}
