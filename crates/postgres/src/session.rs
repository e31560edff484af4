//! A connection during a request.
//!
//! Start at [`Session`].

use std::{
    pin::pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use deadpool_postgres::{ClientWrapper, Object};
use tokio::time::Instant;
use tokio_postgres::{
    Error, Row, Statement,
    types::{ToSql, Type},
};

use crate::error::Failed;

pub(crate) const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// A connection of a pool. It is closed instead of being used again if it is dropped in a transaction or before an answer.
pub(crate) struct Session {
    object: Option<Object>,
    is_clean: bool,
    /// The number of statements without an answer.
    pending: AtomicUsize,
    /// The time of the last answer.
    answered: Mutex<Instant>,
    /// The maximum wait for an answer, beyond the limit that the server has.
    limit: Duration,
}

impl Session {
    pub(crate) fn new(object: Object, limit: Duration) -> Self {
        let (pending, answered) = (AtomicUsize::new(0), Mutex::new(Instant::now()));
        Self { object: Some(object), is_clean: true, pending, answered, limit }
    }

    pub(crate) fn client(&self) -> Client<'_> {
        Client(self)
    }

    pub(crate) async fn begin(&mut self) -> Result<(), Failed> {
        self.is_clean = false;
        self.client().batch_execute("BEGIN").await
    }

    /// Begins a transaction that sees the database as it is now.
    pub(crate) async fn begin_reading(&mut self) -> Result<(), Failed> {
        self.is_clean = false;
        self.client().batch_execute(BEGIN_READING).await
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

    fn answered(&self) -> Instant {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let is_usable = self.is_clean && self.pending.load(Ordering::Relaxed) == 0;
        if let (Some(object), false) = (self.object.take(), is_usable) {
            drop(Object::take(object));
        }
    }
}

/// The statements of a session, each with a limit for its answer.
#[derive(Clone, Copy)]
pub(crate) struct Client<'s>(&'s Session);

impl Client<'_> {
    fn wrapper(&self) -> &ClientWrapper {
        self.0.object.as_ref().expect("a session has its connection until it is dropped")
    }

    /// Waits for an answer. The server limits the duration of each statement, and answers those that were sent together in turn,
    /// so that the limit begins again with each answer.
    async fn answer<T>(self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Failed> {
        let (session, mut request) = (self.0, pin!(request));
        session.pending.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        loop {
            let until = session.answered().max(begun) + session.limit;
            match tokio::time::timeout_at(until, request.as_mut()).await {
                Ok(answer) => {
                    session.pending.fetch_sub(1, Ordering::Relaxed);
                    *session.answered.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                    return Ok(answer?);
                }
                Err(_) if session.answered() + session.limit > until => {}
                Err(_) => return Err(Failed::NoAnswer),
            }
        }
    }

    pub(crate) async fn batch_execute(self, sql: &str) -> Result<(), Failed> {
        self.answer(self.wrapper().batch_execute(sql)).await
    }

    /// Prepares a statement, if the connection did not do so before.
    pub(crate) async fn prepare(self, sql: &str, types: &[Type]) -> Result<Statement, Failed> {
        self.answer(self.wrapper().prepare_typed_cached(sql, types)).await
    }

    pub(crate) async fn query(
        self,
        prepared: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failed> {
        self.answer(self.wrapper().query(prepared, params)).await
    }
}
