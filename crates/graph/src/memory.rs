//! Threads in the memory of this process.

/// Keeps threads in memory; they end with the process.
#[derive(Debug, Default)]
pub struct MemoryCheckpointer {}
