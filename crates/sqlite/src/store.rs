//! The store in an SQLite database.
//!
//! Start at [`SqliteStore`].

mod items;
mod rows;
mod tables;
mod words;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use rusqlite::{Connection, TransactionBehavior};
use serde_json::Value;
use superstep_checkpoint::store::{Answer, Batch, Operation, Step, Store, StoreError, StoreOptions};
use tokio::{runtime::Handle, sync::Mutex};

use crate::{SqliteOptions, database::Database, error, location::Location, open};
use items::Items;

/// The maximum number of operations, and of bytes of their values, for execution on the caller's thread.
const FEW: usize = 8;
const SMALL: usize = 64 * 1024;

/// A store in an SQLite database: in a file of its own, or in that of a
/// [`SqliteCheckpointer`](crate::SqliteCheckpointer), which may be open at the same time.
///
/// Words are found with SQLite's FTS5. A query is split into words before SQLite sees it, so that no text is
/// a syntax error or an operator. A query by meaning is compared with every item in its scope: exact, and
/// fast enough for some ten thousand items.
///
/// A few small operations run on the caller's thread if the database is idle; all others run on tokio's
/// blocking threads.
///
/// # Durability
/// Like the checkpointer's, except that data is synced only when it is folded into the database. Each item
/// has a checksum, so that a changed one is an error; searches rely on indexes without checksums. Any number
/// of programs may use the same file.
///
/// # Inspection
/// `sqlite3 FILE 'SELECT namespace, key, value FROM store_items'` shows the items; see [`STORE_SCHEMA`](crate::STORE_SCHEMA).
///
/// # Example
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use superstep_sqlite::SqliteStore;
/// use superstep_checkpoint::store::{Namespace, Search, Store};
///
/// let store = SqliteStore::in_memory()?;
/// let notes = Namespace::new(["notes"])?;
/// store.put(&notes, "1", "tea is at five".into()).await?;
/// let found = store.search(Search::within(&notes).words(r#"when is "tea" AND NOT (coffee"#)).await?;
/// assert_eq!(found[0].item.key, "1");
/// # Ok::<(), superstep_checkpoint::store::StoreError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SqliteStore {
    place: Arc<Location>,
    database: Arc<Mutex<Database>>,
    options: StoreOptions,
}

impl SqliteStore {
    /// Opens the database at `path`, and creates it if it does not exist; `:memory:` is one [in
    /// memory](Self::in_memory).
    ///
    /// The file is readable by its owner only. Its folder must exist. Blocks the calling thread.
    ///
    /// # Errors
    /// [`StoreError::Storage`] if the file cannot be opened for writing, is not a database, belongs to
    /// another program or to a newer superstep.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, SqliteOptions::default(), StoreOptions::default())
    }

    /// Opens like [`open`](Self::open), with options.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_with(
        path: impl AsRef<Path>,
        sqlite: SqliteOptions,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        if open::is_memory(path.as_ref()) {
            return Self::in_memory_with(options);
        }
        let (connection, file) = open::for_writing(path.as_ref(), &sqlite)?;
        Self::start(connection, Location::File(file), &sqlite, options)
    }

    /// Opens the database at `path` read-only: every request to write fails, and the file need not be
    /// writable.
    ///
    /// # Errors
    /// See [`open`](Self::open); also if the file does not exist.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_read_only_with(path, StoreOptions::default())
    }

    /// Opens like [`open_read_only`](Self::open_read_only), with options.
    ///
    /// # Errors
    /// Those of [`open_read_only`](Self::open_read_only).
    pub fn open_read_only_with(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self, StoreError> {
        if open::is_memory(path.as_ref()) {
            return Self::in_memory_with(options);
        }
        let sqlite = SqliteOptions::default();
        let (mut connection, file) = open::for_reading(path.as_ref(), &sqlite)?;
        let place = Location::ReadOnly(file);
        if !tables::are_made(&connection, &place)? {
            connection = open::copy(&connection, &place, &sqlite)?;
        }
        Self::start(connection, place, &sqlite, options)
    }

    /// Opens a store in memory.
    ///
    /// # Errors
    /// [`StoreError::Storage`] if there is not enough memory.
    pub fn in_memory() -> Result<Self, StoreError> {
        Self::in_memory_with(StoreOptions::default())
    }

    /// Opens like [`in_memory`](Self::in_memory), with options.
    ///
    /// # Errors
    /// Those of [`in_memory`](Self::in_memory).
    pub fn in_memory_with(options: StoreOptions) -> Result<Self, StoreError> {
        Self::start(open::in_memory()?, Location::Memory, &SqliteOptions::default(), options)
    }

    fn start(
        mut connection: Connection,
        place: Location,
        sqlite: &SqliteOptions,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        tables::make(&mut connection, &place)?;
        let place = Arc::new(place);
        let database = Database::new(connection, place.clone(), sqlite);
        Ok(Self { place, database: Arc::new(Mutex::new(database)), options })
    }

    /// Returns the path of the database; `None` if it is in memory.
    pub fn path(&self) -> Option<PathBuf> {
        self.place.file().map(Path::to_path_buf)
    }

    /// Runs an operation that may take time on a blocking thread.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        // In the order of arrival; waiting requests occupy no thread.
        let mut database = self.database.clone().lock_owned().await;
        let job = move || {
            database.wait_for_others(true);
            let done = job(&mut database);
            database.fold_long_log();
            done
        };
        match Handle::try_current() {
            Ok(runtime) => {
                let done = runtime.spawn_blocking(job).await;
                done.map_err(|_| StoreError::from(error::worker_ended(&self.place)))?
            }
            Err(_) => job(),
        }
    }

    /// Executes a batch on this thread if it is small and the database is idle.
    fn at_once(&self, batch: &Batch) -> Option<Result<Vec<Answer>, StoreError>> {
        if !is_small(batch) {
            return None;
        }
        let mut database = self.database.try_lock().ok().filter(|database| !database.log_is_long())?;
        // Another program may lock the file for long.
        database.wait_for_others(false);
        match apply(&mut database, batch) {
            Err(StoreError::Storage { source: Some(cause), .. }) if error::is_busy_cause(&*cause) => None,
            done => Some(done),
        }
    }
}

impl Store for SqliteStore {
    fn batch(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Answer>, StoreError>> {
        Box::pin(async move {
            let batch = self.options.prepare(operations).await?;
            if let Some(done) = self.at_once(&batch) {
                return done;
            }
            self.run(move |database| apply(database, &batch)).await
        })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<usize, StoreError>> {
        let now_ms = self.options.clock.now_ms();
        Box::pin(self.run(move |database| transact(database, true, |items| items.sweep(now_ms))))
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("place", &self.place.to_string())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn is_small(batch: &Batch) -> bool {
    let bytes = |step: &Step| match step {
        Step::Get { .. } | Step::Delete { .. } => Some(0),
        Step::Put(new) => Some(weight(&new.value)),
        Step::Search { .. } | Step::List(_) => None,
    };
    batch.steps.len() <= FEW
        && batch.steps.iter().map(bytes).sum::<Option<usize>>().is_some_and(|bytes| bytes <= SMALL)
}

/// Returns about how many bytes a value has.
fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
    }
}

/// Applies a batch atomically.
fn apply(database: &mut Database, batch: &Batch) -> Result<Vec<Answer>, StoreError> {
    let writes = batch.writes();
    let answers = transact(database, writes, |items| {
        batch.steps.iter().map(|step| items.apply(batch.now_ms, step)).collect()
    })?;
    if writes {
        let written = batch.steps.iter().map(|step| match step {
            Step::Put(new) => weight(&new.value) + 2 * new.text.len(),
            _ => 0,
        });
        database.wrote(written.sum());
    }
    Ok(answers)
}

/// Runs an operation in a transaction of its own.
fn transact<T>(
    database: &mut Database,
    writes: bool,
    job: impl FnOnce(&Items<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    if writes {
        database.writable()?;
    }
    let place = database.place.clone();
    let refused = |cause| StoreError::from(error::database(&place, "use the store", cause));
    let behaviour = if writes { TransactionBehavior::Immediate } else { TransactionBehavior::Deferred };
    let transaction = database.connection.transaction_with_behavior(behaviour).map_err(refused)?;
    let done = job(&Items { connection: &transaction, place: &place })?;
    transaction.commit().map_err(refused)?;
    Ok(done)
}
