//! Jobs that return to the queue, in the order of their key.
//!
//! The recovery of the crate `graphile_worker` makes a job due now, which puts it behind later jobs of its key. So jobs return here with the
//! time that they had.
//!
//! Start at [`Queue::give_back`].

use std::time::Duration;

use graphile_worker::{
    DbExecutor as _, DbValue, Job, SweepStaleWorkersOptions, WorkerRecoveryConfig,
    errors::GraphileWorkerError,
    sql::{
        recover_workers::recover_dead_worker_jobs, return_jobs::recovery::return_job_for_recovery,
        worker_heartbeat::registration::worker_deregister,
    },
};
use superstep_graph::checkpoint::CheckpointError;
use tokio::time::Instant;

use super::{LONG_PAUSE, PAUSE, Queue, failed, is_temporary, repeated};

/// The number of a key in the database.
pub(crate) type Key = i32;

/// The error of a job whose worker is dead.
const RECOVERED: &str = "the worker died";

impl Queue {
    /// Puts a job back, as if it had not been claimed.
    pub(crate) async fn give_back(&self, job: &Job, worker: &str, why: &str) -> Result<(), CheckpointError> {
        repeated!(
            self,
            "put a job back",
            return_job_for_recovery(&self.database, job, &self.schema, worker, None, Some(why))
        )?;
        self.wake().await
    }

    /// Puts a job back that is to wait. Returns its key, which stays locked by the worker until [`unlock`](Self::unlock), so that no later
    /// job of the key runs before it; without a key the job is due after the pause.
    pub(crate) async fn postpone(
        &self,
        job: &Job,
        worker: &str,
        pause: Duration,
        why: &str,
    ) -> Result<Option<Key>, CheckpointError> {
        let action = "put a job back";
        let Some(key) = *job.job_queue_id() else {
            let pause = Some(pause);
            repeated!(
                self,
                action,
                return_job_for_recovery(&self.database, job, &self.schema, worker, pause, Some(why))
            )?;
            self.wake().await?;
            return Ok(None);
        };
        let lock = format!(
            "update {} set locked_by = $1::text, locked_at = now() where id = $2::int and locked_by is null",
            self.table("job_queues")
        );
        let locked = async || -> Result<(), GraphileWorkerError> {
            let transaction = self.database.begin().await?;
            return_job_for_recovery(&transaction, job, &self.schema, worker, None, Some(why)).await?;
            let values = vec![DbValue::Text(worker.to_owned()), DbValue::I32(key)];
            transaction.execute(&lock, values.into()).await?;
            Ok(transaction.commit().await?)
        };
        repeated!(self, action, locked())?;
        Ok(Some(key))
    }

    /// Unlocks keys, and wakes the workers.
    pub(crate) async fn unlock(&self, worker: &str, keys: Vec<Key>) -> Result<(), CheckpointError> {
        self.unlock_those(worker, "id = any($2::int[])", keys).await?;
        self.wake().await
    }

    /// Unlocks the keys of a worker that has no job of them, but for `postponed`: a job may have been removed by a worker that counted as dead.
    pub(crate) async fn unlock_unused(
        &self,
        worker: &str,
        postponed: Vec<Key>,
    ) -> Result<(), CheckpointError> {
        if self.unlock_those(worker, "id <> all($2::int[])", postponed).await? {
            self.wake().await
        } else {
            Ok(())
        }
    }

    async fn unlock_those(&self, worker: &str, which: &str, keys: Vec<Key>) -> Result<bool, CheckpointError> {
        let (queues, jobs) = (self.table("job_queues"), self.table("jobs"));
        let sql = format!(
            "update {queues} as queues set locked_by = null, locked_at = null where locked_by = $1::text and {which}
             and not exists (select from {jobs} as jobs where jobs.job_queue_id = queues.id and jobs.locked_at is not null)
             returning id"
        );
        let values = vec![DbValue::Text(worker.to_owned()), DbValue::I32Array(keys)];
        Ok(!self.rows("unlock a key", &sql, values).await?.is_empty())
    }

    /// Puts the jobs of workers back that gave no sign of life for this time.
    pub(crate) async fn recover(&self, silence: Duration) -> Result<(), CheckpointError> {
        let dead = ["list_stale_workers", "list_orphan_locked_workers"].map(|function| {
            let function = self.schema.function(function);
            format!("select worker_id from {function}($1::bigint * interval '1 millisecond')")
        });
        let sql = format!(
            "select {}(jobs.locked_by, array_agg(jobs.id), null, $2::text, true)::text as done from {} as jobs
             where jobs.locked_by in ({}) group by jobs.locked_by",
            self.return_jobs(),
            self.table("jobs"),
            dead.join(" union ")
        );
        let silence_ms = i64::try_from(silence.as_millis()).unwrap_or(i64::MAX);
        let values = vec![DbValue::I64(silence_ms), DbValue::Text(RECOVERED.to_owned())];
        let is_returned = !self.rows("put the jobs of dead workers back", &sql, values).await?.is_empty();
        // The workers themselves, and keys that they had locked.
        let config = WorkerRecoveryConfig::default().sweep_threshold(silence).recovery_delay(Duration::ZERO);
        let utils = self.utils();
        let swept = repeated!(
            self,
            "end dead workers",
            utils.sweep_stale_workers_with_config(&config, SweepStaleWorkersOptions::default())
        )?;
        if is_returned || !swept.worker_ids.is_empty() { self.wake().await } else { Ok(()) }
    }

    /// Puts jobs back whose claim this worker does not know, because its answer was lost.
    pub(crate) async fn disown(&self, worker: &str, jobs: Vec<i64>) -> Result<(), CheckpointError> {
        let sql = format!(
            "select {}($1::text, $2::bigint[], null, 'the claim was lost', true)::text as done",
            self.return_jobs()
        );
        let values = vec![DbValue::Text(worker.to_owned()), DbValue::I64Array(jobs)];
        self.rows("put a job back", &sql, values).await.map(drop)
    }

    /// Puts all jobs of a worker back, unlocks its keys, and deletes the worker.
    pub(crate) async fn leave(&self, worker: &str, why: &str) -> Result<(), CheckpointError> {
        let jobs = self.table("jobs");
        let sql = format!(
            "select {}($1::text, array(select id from {jobs} where locked_by = $1::text), null, $2::text, true)::text as done",
            self.return_jobs()
        );
        let values = [worker, why].map(|text| DbValue::Text(text.to_owned()));
        self.rows("put the jobs of this worker back", &sql, values.into()).await?;
        let workers = [worker.to_owned()];
        repeated!(
            self,
            "unlock the keys of this worker",
            recover_dead_worker_jobs(&self.database, &self.schema, &workers, Duration::ZERO)
        )?;
        repeated!(self, "end this worker", worker_deregister(&self.database, &self.schema, worker))?;
        self.wake().await
    }

    fn return_jobs(&self) -> String {
        self.schema.function("_private_return_jobs").to_string()
    }
}
