//! Connections for the queue of jobs, which has its own tables next to those of the threads. Not a part of the public API.
//!
//! Start at [`Server`].

use std::{future::poll_fn, pin::pin, time::Duration};

pub use deadpool_postgres::Pool;
use superstep_checkpoint::CheckpointError;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, config::SslMode};

use crate::{
    PostgresOptions,
    database::{self, Limits},
    error::{self, Failed},
    location::Location,
    schema::LOCK_WAIT,
    tls::tls,
};

/// The pause before a listener connects again, at first.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest of these pauses; each is twice as long as the one before.
const LONG_PAUSE: Duration = Duration::from_secs(2);

/// A server with a pool of connections on the current runtime.
#[derive(Clone)]
pub struct Server {
    options: PostgresOptions,
    place: Location,
    pool: Pool,
}

impl Server {
    /// Creates the pool. The connections are made when they are needed.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if the URL is not valid.
    pub fn new(options: PostgresOptions) -> Result<Self, CheckpointError> {
        let (place, config) = Location::parse(&options)?;
        let pool = database::pool(&place, &options, config, options.connections.max(1))?;
        Ok(Self { options, place, pool })
    }

    /// Returns a server whose statements have no limit of time, only their waits for locks, for the creation and migration of tables.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn for_migrations(&self) -> Result<Self, CheckpointError> {
        let (place, config) = Location::parse(&self.options)?;
        let limits = Limits { statement: Duration::ZERO, lock: LOCK_WAIT };
        // The transaction with the lock, and the migration.
        let pool = database::limited_pool(&place, &self.options, config, 2, limits)?;
        Ok(Self { pool, ..self.clone() })
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the name of the schema with the threads.
    pub fn schema(&self) -> &str {
        self.place.schema()
    }

    /// Returns the database without user and password.
    pub fn place(&self) -> String {
        self.place.to_string()
    }

    /// Waits for the answer of the server.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if it cannot be reached.
    pub async fn check(&self) -> Result<(), CheckpointError> {
        let failed = |failed: Failed| failed.into_error(&self.place, "connect");
        self.pool.get().await.map(drop).map_err(|cause| failed(cause.into()))
    }

    /// Returns the notifications of channels. They have a separate connection, which is made again when it breaks. `None` reports
    /// a new connection: notifications before it are lost.
    pub fn listen(&self, channels: &[&str]) -> mpsc::UnboundedReceiver<Option<Notification>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let channels: Vec<_> = channels.iter().map(|channel| format!("LISTEN \"{channel}\"")).collect();
        let (options, listen) = (self.options.clone(), channels.join("; "));
        tokio::spawn(async move {
            let mut pause = PAUSE;
            while !sender.is_closed() {
                if let Ok(()) = follow(&options, &listen, &sender).await {
                    pause = PAUSE;
                }
                tokio::select! {
                    () = sender.closed() => return,
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONG_PAUSE),
                }
            }
        });
        receiver
    }
}

/// A notification.
#[derive(Clone, Debug)]
pub struct Notification {
    /// The channel of the notification.
    pub channel: String,
    /// The text of the notification.
    pub payload: String,
}

type Sender = mpsc::UnboundedSender<Option<Notification>>;

/// Follows one connection to its end.
async fn follow(options: &PostgresOptions, listen: &str, sender: &Sender) -> Result<(), CheckpointError> {
    let (place, config) = Location::parse(options)?;
    let failed = |cause: tokio_postgres::Error| Failed::from(cause).into_error(&place, "listen");
    match config.get_ssl_mode() {
        SslMode::Disable => {
            let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
            receive(client, connection, listen, sender).await.map_err(failed)
        }
        _ => {
            let (client, connection) = config.connect(tls()?).await.map_err(failed)?;
            receive(client, connection, listen, sender).await.map_err(failed)
        }
    }
}

/// Forwards the notifications of a connection to its end.
async fn receive<S, T>(
    client: Client,
    mut connection: Connection<S, T>,
    listen: &str,
    sender: &Sender,
) -> Result<(), tokio_postgres::Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut listening = pin!(async {
        client.batch_execute(listen).await?;
        let _ = sender.send(None);
        // The connection ends with its client.
        sender.closed().await;
        Ok(())
    });
    loop {
        tokio::select! {
            ended = &mut listening => return ended,
            message = poll_fn(|cx| connection.poll_message(cx)) => match message {
                None => return Ok(()),
                Some(Err(cause)) => return Err(cause),
                Some(Ok(AsyncMessage::Notification(sent))) => {
                    let (channel, payload) = (sent.channel().to_owned(), sent.payload().to_owned());
                    let _ = sender.send(Some(Notification { channel, payload }));
                }
                Some(Ok(_)) => {}
            },
        }
    }
}

/// Creates the error of a request of the queue.
pub fn queue_error(
    place: &str,
    action: &str,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> CheckpointError {
    error::storage(format!("cannot {action} in database `{place}`"), cause)
}
