//! Graphs of superstep as a service on a Restate cluster.

mod keys;
mod kv;
mod memory;
mod request;
mod requests;
mod storage;

/// Items of the tests of this crate. Not for other use.
#[doc(hidden)]
pub mod internal {
    use std::sync::Arc;

    use superstep_checkpoint::Checkpointer;

    use crate::requests::Requests;
    pub use crate::memory::MemoryObjects;

    /// Creates a checkpointer on objects in memory.
    pub fn in_memory(objects: &Arc<MemoryObjects>) -> Arc<dyn Checkpointer> {
        Arc::new(Requests(objects.clone()))
    }
}
