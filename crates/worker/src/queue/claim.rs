//! Claims of jobs, within the limits of graphs over all workers.
//!
//! Start at [`Queue::claim`].

use std::collections::{BTreeMap, BTreeSet};

use chrono::DateTime;
use graphile_worker::{
    DbExecutor as _, DbValue, Job, JobFlagFilter,
    sql::{get_job::get_job_with_filter, task_identifiers::TaskDetails},
};
use superstep_graph::checkpoint::CheckpointError;
use superstep_postgres::internal::queue_error;

use super::Queue;

/// A graph of which a worker may begin another run.
pub(crate) struct Free {
    pub(crate) graph: String,
    /// The number of the graph in jobs.
    pub(crate) number: i32,
    /// The maximum number of its runs in all workers.
    pub(crate) limit: Option<usize>,
}

impl Queue {
    /// Claims the next job of these graphs that is due.
    pub(crate) async fn claim(
        &self,
        worker: &str,
        graphs: &[Free],
        now_ms: Option<i64>,
    ) -> Result<Option<Job>, CheckpointError> {
        // Not repeated: a claim whose answer is lost is given back with the next sign of life.
        let claimed = async {
            // Without a limit a claim is one statement.
            if graphs.iter().all(|free| free.limit.is_none()) {
                return self.claim_by(&self.database, worker, graphs.iter(), now_ms).await;
            }
            // Counted here under an advisory lock: exact, and without rows that a killed worker could leave behind.
            // The named queues of Graphile Worker run one job at a time; several of them per graph would bind each
            // job to one when it is sent.
            let transaction = self.database.begin().await?;
            let full = self.full(&transaction, graphs).await?;
            let free = graphs.iter().filter(|free| !full.contains(&free.number));
            let claimed = self.claim_by(&transaction, worker, free, now_ms).await?;
            transaction.commit().await?;
            Ok(claimed)
        };
        claimed.await.map_err(|error| queue_error(&self.server.place(), "claim a job", error))
    }

    async fn claim_by(
        &self,
        executor: impl graphile_worker::DbExecutorArg,
        worker: &str,
        graphs: impl Iterator<Item = &Free>,
        now_ms: Option<i64>,
    ) -> Result<Option<Job>, Error> {
        let mut details = TaskDetails::new();
        graphs.for_each(|free| details.insert(free.number, free.graph.clone()));
        let now = now_ms.and_then(DateTime::from_timestamp_millis);
        let filter = JobFlagFilter::default();
        Ok(get_job_with_filter(executor, &details, &self.schema, worker, filter, now).await?)
    }

    /// Locks the limited graphs until the end of the transaction, and returns those that have as many runs as they may.
    async fn full(
        &self,
        transaction: &graphile_worker::DbTransaction,
        graphs: &[Free],
    ) -> Result<BTreeSet<i32>, Error> {
        let limits: BTreeMap<i32, usize> =
            graphs.iter().filter_map(|free| Some((free.number, free.limit?))).collect();
        // In one order, so that no two workers wait for each other.
        let numbers: Vec<i32> = limits.keys().copied().collect();
        let lock = "select pg_advisory_xact_lock(hashtext($1::text), number) is null as done from unnest($2::int[]) as number";
        let values = vec![DbValue::Text(self.cancellations.clone()), DbValue::I32Array(numbers.clone())];
        transaction.fetch_all(lock, values.into()).await?;
        // A statement of its own, which sees the claims of those who had the lock before.
        let count = format!(
            "select task_id, count(*) as runs from {} where locked_at is not null and task_id = any($1::int[]) group by task_id",
            self.table("jobs")
        );
        let mut full = BTreeSet::new();
        for row in transaction.fetch_all(&count, vec![DbValue::I32Array(numbers)].into()).await? {
            let (number, runs): (i32, i64) = (row.try_get("task_id")?, row.try_get("runs")?);
            if limits
                .get(&number)
                .is_some_and(|limit| u64::try_from(runs).is_ok_and(|runs| runs >= *limit as u64))
            {
                full.insert(number);
            }
        }
        Ok(full)
    }
}

type Error = Box<dyn std::error::Error + Send + Sync>;
