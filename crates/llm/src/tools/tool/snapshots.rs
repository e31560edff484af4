//! Changes of files by tools: snapshots before each round of tools and after it.

use std::{future::Future, io, path::Path, pin::Pin, sync::Arc};

use serde::{Deserialize, Serialize};

/// Takes snapshots of files and compares them.
///
/// The node `tools` takes one before its first call runs and one after its last call is answered. The
/// difference is the event `files_changed` and the channel `files` of an agent's state. A
/// round that is interrupted, or resumed after a crash, is compared with the files at its beginning; one that a new message discards
/// is compared when the turn of the message begins. A round whose tools change no files, see [`Tool::changes_files`](crate::Tool::changes_files), takes no snapshots.
pub trait Snapshots: Send + Sync {
    /// Returns the same for another folder, used in a turn that works there; `None` if it has no folder.
    ///
    /// # Errors
    /// The folder is not usable; then no call of the round runs.
    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Snapshots>>> {
        let _ = folder;
        Ok(None)
    }

    /// Takes a snapshot of the files and returns its name. Equal files have equal names.
    fn keep<'a>(&'a self, thread: Option<&'a str>) -> SnapshotFuture<'a, String>;

    /// Returns the changes between two snapshots.
    fn compare<'a>(
        &'a self,
        thread: Option<&'a str>,
        before: &'a str,
        after: &'a str,
    ) -> SnapshotFuture<'a, FileChanges>;
}

/// The future of a snapshot operation.
pub type SnapshotFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SnapshotError>> + Send + 'a>>;

/// A snapshot failed or is missing. Never ends a run: the event `snapshot_failed` has the reason.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SnapshotError(pub String);

crate::debug_by_chain!(SnapshotError);

/// The changes of files between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChanges {
    /// The name of the first snapshot.
    pub before: String,
    /// The name of the second snapshot; empty while the round is [unfinished](Self::is_unfinished).
    pub after: String,
    /// The files that differ, by path.
    pub changes: Vec<FileChange>,
    /// Number of further files that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
}

impl FileChanges {
    /// Returns whether the changes are still unknown: a new message has discarded the round, and its turn has not begun, which takes
    /// the second snapshot.
    pub fn is_unfinished(&self) -> bool {
        self.after.is_empty()
    }
}

/// The change of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// The path relative to the folder, with `/` between names.
    pub path: String,
    /// The kind of the change.
    pub kind: FileChangeKind,
    /// The removed and added lines as a unified diff; empty if it is not text, or too long.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub diff: String,
}

/// The kind of a file's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// The file was created.
    Made,
    /// The content or the type of the file changed.
    Changed,
    /// The file was removed.
    Removed,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}
