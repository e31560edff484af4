//! The state of a thread's head, retained between two runs.
//!
//! Start at [`HeadState`].

use std::{any::Any, fmt, sync::Arc};

use crate::Loaded;

/// The head of a thread, loaded to continue it.
#[derive(Clone, Debug)]
pub struct LoadedHead {
    /// The head; if its state is remembered, perhaps without [`Loaded::snapshot`] and [`Loaded::commits`].
    pub loaded: Loaded,
    /// The state of the head, if it is remembered.
    pub state: Option<HeadState>,
}

/// The decoded state of a thread's head, offered to a [`Checkpointer`](crate::Checkpointer) at the end of a run and
/// returned to the next run on the thread, which then need not fold the thread again.
///
/// Its type is known to the driver only.
#[derive(Clone)]
pub struct HeadState {
    value: Arc<dyn Any + Send + Sync>,
    bytes: usize,
}

impl HeadState {
    /// Wraps a value, with its approximate size in bytes.
    pub fn new<T: Any + Send + Sync>(value: T, bytes: usize) -> Self {
        Self { value: Arc::new(value), bytes }
    }

    /// Returns the value, if it has this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.value.downcast_ref()
    }

    /// Returns the approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl fmt::Debug for HeadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadState").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
