//! Storage in PostgreSQL: threads, and items that are shared by threads.
//!
//! Start at [`PostgresCheckpointer`] and [`PostgresStore`]. The tables are described in [`SCHEMA`].

mod checkpointer;
mod database;
mod error;
mod fence;
mod follow;
mod inputs;
#[doc(hidden)]
pub mod internal;
mod leases;
mod location;
mod maintain;
mod options;
mod query;
mod read;
mod rows;
mod schema;
mod service;
mod session;
mod store;
mod tls;
mod whole;
mod write;

use superstep_checkpoint::internal::stored;

pub use checkpointer::PostgresCheckpointer;
pub use options::{PostgresOptions, PostgresUrl};
pub use schema::SCHEMA;
pub use store::PostgresStore;
