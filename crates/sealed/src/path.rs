//! The path from the beginning of a thread to a checkpoint, as a digest of the tasks that its checkpoints applied.
//!
//! It is stored in the encrypted metadata of each checkpoint and in each encrypted snapshot, so that an update that is missing on the
//! path to a state is noticed when the state is loaded.

use std::sync::{Mutex, PoisonError};

use hashlink::LruCache;
use serde::{Deserialize, Serialize};
use superstep_checkpoint::{CheckpointId, ThreadId};

/// The maximum number of threads whose newest paths are in memory, for each root.
const MAX_CACHED: usize = 64;

/// The digest of a path: 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct PathDigest(String);

impl PathDigest {
    /// Returns the digest of the path before the first checkpoint.
    pub(crate) fn start() -> Self {
        Self("0".repeat(32))
    }

    /// Returns the digest with one more checkpoint, which applied the tasks with these slots, in fold order.
    // The updates themselves are bound to their checkpoints, so their number and order are enough. A thread that was
    // readable at its beginning has no digest to begin with.
    pub(crate) fn after(&self, slots: impl IntoIterator<Item = u32>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("superstep 2026-11-26 path to a checkpoint");
        hasher.update(self.0.as_bytes());
        for slot in slots {
            hasher.update(&slot.to_le_bytes());
        }
        let digest = hasher.finalize();
        Self(digest.as_bytes()[..16].iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The paths to the newest checkpoints, in memory.
pub(crate) struct Heads(Mutex<LruCache<ThreadId, (CheckpointId, Option<PathDigest>)>>);

impl Default for Heads {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_CACHED)))
    }
}

impl Heads {
    /// Returns the path to a checkpoint, if it is in memory.
    pub(crate) fn get(&self, thread: &ThreadId, id: CheckpointId) -> Option<Option<PathDigest>> {
        let mut heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heads.get(thread).filter(|(head, _)| *head == id).map(|(_, path)| path.clone())
    }

    /// Stores the path to a checkpoint that was committed.
    pub(crate) fn set(&self, thread: &ThreadId, id: CheckpointId, path: Option<PathDigest>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(thread.clone(), (id, path));
    }
}
