//! The settings of a database.
//!
//! Start at [`PostgresOptions`].

use std::{fmt, time::Duration};

/// The URL of a database, which has a password: no output shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl From<&str> for PostgresUrl {
    fn from(url: &str) -> Self {
        Self(url.to_owned())
    }
}

impl From<String> for PostgresUrl {
    fn from(url: String) -> Self {
        Self(url)
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresUrl")
    }
}

/// Options for connecting to a database.
///
/// ```
/// # use superstep_postgres::PostgresOptions;
/// let options = PostgresOptions::new("postgres://localhost/app").schema("chats").connections(16);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// The URL, such as `postgres://user:password@host:5432/database?sslmode=require`.
    pub url: PostgresUrl,
    /// The schema with the tables, which is created if it does not exist: lower-case letters, digits and `_`. `superstep` by default.
    pub schema: String,
    /// The maximum number of connections for requests. 8 by default. The renewal of leases has one of its own.
    pub connections: usize,
    /// The maximum wait for a connection, a new one or one of the pool. 5 s by default.
    pub connect_timeout: Duration,
    /// The maximum duration of a statement, not of a request with several. 30 s by default. If an answer takes 5 s longer, its
    /// connection is given up.
    pub statement_timeout: Duration,
    /// The time after its first failure during which a request is repeated while the server cannot be reached or ends connections, such as
    /// during its restart; 10 s by default. A commit whose connection broke is repeated only if it was not stored.
    pub reconnect: Duration,
    /// The time for which a writer stays the owner of a thread without a sign of life. It renews its lease three times as often. 15 s by
    /// default.
    pub lease: Duration,
    /// The maximum wait of [`lease`](superstep_checkpoint::Checkpointer::lease) for another writer of the thread before the
    /// caller receives [`Busy`](superstep_checkpoint::CheckpointError::Busy). 100 ms by default, in which the release of a run that has
    /// just ended reaches the server.
    pub lease_wait: Duration,
    /// `true` to refuse writes and to create no tables. `false` by default.
    pub read_only: bool,
    /// The maximum size of the states that are retained in memory between the runs of a thread, so that a run need not fold its
    /// thread again; measured by their stored updates. 64 MiB by default; 0 retains none.
    pub head_states_bytes: usize,
}

impl PostgresOptions {
    /// Creates the default options for a connection URL, such as `postgres://user:password@host:5432/database?sslmode=require`. The
    /// URL is never part of an error or a `Debug` output.
    ///
    /// `sslmode` is `disable`, `prefer` (the default) or `require`. A server's certificate is always verified by the certificate
    /// authorities of the operating system.
    pub fn new(url: impl Into<PostgresUrl>) -> Self {
        Self {
            url: url.into(),
            schema: "superstep".to_owned(),
            connections: 8,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            reconnect: Duration::from_secs(10),
            lease: Duration::from_secs(15),
            lease_wait: Duration::from_millis(100),
            read_only: false,
            head_states_bytes: 64 << 20,
        }
    }

    /// Sets the URL.
    #[must_use]
    pub fn url(self, url: impl Into<PostgresUrl>) -> Self {
        Self { url: url.into(), ..self }
    }

    /// Sets the schema with the tables.
    #[must_use]
    pub fn schema(self, name: impl Into<String>) -> Self {
        Self { schema: name.into(), ..self }
    }

    /// Sets the maximum number of connections for requests.
    #[must_use]
    pub fn connections(self, number: usize) -> Self {
        Self { connections: number, ..self }
    }

    /// Sets the maximum wait for a connection.
    #[must_use]
    pub fn connect_timeout(self, wait: Duration) -> Self {
        Self { connect_timeout: wait, ..self }
    }

    /// Sets the maximum duration of a statement.
    #[must_use]
    pub fn statement_timeout(self, limit: Duration) -> Self {
        Self { statement_timeout: limit, ..self }
    }

    /// Sets the time during which a failed request is repeated.
    #[must_use]
    pub fn reconnect(self, time: Duration) -> Self {
        Self { reconnect: time, ..self }
    }

    /// Sets the time for which a writer stays the owner of a thread without a sign of life.
    #[must_use]
    pub fn lease(self, time: Duration) -> Self {
        Self { lease: time, ..self }
    }

    /// Sets the maximum wait for another writer of the thread.
    #[must_use]
    pub fn lease_wait(self, wait: Duration) -> Self {
        Self { lease_wait: wait, ..self }
    }

    /// Refuses writes, and creates no tables.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Limits the size of the states that are retained in memory between the runs of a thread; 0 retains none.
    #[must_use]
    pub fn head_states_bytes(self, limit: usize) -> Self {
        Self { head_states_bytes: limit, ..self }
    }

    pub(crate) fn url_text(&self) -> &str {
        &self.url.0
    }

    /// Returns whether the schema's name needs no quotation marks and fits into PostgreSQL's names.
    pub(crate) fn has_plain_schema(&self) -> bool {
        let mut letters = self.schema.bytes();
        letters.next().is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
            && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'_')
            && self.schema.len() < 64
            && !self.schema.starts_with("pg_")
    }
}

impl From<&str> for PostgresOptions {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl From<String> for PostgresOptions {
    fn from(url: String) -> Self {
        Self::new(url)
    }
}
