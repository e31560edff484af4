//! The connections to a database, and the repetition of requests whose connection broke.
//!
//! Start at [`Database`].

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime,
};
use superstep_checkpoint::{CheckpointError, ThreadId};
use tokio::time::Instant;
use tokio_postgres::{NoTls, config::SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    PostgresOptions, error,
    error::Failed,
    leases::{Fence, Held},
    location::Location,
    rows::ThreadRow,
    schema,
    service::Service,
};

use hashlink::LruCache;

/// The number of threads whose rows are known without a request.
const KNOWN_ROWS: usize = 4096;

/// The pause before a request is repeated for the first time.
const PAUSE: Duration = Duration::from_millis(20);

/// The time that an answer may take beyond the limit of its statement.
const DELAY: Duration = Duration::from_secs(5);

/// The connections and what is known of the database, for all requests.
pub(crate) struct Database {
    pub(crate) place: Location,
    pub(crate) options: PostgresOptions,
    pool: Pool,
    /// The name of this opening of the database among the owners of leases.
    pub(crate) owner: String,
    pub(crate) held: Held,
    /// The rows of threads as they were last seen. A write checks that they are current.
    rows: Mutex<LruCache<ThreadId, ThreadRow>>,
    /// Keys for new threads.
    keys: Mutex<std::ops::Range<i64>>,
}

/// A connection of the pool. It is closed instead of being used again if it is dropped in a transaction.
pub(crate) struct Session {
    object: Option<Object>,
    is_clean: bool,
}

impl Session {
    pub(crate) fn client(&self) -> &ClientWrapper {
        self.object.as_ref().expect("a session has its connection until it is dropped")
    }

    pub(crate) async fn begin(&mut self) -> Result<(), Failed> {
        self.is_clean = false;
        Ok(self.client().batch_execute("BEGIN").await?)
    }

    /// Begins a transaction that sees the database as it is now.
    pub(crate) async fn begin_reading(&mut self) -> Result<(), Failed> {
        self.is_clean = false;
        Ok(self.client().batch_execute(BEGIN_READING).await?)
    }

    pub(crate) async fn commit(&mut self) -> Result<(), Failed> {
        self.client().batch_execute("COMMIT").await?;
        self.is_clean = true;
        Ok(())
    }

    /// Ends a transaction without an effect.
    pub(crate) async fn roll_back(&mut self) -> Result<(), Failed> {
        self.client().batch_execute("ROLLBACK").await?;
        self.is_clean = true;
        Ok(())
    }

    /// Marks the begin of requests that contain a transaction.
    pub(crate) fn enter(&mut self) {
        self.is_clean = false;
    }

    /// Marks the end of that transaction.
    pub(crate) fn leave(&mut self) {
        self.is_clean = true;
    }
}

pub(crate) const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

impl Drop for Session {
    fn drop(&mut self) {
        if let (Some(object), false) = (self.object.take(), self.is_clean) {
            drop(Object::take(object));
        }
    }
}

/// Repeats an attempt while its failures are temporary and time is left.
macro_rules! repeated {
    ($database:expr, $action:expr, |$nth:ident| $attempt:expr) => {{
        let database: &$crate::database::Database = $database;
        let mut repetition = $crate::database::Repetition::new(database);
        loop {
            let $nth = repetition.nth;
            match database.in_time($attempt).await {
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
    until: Instant,
}

impl Repetition {
    pub(crate) fn new(database: &Database) -> Self {
        Self { nth: 0, until: Instant::now() + database.options.reconnect }
    }

    /// Waits before the next attempt; `false` if there is none.
    pub(crate) async fn pause(&mut self, failed: &Failed) -> bool {
        let pause = PAUSE * 2_u32.pow(self.nth.min(4));
        self.nth += 1;
        let again = failed.is_temporary() && Instant::now() + pause < self.until;
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
        let (schema, is_read_only) = (place.schema(), options.read_only);
        let limit = options.statement_timeout.as_millis();
        let mode = if is_read_only { "on" } else { "off" };
        let settings = format!(
            "SET search_path TO {schema}; SET statement_timeout TO {limit}; SET lock_timeout TO {limit};
             SET idle_in_transaction_session_timeout TO {limit}; SET default_transaction_read_only TO {mode};
             SET client_min_messages TO warning"
        );
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match config.get_ssl_mode() {
            // TLS wants the server's name, which a socket of the file system does not have.
            SslMode::Disable => Manager::from_config(config, NoTls, recycling),
            _ => Manager::from_config(config, tls()?, recycling),
        };
        let settings = Arc::new(settings);
        let pool = Pool::builder(manager)
            .max_size(options.connections.max(1))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(options.connect_timeout.max(options.statement_timeout)))
            .create_timeout(Some(options.connect_timeout))
            .recycle_timeout(Some(options.connect_timeout))
            .post_create(Hook::async_fn(move |client: &mut ClientWrapper, _| {
                let settings = settings.clone();
                Box::pin(async move { client.batch_execute(&settings).await.map_err(HookError::Backend) })
            }))
            .build()
            .map_err(|_| error::not_ours(&place, "its connections have no runtime"))?;
        let database = Self {
            owner: owner()?,
            held: Held::default(),
            rows: Mutex::new(LruCache::new(KNOWN_ROWS)),
            keys: Mutex::new(0..0),
            place,
            options,
            pool,
        };
        let mut repetition = Repetition::new(&database);
        let has_tables = loop {
            match database.in_time(database.prepare()).await {
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
        let mut session = self.session().await?;
        session.enter();
        if !self.options.read_only {
            schema::make(session.client(), &self.place).await?;
            session.leave();
            return Ok(true);
        }
        let is_current = schema::is_current(session.client(), &self.place).await?;
        session.leave();
        match is_current {
            Some(true) => Ok(true),
            None => Ok(false),
            Some(false) => Err(error::not_ours(
                &self.place,
                "its tables are of an older version; open it for writing once",
            )
            .into()),
        }
    }

    /// Takes a connection of the pool.
    pub(crate) async fn session(&self) -> Result<Session, Failed> {
        Ok(Session { object: Some(self.pool.get().await?), is_clean: true })
    }

    /// Limits the duration of an attempt, beyond the limits that the server has.
    pub(crate) async fn in_time<T>(
        &self,
        attempt: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let limit = self.options.statement_timeout + DELAY;
        tokio::time::timeout(limit, attempt).await.unwrap_or(Err(Failed::NoAnswer))
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
    pub(crate) async fn new_key(&self, client: &ClientWrapper) -> Result<i64, Failed> {
        let next = || self.keys.lock().unwrap_or_else(PoisonError::into_inner).next();
        if let Some(key) = next() {
            return Ok(key);
        }
        let block = client.prepare_cached("SELECT nextval('thread_keys')").await?;
        let first: i64 = client.query_one(&block, &[]).await?.try_get(0)?;
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
        Fence::of(&self.database, thread)
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

/// Returns a name for this opening of a database.
fn owner() -> Result<String, CheckpointError> {
    use rand::{TryRng as _, rngs::SysRng};
    let drawn = SysRng.try_next_u64().map_err(|cause| CheckpointError::Storage {
        what: "this machine has no random number for the owner of leases; try again".to_owned(),
        source: Some(Box::new(cause)),
    })?;
    Ok(format!("{}-{drawn:016x}", std::process::id()))
}

/// Returns TLS with the certificate authorities of the operating system.
fn tls() -> Result<MakeRustlsConnect, CheckpointError> {
    use rustls_platform_verifier::BuilderVerifierExt as _;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(error::no_tls)?
        .with_platform_verifier()
        .map_err(error::no_tls)?
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
