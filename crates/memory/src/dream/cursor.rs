//! The progress of dreams, as a file beside the history.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use superstep_tools::internal::{LockedFile, keep_names, lock, read_stored};
use tempfile::NamedTempFile;

use crate::{HistoryPlace, history::file::DREAM_LOCK};

/// Names in the history's folder: the cursor, and the notes of edits.
const NAME: &str = "dream.json";
const EDITS: &str = "edits";

/// Maximum size of the cursor.
const MAX_BYTES: u64 = 1 << 20;

/// The position up to which a user's history was consolidated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DreamCursor {
    /// The turns before this position were consolidated.
    pub read: HistoryPlace,
    /// The last dream; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastDream>,
}

/// A dream that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastDream {
    /// The end time in UTC milliseconds, by the clock of its run.
    pub at_ms: i64,
    /// The name of its outcome, or `failed: ` and the reason.
    pub end: String,
}

impl LastDream {
    /// Returns whether the next dream should wait.
    pub(super) fn is_to_rest(&self) -> bool {
        !matches!(self.end.as_str(), "completed" | "cancelled")
    }
}

/// The files of one user's dreams, in an existing folder.
#[derive(Clone, Debug)]
pub(super) struct DreamFiles {
    folder: PathBuf,
}

impl DreamFiles {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the folder of the edit journal.
    pub(super) fn edits(&self) -> PathBuf {
        self.folder.join(EDITS)
    }

    /// Acquires the exclusive right to dream for this user until the file is dropped; `None` if it is taken.
    pub(super) fn lock(&self) -> io::Result<Option<LockedFile>> {
        lock(&self.folder.join(DREAM_LOCK))
    }

    pub(super) fn cursor(&self) -> io::Result<DreamCursor> {
        let path = self.folder.join(NAME);
        match read_stored(&path, MAX_BYTES) {
            Ok(json) => serde_json::from_slice(&json).map_err(|error| unreadable(&path, &error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(DreamCursor::default()),
            Err(error) => Err(error),
        }
    }

    /// Records the failure of a dream, unless another one is running.
    pub(super) fn note_failure(&self, at_ms: i64, reason: &str) -> io::Result<()> {
        let Some(_alone) = self.lock()? else { return Ok(()) };
        let last = LastDream { at_ms, end: format!("failed: {reason}") };
        self.set(&DreamCursor { last: Some(last), ..self.cursor()? })
    }

    /// Replaces the cursor atomically.
    pub(super) fn set(&self, cursor: &DreamCursor) -> io::Result<()> {
        let mut file = NamedTempFile::new_in(&self.folder)?;
        file.write_all(&serde_json::to_vec(cursor)?)?;
        file.as_file().sync_all()?;
        file.persist(self.folder.join(NAME))?;
        keep_names(&self.folder)
    }
}

fn unreadable(path: &Path, error: &serde_json::Error) -> io::Error {
    let message = format!("`{}` cannot be read: {error}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_cursor_is_stored_as_it_always_was() {
        let dir = tempfile::tempdir().unwrap();
        let files = DreamFiles::new(dir.path().to_owned());
        assert_eq!(files.cursor().unwrap(), DreamCursor::default());
        let read = HistoryPlace { offset: 120, last: "t/3@7/4.0".into() };
        let last = LastDream { at_ms: 9, end: "completed".into() };
        let cursor = DreamCursor { read, last: Some(last) };
        files.set(&cursor).unwrap();
        let stored = r#"{"read":{"offset":120,"last":"t/3@7/4.0"},"last":{"at_ms":9,"end":"completed"}}"#;
        assert_eq!(fs::read_to_string(dir.path().join("dream.json")).unwrap(), stored);
        assert_eq!(files.cursor().unwrap(), cursor);
        fs::write(dir.path().join("dream.json"), r#"{"read":{"offset":1,"last":"x"},"more":2}"#).unwrap();
        assert_eq!(files.cursor().unwrap().read.offset, 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unreadable_cursor_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), r#"{"read":"#).unwrap();
        let error = DreamFiles::new(dir.path().to_owned()).cursor().unwrap_err().to_string();
        assert!(error.contains("dream.json` cannot be read: EOF"), "{error}");
    }

    #[test]
    fn one_dreams_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let files = DreamFiles::new(dir.path().to_owned());
        let lock = files.lock().unwrap().unwrap();
        assert!(files.lock().unwrap().is_none());
        drop(lock);
        assert!(files.lock().unwrap().is_some());
    }
}
