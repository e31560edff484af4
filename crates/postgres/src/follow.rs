//! Notifications of the writes of other processes.
//!
//! ```text
//! follower                        commit, record, release of a lease
//! LISTEN, on one connection       the statement that stores:
//! shared lock of the thread ────► the lock is free: nothing
//! reads the thread                it is not: NOTIFY, in the same transaction
//! ```
//!
//! A transaction with a notification holds a lock of the whole server while its log is written, so that all of them wait for each
//! other. Therefore only threads with a follower have any, and a follower is a lock, which ends with its connection. A write that did
//! not see it has ended before the follower has it, and is seen by the follower's next reading.
//!
//! Start at [`listen`].

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use superstep_checkpoint::{
    ThreadId,
    internal::{Cell, row_sum},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Socket, config::SslMode};

use crate::{PostgresOptions, error::Failed, location::Location, query::Query, rows::name_of, tls::tls};

/// The time between two wake-ups of all followers while there is no connection.
const POLL: Duration = Duration::from_millis(500);

/// The time between two checks of an idle connection.
const CHECK: Duration = Duration::from_secs(10);

/// Returns the key of a thread's lock, which is also the text of its notifications.
pub(crate) fn key(schema: &str, thread: &ThreadId) -> i64 {
    row_sum(&[Cell::Text(b"follow"), Cell::Text(schema.as_bytes()), Cell::Bytes(name_of(thread))])
}

/// Appends an expression that notifies the followers of a thread, if there are any.
pub(crate) fn notify<'q>(query: &mut Query<'q>, key: &'q i64) {
    let sql = "CASE WHEN pg_try_advisory_xact_lock(?) THEN NULL ELSE pg_notify('superstep', (?)::text) END";
    query.push(sql, &[key, key]);
}

/// The threads that this opening of the database follows, by key.
#[derive(Default)]
pub(crate) struct Followed {
    threads: Mutex<BTreeMap<i64, watch::Sender<()>>>,
    added: Notify,
}

impl Followed {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, watch::Sender<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an item for each wake-up of a thread's followers. Several may be one item.
    pub(crate) fn follow(&self, key: i64) -> BoxStream<'static, ()> {
        let receiver = self.lock().entry(key).or_insert_with(|| watch::Sender::new(())).subscribe();
        self.added.notify_one();
        stream::unfold(
            receiver,
            |mut receiver| async move { Some((receiver.changed().await.ok()?, receiver)) },
        )
        .boxed()
    }

    /// Returns the keys of the threads that still have followers.
    fn keys(&self) -> BTreeSet<i64> {
        let mut threads = self.lock();
        threads.retain(|_, followers| !followers.is_closed());
        threads.keys().copied().collect()
    }

    fn wake(&self, key: i64) {
        if let Some(followers) = self.lock().get(&key) {
            followers.send_replace(());
        }
    }

    fn wake_all(&self) {
        self.keys().into_iter().for_each(|key| self.wake(key));
    }
}

/// Wakes followers up as long as the service lives: by notifications, and at intervals while there is no connection.
pub(crate) async fn listen(options: PostgresOptions, followed: Arc<Followed>) {
    loop {
        while followed.keys().is_empty() {
            followed.added.notified().await;
        }
        let mut listening = pin!(Listener::connect(&options));
        let connected = loop {
            tokio::select! {
                connected = &mut listening => break connected,
                () = sleep(POLL) => followed.wake_all(),
            }
        };
        if let Ok(mut listener) = connected {
            // It has failed, or there are no followers.
            let _ = listener.serve(&followed).await;
        }
        followed.wake_all();
        if !followed.keys().is_empty() {
            sleep(POLL).await;
        }
    }
}

/// A connection that receives notifications.
struct Listener {
    client: Client,
    task: JoinHandle<()>,
    keys: mpsc::UnboundedReceiver<i64>,
    limit: Duration,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    async fn connect(options: &PostgresOptions) -> Result<Self, Failed> {
        let (_, config) = Location::parse(options)?;
        let (sender, keys) = mpsc::unbounded_channel();
        let limit = options.connect_timeout;
        let connected = timeout(limit, async {
            Ok::<_, Failed>(match config.get_ssl_mode() {
                SslMode::Disable => {
                    let (client, connection) = config.connect(NoTls).await?;
                    (client, tokio::spawn(receive(connection, sender)))
                }
                _ => {
                    let (client, connection) = config.connect(tls()?).await?;
                    (client, tokio::spawn(receive(connection, sender)))
                }
            })
        });
        let (client, task) = connected.await.map_err(|_| Failed::NoAnswer)??;
        let listener = Self { client, task, keys, limit };
        listener.execute("LISTEN superstep").await?;
        Ok(listener)
    }

    async fn execute(&self, sql: &str) -> Result<(), Failed> {
        let executed = timeout(self.limit, self.client.batch_execute(sql)).await;
        Ok(executed.map_err(|_| Failed::NoAnswer)??)
    }

    /// Wakes followers up until there are none, or the connection fails.
    async fn serve(&mut self, followed: &Followed) -> Result<(), Failed> {
        let (mut locked, mut has_new) = (BTreeSet::new(), true);
        loop {
            let wanted = followed.keys();
            if wanted.is_empty() {
                return Ok(());
            }
            for over in locked.difference(&wanted) {
                self.execute(&format!("SELECT pg_advisory_unlock_shared({over})")).await?;
            }
            for new in wanted.difference(&locked) {
                // Waits for a write that has not seen it.
                self.execute(&format!("SELECT pg_advisory_lock_shared({new})")).await?;
            }
            locked = wanted;
            if std::mem::take(&mut has_new) {
                followed.wake_all();
            }
            tokio::select! {
                key = self.keys.recv() => match key {
                    Some(key) => followed.wake(key),
                    None => return Err(Failed::NoAnswer),
                },
                () = followed.added.notified() => has_new = true,
                () = sleep(CHECK) => self.execute("").await?,
            }
        }
    }
}

/// Drives a connection, and forwards its notifications.
async fn receive<S>(mut connection: Connection<Socket, S>, keys: mpsc::UnboundedSender<i64>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notification(notification) = message
            && let Ok(key) = notification.payload().parse()
        {
            // Without a receiver, the connection is about to be closed.
            let _ = keys.send(key);
        }
    }
}
