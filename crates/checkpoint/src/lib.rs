//! Durable checkpointers for superstep: SQLite.
//!
//! Start at [`SqliteCheckpointer`]. The tables are described in [`SCHEMA`].

mod database;
mod error;
mod locks;
mod open;
mod read;
mod sqlite;
mod stored;
mod write;

pub use open::SCHEMA;
pub use sqlite::{SqliteCheckpointer, SqliteOptions};
