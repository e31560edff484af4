//! The errors of checkpointers.

use std::error::Error;

use crate::{CheckpointId, ThreadId};

/// The maximum number of threads that an error names.
const MAX_NAMED: usize = 5;

/// A failed operation of a checkpointer.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The thread has another writer.
    #[error(
        "SS301: thread `{thread}` is busy, another run is working on it; wait for it to end or use another thread"
    )]
    Busy {
        /// The thread.
        thread: ThreadId,
    },
    /// The thread has a newer head.
    #[error(
        "SS302: thread `{thread}` was changed by another writer: {}; load it again",
        .expected.map_or_else(|| "it already has checkpoints".to_owned(), |id| format!("its head is no longer checkpoint {id}"))
    )]
    Conflict {
        /// The thread.
        thread: ThreadId,
        /// The head that the writer expected; `None` for a new thread.
        expected: Option<CheckpointId>,
    },
    /// Another process took the thread over because this one did not renew its lease in time, as if it had died.
    #[error(
        "SS315: another process has taken over thread `{thread}`, because this one did not renew its lease in time; it stored \
         nothing more, resume the thread if the other one has ended"
    )]
    LeaseLost {
        /// The leased thread.
        thread: ThreadId,
    },
    /// The thread already exists.
    #[error("SS310: thread `{thread}` already exists; use another name, or delete that thread first")]
    ThreadExists {
        /// The thread.
        thread: ThreadId,
    },
    /// The thread does not exist.
    #[error("SS311: thread `{thread}` does not exist; check its name, `threads` lists the existing threads")]
    NoThread {
        /// The thread.
        thread: ThreadId,
    },
    /// The thread has no checkpoints, but threads below it are stored, which a new thread of its name would continue.
    #[error(
        "SS318: thread `{thread}` has no checkpoints, but something below it is stored: {}; a new thread does not continue \
         what a deleted thread or another program left: delete thread `{thread}`, or use another name",
        listed(.children)
    )]
    Leftovers {
        /// The thread.
        thread: ThreadId,
        /// The stored threads below it.
        children: Vec<ThreadId>,
    },
    /// The store cannot be opened, read or written.
    #[error("SS303: {what}")]
    Storage {
        /// The failed operation, its place, and a remedy.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// A key of encrypted data is unknown or cannot be obtained.
    #[error("SS316: {what}")]
    Key {
        /// The data, the id of its key, and a remedy.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Data is not encrypted where encryption is required.
    #[error("SS317: {what}")]
    Unencrypted {
        /// The data and a remedy.
        what: String,
    },
    /// The store contains data that this program did not write.
    #[error("SS304: {what}")]
    Corrupt {
        /// The problem and its place.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

/// Formats the names of threads; of many, the first ones.
fn listed(children: &[ThreadId]) -> String {
    let named: Vec<_> = children.iter().take(MAX_NAMED).map(|child| format!("`{child}`")).collect();
    let others = children.len() - named.len();
    named.join(", ") + &if others > 0 { format!(" and {others} more") } else { String::new() }
}

impl CheckpointError {
    /// Creates the error of a write with an outdated head.
    #[doc(hidden)]
    pub fn conflict(thread: &ThreadId, expected: Option<CheckpointId>) -> Self {
        Self::Conflict { thread: thread.clone(), expected }
    }

    /// Creates the error of a commit whose parent does not exist.
    pub fn no_parent(thread: &ThreadId, parent: CheckpointId) -> Self {
        Self::Storage {
            what: format!(
                "thread `{thread}` has no checkpoint {parent} for a new one to follow; load it again"
            ),
            source: None,
        }
    }

    /// Creates the error of a commit with a task that has no finished record.
    pub fn not_recorded(thread: &ThreadId, parent: Option<CheckpointId>, slot: u32) -> Self {
        let parent = parent.map_or(0, |id| id.0);
        Self::Storage {
            what: format!(
                "the commit applies task {slot} of checkpoint {parent} of thread `{thread}`, which is not \
                 recorded as finished; record the task before the commit"
            ),
            source: None,
        }
    }

    /// Creates the error of a commit that cannot be read because a snapshot hides its updates.
    pub(crate) fn hidden_update(thread: &ThreadId, at: CheckpointId, slot: u32) -> Self {
        Self::Storage {
            what: format!(
                "checkpoint {at} of thread `{thread}` has a snapshot, which hides the update of task {slot}; implement \
                 `Checkpointer::read_commit` for this backend"
            ),
            source: None,
        }
    }

    /// Creates the error of a thread with the maximum number of checkpoints.
    #[doc(hidden)]
    pub fn too_long(thread: &ThreadId) -> Self {
        let what = format!(
            "thread `{thread}` has {} checkpoints, the most there can be; use another thread",
            u32::MAX
        );
        Self::Storage { what, source: None }
    }

    /// Creates the error of a prune that retains a checkpoint that does not exist.
    pub fn unknown_retained(thread: &ThreadId, at: CheckpointId) -> Self {
        Self::Storage {
            what: format!("thread `{thread}` has no checkpoint {at} to retain; load it again"),
            source: None,
        }
    }

    /// Creates the error of a prune that would leave a checkpoint without its state.
    pub fn unreachable_retained(thread: &ThreadId, at: CheckpointId) -> Self {
        Self::Storage {
            what: format!(
                "checkpoint {at} of thread `{thread}` cannot be retained without its parent, because it \
                 has no snapshot; retain its parent, or give it a snapshot"
            ),
            source: None,
        }
    }
}

superstep_state::debug_by_chain!(CheckpointError);
