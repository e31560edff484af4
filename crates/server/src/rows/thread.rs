//! Rows of threads.
//!
//! Start at [`ThreadRow`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A thread as the server knows it. Its states are the checkpoints of superstep's thread of the same name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThreadRow {
    pub(crate) id: String,
    /// The user who owns it; `None` on a server without users.
    #[serde(default)]
    pub(crate) owner: Option<String>,
    /// UTC microseconds, as all times of rows.
    pub(crate) created_us: i64,
    pub(crate) updated_us: i64,
    /// The time of its last run or update; `None` before the first.
    pub(crate) state_us: Option<i64>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) config: Map<String, Value>,
    /// The status between runs.
    pub(crate) status: ThreadStatus,
    /// The error of the last run, if it failed or was cancelled.
    pub(crate) error: Option<RunFailure>,
    /// The questions that wait, by task.
    pub(crate) interrupts: Map<String, Value>,
    /// `true` if it is deleted at the end of its run.
    pub(crate) temporary: bool,
}

/// The status of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ThreadStatus {
    Idle,
    Busy,
    Interrupted,
    Error,
}

/// The failure of a run, as streams, results and threads show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunFailure {
    #[serde(rename = "error")]
    pub(crate) name: String,
    pub(crate) message: String,
}

/// A thread of one owner. Another user may have had a thread of the same id, or may get it while a client waits for its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ThreadKey {
    pub(crate) thread: String,
    /// `None` on a server without users.
    pub(crate) owner: Option<String>,
}

impl ThreadRow {
    pub(crate) fn new(id: String, metadata: Map<String, Value>, now_us: i64) -> Self {
        Self {
            id,
            owner: None,
            created_us: now_us,
            updated_us: now_us,
            state_us: None,
            metadata,
            config: Map::new(),
            status: ThreadStatus::Idle,
            error: None,
            interrupts: Map::new(),
            temporary: false,
        }
    }

    pub(crate) fn key(&self) -> ThreadKey {
        ThreadKey { thread: self.id.clone(), owner: self.owner.clone() }
    }

    /// Returns the graph of the thread, if it has one.
    pub(crate) fn graph(&self) -> Option<&str> {
        self.metadata.get("graph_id").and_then(Value::as_str)
    }
}
