//! A workspace for tests.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use super::Workspace;

/// A temporary directory with a workspace `root` in it and space for outside files.
pub(crate) struct TestWorkspace {
    pub(crate) dir: TempDir,
    pub(crate) workspace: Workspace,
}

impl TestWorkspace {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let workspace = Workspace::open(&dir.path().join("root")).unwrap();
        Self { dir, workspace }
    }

    /// Returns the disk path of `path`, relative to the root.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path)
    }

    /// Writes a file, relative to the root, and the directories it needs.
    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let at = self.at(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, content).unwrap();
    }

    /// Makes `path`, relative to the root, a symbolic link with the literal `target`.
    #[cfg(unix)]
    pub(crate) fn link(&self, path: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.at(path)).unwrap();
    }

    /// Creates a FIFO; opening it without a writer would block forever.
    #[cfg(unix)]
    pub(crate) fn fifo(&self, path: &str) {
        let made = std::process::Command::new("mkfifo").arg(self.at(path)).status().unwrap();
        assert!(made.success());
    }
}
