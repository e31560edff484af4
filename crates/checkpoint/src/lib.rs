//! Durable checkpointers for superstep: SQLite.
