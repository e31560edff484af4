//! The connections to a database, and the repetition of requests whose connection broke.
//!
//! Start at [`Database`].

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime,
};
use hashlink::LruCache;
use superstep_checkpoint::{CheckpointError, ThreadId};
use tokio::time::Instant;
use tokio_postgres::{Config, NoTls, config::SslMode};

use crate::{
    PostgresOptions, error,
    error::Failed,
    fence::{Fence, Held},
    follow::{self, Followed},
    location::Location,
    query::Query,
    rows::ThreadRow,
    schema,
    service::Service,
    session::{Client, Session},
    stored::StoredThread,
    tls::tls,
};

/// The number of threads whose rows are known without a request.
const KNOWN_ROWS: usize = 4096;

/// The pause before a request is repeated for the first time.
const PAUSE: Duration = Duration::from_millis(20);

/// The message of a connection whose settings are not acknowledged in time.
const NO_ANSWER: &str = "no answer";

/// The time that an answer may take beyond the limit of its statement, unless that is shorter.
const DELAY: Duration = Duration::from_secs(5);

/// The maximum wait for the answer to a statement of a migration, so that a broken network is noticed at last.
const MIGRATION: Duration = Duration::from_hours(24);

/// The connections and what is known of the database, for all requests.
pub(crate) struct Database {
    pub(crate) place: Location,
    /// The place, as errors name it.
    named: String,
    pub(crate) options: PostgresOptions,
    /// The facts about the tables, which the first connection reads.
    tables: OnceLock<Tables>,
    pool: Pool,
    /// The connection that renews leases, which waits for no other request.
    renewals: Pool,
    /// The name of this opening of the database among the owners of leases.
    pub(crate) owner: String,
    pub(crate) held: Held,
    pub(crate) followed: Arc<Followed>,
    /// The rows of threads as they were last seen. A write checks that they are current.
    rows: Mutex<LruCache<ThreadId, ThreadRow>>,
    /// Keys for new threads.
    keys: Mutex<std::ops::Range<i64>>,
}

/// The tables of a schema, as they were found.
pub(crate) struct Tables {
    /// The random number that distinguishes the schema from others.
    pub(crate) identity: String,
    /// Marks tables that this opening has created.
    pub(crate) are_new: bool,
}

/// Repeats an attempt while its failures are temporary and time is left.
macro_rules! repeated {
    ($database:expr, $action:expr, |$nth:ident| $attempt:expr) => {{
        let database: &$crate::database::Database = $database;
        let mut repetition = $crate::database::Repetition::new(database);
        loop {
            let $nth = repetition.nth;
            match database.attempt($attempt).await {
                Ok(done) => break Ok(done),
                Err(failed) if repetition.pause(&failed).await => {}
                Err(failed) => break Err(failed.into_error(&database.place, &$action)),
            }
        }
    }};
}
pub(crate) use repeated;

/// The attempts of a request.
pub(crate) struct Repetition {
    /// The number of failed attempts.
    pub(crate) nth: u32,
    /// The time for repetitions, which begins with the first failure: an attempt without an answer may take longer.
    reconnect: Duration,
    until: Option<Instant>,
}

impl Repetition {
    pub(crate) fn new(database: &Database) -> Self {
        Self { nth: 0, reconnect: database.options.reconnect, until: None }
    }

    /// Waits before the next attempt; `false` if there is none.
    pub(crate) async fn pause(&mut self, failed: &Failed) -> bool {
        let pause = PAUSE * 2_u32.pow(self.nth.min(4));
        self.nth += 1;
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.reconnect);
        let again = failed.is_temporary() && Instant::now() + pause < until;
        if again {
            tokio::time::sleep(pause).await;
        }
        again
    }
}

impl Database {
    /// Connects, and creates or migrates the tables. Returns `None` for a database without tables that is only to be read.
    pub(crate) async fn connect(options: PostgresOptions) -> Result<Option<Arc<Self>>, CheckpointError> {
        let (place, config) = Location::parse(&options)?;
        let pool = pool(&place, &options, config.clone(), options.connections.max(1))?;
        let renewals = self::pool(&place, &options, config, 1)?;
        let database = Self {
            owner: owner()?,
            held: Held::default(),
            followed: Arc::default(),
            tables: OnceLock::new(),
            rows: Mutex::new(LruCache::new(KNOWN_ROWS)),
            keys: Mutex::new(0..0),
            named: format!("database `{place}`"),
            place,
            options,
            pool,
            renewals,
        };
        let mut repetition = Repetition::new(&database);
        let has_tables = loop {
            match database.attempt(database.prepare()).await {
                Ok(has_tables) => break has_tables,
                // A server that is not there may be a mistake in the URL.
                Err(failed) if failed.is_of_server() && repetition.pause(&failed).await => {}
                Err(failed) => return Err(failed.into_error(&database.place, "open the tables")),
            }
        };
        Ok(has_tables.then(|| Arc::new(database)))
    }

    /// Ensures that the tables are current. Returns `false` if there are none and the database is only to be read.
    async fn prepare(&self) -> Result<bool, Failed> {
        let is_current = schema::is_current(self.session().await?.client(), &self.place).await?;
        let are_new = match (is_current, self.options.read_only) {
            (Some(true), _) => false,
            (None, true) => return Ok(false),
            (Some(false), true) => {
                let why = "its tables are of an older version; open it for writing once";
                return Err(error::not_ours(&self.place, why).into());
            }
            (_, false) => {
                let mut session = Session::new(self.pool.get().await?, MIGRATION);
                session.enter();
                let are_new =
                    schema::make(session.client(), &self.place, self.options.statement_timeout).await?;
                session.leave();
                are_new
            }
        };
        let identity = schema::identity(self.session().await?.client(), &self.place).await?;
        let _ = self.tables.set(Tables { identity, are_new });
        Ok(true)
    }

    pub(crate) fn tables(&self) -> &Tables {
        self.tables.get().expect("they are read before the database is used")
    }

    /// Takes a connection of the pool.
    pub(crate) async fn session(&self) -> Result<Session, Failed> {
        Ok(Session::new(self.pool.get().await?, self.limit()))
    }

    /// Takes the connection for the renewal of leases.
    pub(crate) async fn renewal_session(&self) -> Result<Session, Failed> {
        Ok(Session::new(self.renewals.get().await?, self.limit()))
    }

    /// Returns the maximum wait for the answer to a statement.
    fn limit(&self) -> Duration {
        let limit = self.options.statement_timeout;
        limit + limit.min(DELAY)
    }

    /// Makes an attempt of a request. If there is no answer, idle connections are closed: they may have been cut as well.
    pub(crate) async fn attempt<T>(
        &self,
        attempt: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let done = attempt.await;
        if let Err(Failed::NoAnswer) = done {
            self.pool.retain(|_, _| false);
        }
        done
    }

    /// Returns the key of the followers of a thread.
    pub(crate) fn follow_key(&self, thread: &ThreadId) -> i64 {
        follow::key(self.place.schema(), thread)
    }

    /// Returns a thread with the words for its damages.
    pub(crate) fn stored<'a>(&'a self, thread: &'a ThreadId) -> StoredThread<'a> {
        StoredThread { name: thread, place: &self.named, backup: "database" }
    }

    pub(crate) fn check_writable(&self) -> Result<(), CheckpointError> {
        if self.options.read_only { Err(error::read_only(&self.place)) } else { Ok(()) }
    }

    fn rows(&self) -> MutexGuard<'_, LruCache<ThreadId, ThreadRow>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the row of a thread as it was last seen.
    pub(crate) fn known(&self, thread: &ThreadId) -> Option<ThreadRow> {
        self.rows().get(thread).copied()
    }

    /// Remembers the row of a thread, or that it is not known.
    pub(crate) fn learn(&self, thread: &ThreadId, row: Option<ThreadRow>) {
        match row {
            Some(row) => drop(self.rows().insert(thread.clone(), row)),
            None => drop(self.rows().remove(thread)),
        }
    }

    /// Returns a key for a new thread.
    pub(crate) async fn new_key(&self, client: Client<'_>) -> Result<i64, Failed> {
        let next = || self.keys.lock().unwrap_or_else(PoisonError::into_inner).next();
        if let Some(key) = next() {
            return Ok(key);
        }
        let first: i64 = Query::of("SELECT nextval('thread_keys')", &[]).only(client).await?.try_get(0)?;
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = first + 1..first + KEYS;
        Ok(first)
    }
}

/// The size of a block of keys, as in the sequence.
const KEYS: i64 = 64;

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("place", &self.place.to_string()).finish_non_exhaustive()
    }
}

/// A database with the OS thread that serves it.
#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) database: Arc<Database>,
    pub(crate) service: Arc<Service>,
}

impl Open {
    /// Connects, and blocks the calling thread until that is done.
    pub(crate) fn new(options: PostgresOptions) -> Result<Option<Self>, CheckpointError> {
        let (place, _) = Location::parse(&options)?;
        let service = Arc::new(Service::start()?);
        let database = service.block_on(Database::connect(options));
        let database = database.ok_or_else(|| error::service_ended(&place))??;
        Ok(database.map(|database| Self { database, service }))
    }

    /// Returns the check for writes to a thread that are requested now.
    pub(crate) fn fence(&self, thread: &ThreadId) -> Option<Fence> {
        self.database.held.fence(thread)
    }

    /// Runs a request to its end, even if the caller drops the future.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, CheckpointError>> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let done = self.service.run(request).await;
        done.unwrap_or_else(|| Err(error::service_ended(&self.database.place)))
    }
}

/// Creates a pool, which connects when a connection is taken.
pub(crate) fn pool(
    place: &Location,
    options: &PostgresOptions,
    config: Config,
    connections: usize,
) -> Result<Pool, CheckpointError> {
    let limit = options.statement_timeout;
    limited_pool(place, options, config, connections, Limits { statement: limit, lock: limit })
}

/// The limits of the server for the statements of a pool; zero for none.
pub(crate) struct Limits {
    pub(crate) statement: Duration,
    pub(crate) lock: Duration,
}

/// Creates a pool with other limits than those of the options.
pub(crate) fn limited_pool(
    place: &Location,
    options: &PostgresOptions,
    config: Config,
    connections: usize,
    limits: Limits,
) -> Result<Pool, CheckpointError> {
    let (schema, limit, lock) = (place.schema(), limits.statement.as_millis(), limits.lock.as_millis());
    let mode = if options.read_only { "on" } else { "off" };
    // Without a limit, a statement would outlive its process for long.
    let ends = if limits.statement.is_zero() { schema::notices_ends(false) } else { String::new() };
    let settings: Arc<str> = format!(
        "SET search_path TO {schema}; SET statement_timeout TO {limit}; SET lock_timeout TO {lock};
         SET idle_in_transaction_session_timeout TO {limit}; SET default_transaction_read_only TO {mode};
         SET client_min_messages TO warning; {ends}"
    )
    .into();
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match config.get_ssl_mode() {
        // TLS wants the server's name, which a socket of the file system does not have.
        SslMode::Disable => Manager::from_config(config, NoTls, recycling),
        _ => Manager::from_config(config, tls()?, recycling),
    };
    let limit = options.connect_timeout;
    Pool::builder(manager)
        .max_size(connections)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(limit.max(options.statement_timeout)))
        .create_timeout(Some(limit))
        .recycle_timeout(Some(limit))
        .post_create(Hook::async_fn(move |client: &mut ClientWrapper, _| {
            let settings = settings.clone();
            Box::pin(async move {
                let set = tokio::time::timeout(limit, client.batch_execute(&settings));
                let set = set.await.map_err(|_| HookError::message(NO_ANSWER))?;
                set.map_err(HookError::Backend)
            })
        }))
        .build()
        .map_err(|_| error::not_ours(place, "its connections have no runtime"))
}

/// Returns a name for this opening of a database.
fn owner() -> Result<String, CheckpointError> {
    use rand::{TryRng as _, rngs::SysRng};
    let drawn = SysRng.try_next_u64().map_err(|cause| CheckpointError::Storage {
        what: "this machine has no random number for the owner of leases; try again".to_owned(),
        source: Some(Box::new(cause)),
    })?;
    Ok(format!("{}-{drawn:016x}", std::process::id()))
}
