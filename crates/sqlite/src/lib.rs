//! Storage in SQLite: threads, and items that are shared by threads.
//!
//! Start at [`SqliteCheckpointer`] and [`SqliteStore`]. The tables are described in [`SCHEMA`] and
//! [`STORE_SCHEMA`].

mod checksum;
mod database;
mod error;
mod foreign;
mod inputs;
mod location;
mod locks;
mod maintain;
mod open;
mod options;
mod read;
mod requests;
mod schema;
mod sqlite;
mod store;
mod threads;
mod upgrade;
mod write;

use superstep_checkpoint::internal::stored;

pub use options::{SqliteOptions, Synchronous};
pub use schema::{SCHEMA, STORE_SCHEMA};
pub use sqlite::SqliteCheckpointer;
pub use store::SqliteStore;
