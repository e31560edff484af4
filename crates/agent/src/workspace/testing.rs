//! Helpers shared by the tests of the tools.

use std::{fs, path::PathBuf};

use serde_json::Value;
use superstep_llm::{Tool, ToolCx, ToolError};
use tempfile::TempDir;

use super::root::Workspace;

pub(super) fn cx() -> ToolCx {
    ToolCx::new("c1")
}

/// A temporary directory with a workspace `root` in it and space for outside files.
pub(super) struct Place {
    pub(super) dir: TempDir,
    pub(super) workspace: Workspace,
}

impl Place {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let workspace = Workspace::open(&dir.path().join("root")).unwrap();
        Self { dir, workspace }
    }

    /// Returns the disk path of `path`, relative to the root.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path)
    }

    /// Writes a file, relative to the root, and the directories it needs.
    pub(super) fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let at = self.at(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, content).unwrap();
    }

    /// Makes `path`, relative to the root, a symbolic link with the literal `target`.
    #[cfg(unix)]
    pub(super) fn link(&self, path: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.at(path)).unwrap();
    }

    /// Creates a FIFO; opening it without a writer would block forever.
    #[cfg(unix)]
    pub(super) fn fifo(&self, path: &str) {
        let made = std::process::Command::new("mkfifo").arg(self.at(path)).status().unwrap();
        assert!(made.success());
    }
}

/// Calls a tool and returns the result that the model receives.
pub(super) async fn call(tool: &impl Tool, args: Value) -> String {
    tool.call(args, cx()).await.unwrap().text
}

/// Calls a tool and returns the error that the model receives.
pub(super) async fn refusal(tool: &impl Tool, args: Value) -> String {
    tool.call(args, cx()).await.unwrap_err().to_string()
}

/// Calls a tool that is cancelled before it starts.
pub(super) async fn cancelled(tool: &impl Tool, args: Value) -> Result<String, ToolError> {
    let cx = cx();
    cx.cancel.cancel();
    tool.call(args, cx).await.map(|reply| reply.text)
}
