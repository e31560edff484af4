//! Databases for single tests.

use std::{path::Path, time::Duration};

use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
pub(crate) use superstep_testing::lines::{line, load, superstep, updates};
use tokio_postgres::{Client, NoTls};

use crate::server::{Server, url_of};

/// Returns the options for a fresh schema, with connections of its name.
pub(crate) fn fresh(server: &Server) -> PostgresOptions {
    through(server.folder(), PostgresOptions::new("").schema(server.schema()).connections(4))
}

/// Returns the options for connections to the socket in a folder, named as the schema.
pub(crate) fn through(folder: &Path, options: PostgresOptions) -> PostgresOptions {
    let url = format!("{}?application_name={}", url_of(folder), options.schema);
    options.url(url)
}

pub(crate) fn open(options: &PostgresOptions) -> PostgresCheckpointer {
    PostgresCheckpointer::open(options.clone()).expect("the database opens")
}

/// Another program with a connection of its own to a schema.
pub(crate) struct Other {
    client: Client,
    schema: String,
}

impl Other {
    pub(crate) async fn connect(server: &Server, options: &PostgresOptions) -> Self {
        let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let other = Self { client, schema: options.schema.clone() };
        other.sql(&format!("SET search_path TO {}", options.schema)).await;
        other
    }

    pub(crate) async fn sql(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap();
    }

    /// Returns the text in the first column of the only row.
    pub(crate) async fn text(&self, sql: &str) -> String {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Waits until this text is another one than before.
    pub(crate) async fn until_other(&self, sql: &str, before: &str) {
        until(sql, async || self.text(sql).await != before).await;
    }

    /// Waits until so many requests to the schema wait for a lock.
    pub(crate) async fn until_waiting(&self, count: usize) {
        let waiting = format!(
            "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = '{}'",
            self.schema
        );
        until("requests wait", async || {
            // A transaction sees the same statistics until its end.
            self.sql("SELECT pg_stat_clear_snapshot()").await;
            self.text(&waiting).await == count.to_string()
        })
        .await;
    }
}

/// Waits for a condition.
async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let reached = tokio::time::timeout(Duration::from_secs(120), async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(reached.await.is_ok(), "never: {what}");
}
