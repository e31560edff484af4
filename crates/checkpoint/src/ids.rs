//! The names of threads and the numbers of their checkpoints.
//!
//! Start at [`ThreadId`].

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// The name of a thread. Cheap to clone. The number 7 and the text "7" name the same thread.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThreadId(Arc<str>);

impl ThreadId {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ThreadId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<&String> for ThreadId {
    fn from(id: &String) -> Self {
        Self::from(id.as_str())
    }
}

impl From<&ThreadId> for ThreadId {
    fn from(id: &ThreadId) -> Self {
        id.clone()
    }
}

impl From<String> for ThreadId {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<u64> for ThreadId {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The id of a checkpoint in its thread: the first one is 1, and later commits have greater numbers on any
/// branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CheckpointId(pub u64);

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The separator between a thread's name and those of its subgraphs. Names of nodes and of root threads
/// cannot contain it, so that thread names are unique.
pub const SEPARATOR: char = '\u{1f}';
