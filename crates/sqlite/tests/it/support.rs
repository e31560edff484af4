//! Commits to store, and a folder to store them in.

use std::{
    error::Error,
    path::{Path, PathBuf},
    sync::Arc,
};

use superstep_graph::{
    CheckpointId, Checkpointer, ThreadId,
    checkpoint::{AppliedTask, CheckpointError, Commit, Loaded, Source},
    topology::Control,
};
use superstep_sqlite::SqliteCheckpointer;
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

/// Creates a superstep with one task without a record.
pub(crate) fn superstep(parent: Option<CheckpointId>, update: &str) -> Commit {
    let step = parent.map_or(-1, |id| i64::try_from(id.0).expect("a small id") - 1);
    Commit {
        parent,
        source: if parent.is_none() { Source::Input } else { Source::Loop },
        control: Control::new(step, vec!["b".into()]),
        created_ms: 1_700_000_000_000 + step,
        metadata: Arc::default(),
        applied: vec![AppliedTask { slot: 0, recorded: false, node: "a".into(), update: update.into() }],
        snapshot: None,
        fingerprints: None,
        records: Vec::new(),
    }
}

/// Commits supersteps to a fresh thread, with the updates 1, 2, 3...
pub(crate) async fn line(store: &dyn Checkpointer, thread: &ThreadId, commits: u64) {
    let mut head = None;
    for update in 1..=commits {
        let id = store.commit(thread, head, superstep(head, &update.to_string())).await;
        head = Some(id.expect("a commit behind the head succeeds"));
    }
}

pub(crate) async fn load(store: &dyn Checkpointer, thread: &ThreadId) -> Loaded {
    store.load(thread, None).await.expect("the thread can be loaded").expect("the thread exists")
}

/// Returns the updates of a loaded checkpoint, as text.
pub(crate) fn updates(loaded: &Loaded) -> Vec<String> {
    loaded.commits.concat().into_iter().map(|update| update.to_string()).collect()
}
