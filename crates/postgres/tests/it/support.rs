//! Databases for single tests.

use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
pub(crate) use superstep_testing::lines::{line, load, superstep, updates};

use crate::server::Server;

/// Returns the options for a fresh schema.
pub(crate) fn fresh(server: &Server) -> PostgresOptions {
    PostgresOptions { schema: server.schema(), connections: 4, ..PostgresOptions::new(server.url()) }
}

pub(crate) fn open(options: &PostgresOptions) -> PostgresCheckpointer {
    PostgresCheckpointer::open(options.clone()).expect("the database opens")
}
