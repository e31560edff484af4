//! Scenarios on PostgreSQL: one server for all, and one schema for each scenario at a time.

#[path = "../../crates/postgres/tests/it/server.rs"]
#[allow(dead_code, reason = "the tests of the crate use more of it")]
pub(crate) mod server;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_executor::block_on;
use superstep::{
    Checkpointer,
    postgres::{PostgresCheckpointer, PostgresOptions},
};

use crate::real::Real;

/// The schemas that no scenario uses.
static FREE: Mutex<Vec<PostgresOptions>> = Mutex::new(Vec::new());

/// An empty schema, until it is dropped.
pub(crate) struct Schema(PostgresOptions);

impl Schema {
    /// Returns a schema; `None` where PostgreSQL is not installed.
    pub(crate) fn new() -> Option<Self> {
        let server = server::shared()?;
        let free = FREE.lock().unwrap().pop();
        let options = free.unwrap_or_else(|| {
            // A busy machine opens a connection, and releases a lease, in seconds.
            PostgresOptions::new(server.url())
                .connect_timeout(Duration::from_secs(120))
                .lease_wait(Duration::from_secs(5))
                .connections(2)
                .schema(server.schema())
        });
        Some(Self(options))
    }

    /// Opens it as another process does.
    pub(crate) fn open(&self) -> Arc<dyn Checkpointer> {
        Arc::new(Real(Arc::new(PostgresCheckpointer::open(self.0.clone()).unwrap())))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let store = PostgresCheckpointer::open(self.0.clone()).unwrap();
        for thread in block_on(store.names()).unwrap() {
            block_on(store.delete(&thread)).unwrap();
        }
        FREE.lock().unwrap().push(self.0.clone());
    }
}
