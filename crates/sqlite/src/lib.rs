//! Storage in SQLite: threads, and items that are shared by threads.
//!
//! Start at [`SqliteCheckpointer`] and [`SqliteStore`]. The tables are described in [`SCHEMA`] and
//! [`STORE_SCHEMA`].

mod checksum;
mod database;
mod error;
mod foreign;
mod location;
mod locks;
mod open;
mod read;
mod sqlite;
mod store;
mod stored;
mod threads;
mod upgrade;
mod write;

pub use open::SCHEMA;
pub use sqlite::{SqliteCheckpointer, SqliteOptions, Synchronous};
pub use store::{STORE_SCHEMA, SqliteStore};
