//! The savers of the benchmarks.

use std::sync::Arc;

use superstep::{Checkpointer, CompiledGraph, Durability, MemoryCheckpointer, RunOptions, State, ThreadId};
use tempfile::TempDir;

/// The checkpointer and its durability.
#[derive(Clone)]
pub(crate) struct Saver {
    pub(crate) checkpointer: Option<Arc<dyn Checkpointer>>,
    durability: Durability,
}

impl Saver {
    pub(crate) fn keep<S: State>(&self, graph: CompiledGraph<S>) -> CompiledGraph<S> {
        match &self.checkpointer {
            Some(checkpointer) => graph.with_checkpointer(checkpointer.clone()),
            None => graph,
        }
    }

    pub(crate) fn options(&self, thread: ThreadId) -> RunOptions {
        RunOptions::new().thread(thread).step_limit(10_000).durability(self.durability)
    }
}

/// A saver, and the folder of its database if it has one.
pub(crate) struct Opened {
    pub(crate) name: &'static str,
    pub(crate) saver: Saver,
    pub(crate) folder: Option<TempDir>,
}

impl Opened {
    pub(crate) const NAMES: &[&str] = &["none", "memory", "sqlite", "sqlite-async"];

    pub(crate) fn open(name: &'static str) -> Option<Self> {
        let (checkpointer, folder): (Option<Arc<dyn Checkpointer>>, _) = match name {
            "none" => (None, None),
            "memory" => (Some(Arc::new(MemoryCheckpointer::new())), None),
            #[cfg(feature = "sqlite")]
            "sqlite" | "sqlite-async" => {
                let folder = tempfile::tempdir().expect("a folder can be made");
                let database = superstep::sqlite::SqliteCheckpointer::open(folder.path().join("bench.db"));
                (Some(Arc::new(database.expect("a database can be made"))), Some(folder))
            }
            _ => return None,
        };
        let durability = if name == "sqlite-async" { Durability::Async } else { Durability::Sync };
        Some(Self { name, saver: Saver { checkpointer, durability }, folder })
    }
}
