//! The store in a PostgreSQL database.
//!
//! Start at [`PostgresStore`].

mod items;
mod pgvector;
mod vectors;
mod words;

use std::fmt;

use futures::future::BoxFuture;
use superstep_checkpoint::store::{Answer, Operation, Store, StoreError, StoreOptions};

use crate::{
    PostgresCheckpointer, PostgresOptions,
    database::{Database, Open, repeated},
    error,
    error::Failed,
    location::Location,
    query::Query,
    session::Session,
};
use items::Items;

/// A store in a PostgreSQL database, in the schema of a [`PostgresCheckpointer`] or in one of its own.
///
/// Words are split by this program and not by PostgreSQL's text search, so that their ranking is that of the other stores, in any
/// language, and no text is a syntax error. A query by meaning is compared with every item in its scope: exact, and fast enough
/// for some ten thousand items. Where the extension pgvector is installed in the database, the server compares, and only the
/// nearest items are read, with the same ranking and scores.
///
/// # Durability
/// A batch is one transaction. Batches that write wait for each other. Each item has a checksum, so that a changed one is an error.
///
/// # Example
/// ```no_run
/// use superstep_postgres::{PostgresCheckpointer, PostgresStore};
/// use superstep_checkpoint::store::StoreOptions;
///
/// let threads = PostgresCheckpointer::open("postgres://app@db.example/app")?;
/// let store = PostgresStore::beside(&threads, StoreOptions::default());
/// # Ok::<(), superstep_checkpoint::CheckpointError>(())
/// ```
pub struct PostgresStore {
    open: Open,
    options: StoreOptions,
}

impl PostgresStore {
    /// Connects to a database; see [`PostgresCheckpointer::open`]. Blocks the calling thread.
    ///
    /// # Errors
    /// [`StoreError::Storage`] if the URL is not valid, the server refuses, or the tables belong to another program or to a newer
    /// superstep. No error contains the URL.
    pub fn open(postgres: impl Into<PostgresOptions>, options: StoreOptions) -> Result<Self, StoreError> {
        let postgres = postgres.into();
        let (place, _) = Location::parse(&postgres)?;
        let open =
            Open::new(postgres)?.ok_or_else(|| error::not_ours(&place, "it has no tables of superstep"))?;
        Ok(Self { open, options })
    }

    /// Uses the connections of a checkpointer.
    pub fn beside(checkpointer: &PostgresCheckpointer, options: StoreOptions) -> Self {
        Self { open: checkpointer.opened().clone(), options }
    }

    /// Runs a request to its end, even if the caller drops the future.
    async fn run<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, Stop>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let database = self.open.database.clone();
        let attempt = async move {
            // An error of the store is not a failure of the database.
            let settled = async {
                match request.await {
                    Ok(done) => Ok(Ok(done)),
                    Err(Stop::Store(error)) => Ok(Err(error)),
                    Err(Stop::Server(failed)) => Err(failed),
                }
            };
            let done = database.attempt(settled).await;
            done.unwrap_or_else(|failed| Err(failed.into_error(&database.place, "use the store").into()))
        };
        let done = self.open.service.run(attempt).await;
        done.unwrap_or_else(|| Err(error::service_ended(&self.open.database.place).into()))
    }
}

/// The reason for a batch without an effect.
enum Stop {
    Server(Failed),
    Store(StoreError),
}

impl From<Failed> for Stop {
    fn from(failed: Failed) -> Self {
        Self::Server(failed)
    }
}

impl From<tokio_postgres::Error> for Stop {
    fn from(cause: tokio_postgres::Error) -> Self {
        Self::Server(cause.into())
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Store for PostgresStore {
    fn batch(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answer>, StoreError>> {
        Box::pin(async move {
            let batch = self.options.prepare(operations).await?;
            let database = self.open.database.clone();
            self.run(async move {
                let mut session = begin(&database, batch.writes()).await?;
                let items = Items { session: &session, place: &database.place };
                let mut answers = Vec::with_capacity(batch.steps.len());
                for step in &batch.steps {
                    answers.push(items.apply(batch.now_ms, step).await?);
                }
                session.commit().await?;
                Ok(answers)
            })
            .await
        })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<usize, StoreError>> {
        let (database, now_ms) = (self.open.database.clone(), self.options.clock.now_ms());
        Box::pin(self.run(async move {
            let mut session = begin(&database, true).await?;
            let swept = Items { session: &session, place: &database.place }.sweep(now_ms).await?;
            session.commit().await?;
            Ok(swept)
        }))
    }
}

/// The first half of the key of the lock of those who write items.
const LOCK: i32 = 0x7373_7472;

/// Begins a transaction. One that writes waits for the others of the schema, so that it sees what they wrote.
async fn begin(database: &Database, writes: bool) -> Result<Session, Stop> {
    if !writes {
        return Ok(repeated!(database, "use the store", |_nth| async {
            let mut session = database.session().await?;
            session.begin_reading().await?;
            Ok(session)
        })
        .map_err(StoreError::from)?);
    }
    database.check_writable().map_err(StoreError::from)?;
    // Nothing is repeated after the first write, whose effect could not be distinguished from that of another one.
    Ok(repeated!(database, "use the store", |_nth| async {
        let mut session = database.session().await?;
        session.begin().await?;
        let lock = "SELECT pg_advisory_xact_lock($1, hashtext(current_schema()))";
        Query::of(lock, &[&LOCK]).rows(session.client()).await?;
        Ok(session)
    })
    .map_err(StoreError::from)?)
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("place", &self.open.database.place.to_string())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
