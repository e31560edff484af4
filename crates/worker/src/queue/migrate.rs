//! The tables of the queue: those of Graphile Worker, and the project's own beside them.
//!
//! Start at [`Queue::migrate`].

use std::{error::Error, time::Duration};

use graphile_worker::{Database, DbError, DbExecutor as _, DbTransaction, DbValue, WorkerUtils};
use superstep_graph::checkpoint::CheckpointError;
use superstep_postgres::internal::queue_error;

use super::Queue;

/// The key of the lock of those who create or migrate tables: "ss jobs" as a number.
const LOCK: i64 = 0x0073_7320_6a6f_6273;

/// The index of the running jobs by graph.
const RUNNING: &str = "superstep_running";

/// The code of the server for a lock that was not free in time.
const LOCKED: &str = "55P03";

/// The advice if another process has the lock of a migration.
const MIGRATES: &str = "another process creates or migrates them; try again when that is done";

/// The advice if another program uses the tables.
const USED: &str = "another program holds a lock for too long; wait until it is done, or end it";

type Cause = Box<dyn Error + Send + Sync>;

impl Queue {
    /// Creates or migrates the tables, one process at a time; `wait` is the maximum wait for another one. The statements have no limit of
    /// time, only their waits for locks have one. Each version is a transaction: a process that ends leaves the versions before.
    pub(super) async fn migrate(&self, wait: Duration) -> Result<(), CheckpointError> {
        let database = Database::from(self.server.for_migrations()?.pool().clone());
        let lock = locked(&database, wait).await.map_err(|cause| self.failed(cause.into(), MIGRATES))?;
        self.make(&database).await.map_err(|cause| self.failed(cause, USED))?;
        lock.commit().await.map_err(|cause| self.failed(cause.into(), USED))
    }

    async fn make(&self, database: &Database) -> Result<(), Cause> {
        WorkerUtils::new(database.clone(), &self.schema).migrate().await?;
        // Checked first: a statement that creates an index waits for all writes, even if there is one.
        let running = self.schema.identifier(RUNNING);
        let known = vec![DbValue::Text(self.own_table()), DbValue::Text(running)];
        let sql = "select to_regclass($1::text) is null or to_regclass($2::text) is null as is_new";
        let is_new: bool = database.fetch_one(sql, known.into()).await?.try_get("is_new")?;
        if is_new {
            let jobs = self.table("jobs");
            let index = format!(
                "create index if not exists {RUNNING} on {jobs} (task_id) where locked_at is not null"
            );
            for statement in [self.schedule_table(), index] {
                database.execute(&statement, Vec::new().into()).await?;
            }
        }
        Ok(())
    }

    fn failed(&self, cause: Cause, advice: &str) -> CheckpointError {
        let (place, action) = (self.server.place(), "make the tables of jobs");
        if is_lock(&*cause) {
            let what = format!("cannot {action} in database `{place}`: {advice}");
            return CheckpointError::Storage { what, source: Some(cause) };
        }
        queue_error(&place, action, cause)
    }
}

/// Takes the lock until the end of the transaction, which is idle during the migration on another connection.
async fn locked(database: &Database, wait: Duration) -> Result<DbTransaction, DbError> {
    let lock = database.begin().await?;
    let wait = format!("set local lock_timeout to {}", wait.as_millis());
    lock.execute(&wait, Vec::new().into()).await?;
    lock.execute("select pg_advisory_xact_lock($1)", vec![DbValue::I64(LOCK)].into()).await?;
    Ok(lock)
}

fn is_lock(cause: &(dyn Error + 'static)) -> bool {
    let is_own = cause.downcast_ref().is_some_and(|cause: &DbError| cause.code() == Some(LOCKED));
    is_own || cause.source().is_some_and(is_lock)
}
