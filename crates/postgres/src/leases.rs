//! One writer for each thread, among all processes.
//!
//! ```text
//!          acquire: a new token                         every write: is the token still in the table?
//! free ───────────────────────────► owned by A ◄──── renew, three times in the time of a lease
//!   ▲                                │     │
//!   └──── release: delete the row ───┘     └── no renewal until `expires_at` ──► owned by B, with another token
//! ```
//!
//! The server's clock decides. An owner that was stopped for longer than its lease may continue if no other took it over; otherwise
//! its token is gone, and each of its writes is refused in the transaction that would store it.
//!
//! A write locks the row `FOR KEY SHARE` until its end. The row can be renewed meanwhile, however long that takes, and not be taken
//! over: a take-over changes the token, which is a unique column.
//!
//! Start at [`acquire`].

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use superstep_checkpoint::{CheckpointError, ThreadId};
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    database::{Database, Open, repeated},
    error::Failed,
    follow::notify,
    query::Query,
    rows::name_of,
    service::Service,
};

/// The longest pause between two attempts to take over the lease of another process.
const PAUSE: Duration = Duration::from_millis(100);

/// The first of these pauses; each is twice as long as the one before, up to the longest.
const SHORT_PAUSE: Duration = Duration::from_millis(10);

/// The lease of a thread. Released when dropped.
pub(crate) struct LeaseGuard {
    database: Arc<Database>,
    service: Arc<Service>,
    thread: ThreadId,
    token: i64,
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.database.held.lock().remove(&self.thread);
        let (database, thread, token) = (self.database.clone(), self.thread.clone(), self.token);
        self.service.spawn_last(async move {
            // A row that stays expires.
            let _ = repeated!(&database, "release a lease", |_nth| release(&database, &thread, token));
        });
    }
}

async fn release(database: &Database, thread: &ThreadId, token: i64) -> Result<(), Failed> {
    let session = database.session().await?;
    let name = name_of(thread);
    let key = database.follow_key(thread);
    let sql = "DELETE FROM leases WHERE hash = sha256($1) AND token = $2 RETURNING ";
    let mut query = Query::of(sql, &[&name, &token]);
    notify(&mut query, &key);
    query.rows(session.client()).await?;
    Ok(())
}

/// A name that is being leased, until the token is known.
struct Claim<'a> {
    database: &'a Database,
    thread: &'a ThreadId,
    is_kept: bool,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.database.held.lock().remove(self.thread);
        }
    }
}

// An advisory lock ends with its connection. A connection breaks while its process lives, for example when the server restarts,
// and a process that stops without dying keeps it: neither says who may write. A time says when another process may take over,
// by the server's clock; the token says who did. Each write of an owner locks the row of its lease and compares the token in its
// own transaction, so that no write of an earlier owner is stored after the take-over. Compare-and-set would refuse a commit as
// well, but not the record of a task or the result of an effect. A process that slept and was not replaced continues.

/// Makes this opening of the database the only writer of a thread. Waits for another one as long as the options say.
pub(crate) async fn acquire(open: Open, thread: ThreadId) -> Result<LeaseGuard, CheckpointError> {
    let database = &*open.database;
    database.check_writable()?;
    let until = Instant::now() + database.options.lease_wait;
    let mut pause = SHORT_PAUSE;
    let token = loop {
        let is_free = {
            let mut held = database.held.lock();
            let is_free = !held.contains_key(&thread);
            if is_free {
                held.insert(thread.clone(), None);
            }
            is_free
        };
        if is_free {
            let mut claim = Claim { database, thread: &thread, is_kept: false };
            let action = || format!("lease thread `{thread}`");
            if let Some(token) = repeated!(database, action(), |_nth| take(database, &thread))? {
                database.held.lock().insert(thread.clone(), Some(token));
                claim.is_kept = true;
                break token;
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(CheckpointError::Busy { thread });
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(PAUSE);
    };
    Ok(LeaseGuard { database: open.database, service: open.service, thread, token })
}

/// Returns whether this opening of the database, or another one, is the writer of a thread.
pub(crate) async fn is_held(database: &Database, thread: &ThreadId) -> Result<bool, CheckpointError> {
    let is_own = database.held.lock().contains_key(thread);
    let action = || format!("find the writer of thread `{thread}`");
    Ok(is_own || repeated!(database, action(), |_nth| is_leased(database, thread))?)
}

/// Returns whether another opening has the lease of a thread. A row of this one is left of a lease that is released right now.
async fn is_leased(database: &Database, thread: &ThreadId) -> Result<bool, Failed> {
    let session = database.session().await?;
    let name = name_of(thread);
    let sql =
        "SELECT FROM leases WHERE hash = sha256($1) AND expires_at >= clock_timestamp() AND owner <> $2";
    Ok(Query::of(sql, &[&name, &database.owner]).row(session.client()).await?.is_some())
}

/// Takes the lease of a thread, if it is free or its time is over; `None` otherwise.
async fn take(database: &Database, thread: &ThreadId) -> Result<Option<i64>, Failed> {
    let session = database.session().await?;
    let (name, seconds) = (name_of(thread), database.options.lease.as_secs_f64());
    // A lease that is valid is not even locked. The time of a lease begins after the wait for the row, which a write of the owner
    // before may have had.
    let sql = "INSERT INTO leases (hash, name, owner, token, expires_at)
        SELECT sha256($1), $1, $2, nextval('lease_tokens'), clock_timestamp() + $3 * interval '1 second'
        WHERE NOT EXISTS (
            SELECT FROM leases WHERE hash = sha256($1) AND expires_at >= clock_timestamp() AND owner <> $2
        ) ON CONFLICT (hash) DO UPDATE SET owner = excluded.owner, token = excluded.token,
            expires_at = clock_timestamp() + $3 * interval '1 second'
        WHERE leases.expires_at < clock_timestamp() OR leases.owner = excluded.owner RETURNING token";
    let query = Query::of(sql, &[&name, &database.owner, &seconds]);
    // A row of this owner is left of a lease that is released right now, or of an attempt whose answer was lost.
    let row = query.row(session.client()).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Renews the leases of this opening as long as it lives, three times in the time of a lease.
pub(crate) async fn renew(database: Weak<Database>) {
    let Some(period) = database.upgrade().map(|database| database.options.lease / 3) else { return };
    let period = period.max(Duration::from_millis(1));
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(database) = database.upgrade() else { return };
        let tokens = database.held.tokens();
        if !tokens.is_empty() {
            let renewed = async { repeated!(&database, "renew leases", |_nth| extend(&database, &tokens)) };
            // Leases that are not renewed may be taken over; writes find out. The connection of an attempt that takes longer is closed.
            let _ = tokio::time::timeout(period, renewed).await;
        }
    }
}

async fn extend(database: &Database, tokens: &Vec<i64>) -> Result<(), Failed> {
    let session = database.renewal_session().await?;
    let seconds = database.options.lease.as_secs_f64();
    // A row that another program locks must not delay the others.
    let sql = "WITH own AS MATERIALIZED (
            SELECT hash FROM leases WHERE owner = $1 AND token = ANY($2) FOR NO KEY UPDATE SKIP LOCKED
        ) UPDATE leases SET expires_at = clock_timestamp() + $3 * interval '1 second' FROM own WHERE leases.hash = own.hash";
    let query = Query::of(sql, &[&database.owner, tokens, &seconds]);
    query.rows(session.client()).await?;
    Ok(())
}
