//! A folder to store threads in.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use superstep_graph::checkpoint::CheckpointError;
use superstep_sqlite::SqliteCheckpointer;
pub(crate) use superstep_testing::lines::{line, load, superstep, updates};
use tempfile::TempDir;

/// A folder with a database `db`, or a place for one.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder for the test"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.path().join("db")
    }

    pub(crate) fn open(&self) -> SqliteCheckpointer {
        SqliteCheckpointer::open(self.db()).expect("the database opens")
    }

    /// Opens a plain connection to the database, as another program has it.
    pub(crate) fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.db()).expect("the database opens")
    }

    /// Formats an error for a user, with the folder's path as `DIR`.
    pub(crate) fn text(&self, error: &CheckpointError) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        let folder = self.path().canonicalize().expect("the folder is there");
        let text = text.replace(&folder.display().to_string(), "DIR");
        text.replace(&self.path().display().to_string(), "DIR")
    }
}
