//! Jobs whose thread waits for an answer.
//!
//! Start at [`Queue::overtaken`].

use graphile_worker::{DbValue, Job};
use superstep_graph::checkpoint::CheckpointError;

use super::Queue;

impl Queue {
    /// Moves the answers on this thread before a job that has the same key, graph and thread. Returns `false` if there is none that is due.
    ///
    /// A job that waits for an answer remains the first of its key, and the answer may have the key as well.
    pub(crate) async fn overtaken(&self, job: &Job, thread: &str) -> Result<bool, CheckpointError> {
        let Some(key) = *job.job_queue_id() else { return Ok(false) };
        let (action, jobs) = ("read the answers of a key", self.table("jobs"));
        // The search for the word spares the inputs of other jobs.
        let sql = format!(
            "select id from {jobs} where job_queue_id = $1::int and task_id = $2::int and is_available and run_at <= now()
             and strpos(payload::text, '\"answer\"') > 0"
        );
        let values = vec![DbValue::I32(key), DbValue::I32(*job.task_id())];
        let answers = self.of_thread(action, &sql, values, thread, Some("answer")).await?;
        let sql = format!(
            "update {jobs} as jobs set priority = first.priority, run_at = first.run_at - interval '1 millisecond'
             from {jobs} as first where first.id = $1::bigint and jobs.id = any($2::bigint[]) and jobs.locked_at is null returning jobs.id"
        );
        let values = vec![DbValue::I64(*job.id()), DbValue::I64Array(answers)];
        Ok(!self.rows(action, &sql, values).await?.is_empty())
    }

    /// Makes the jobs without a key due that wait for an answer on this thread, in their order.
    pub(crate) async fn recall(&self, thread: &str, why: &str) -> Result<(), CheckpointError> {
        let (action, jobs) = ("read the jobs that wait for an answer", self.table("jobs"));
        let sql = format!(
            "select id from {jobs} where job_queue_id is null and is_available and last_error = $1::text"
        );
        let values = vec![DbValue::Text(why.to_owned())];
        let waiting = self.of_thread(action, &sql, values, thread, None).await?;
        let sql = format!(
            "update {jobs} set run_at = created_at where id = any($1::bigint[]) and locked_at is null"
        );
        self.rows(action, &sql, vec![DbValue::I64Array(waiting)]).await.map(drop)
    }

    /// Returns the selected jobs of a thread, if they have this work.
    async fn of_thread(
        &self,
        action: &str,
        sql: &str,
        values: Vec<DbValue>,
        thread: &str,
        work: Option<&str>,
    ) -> Result<Vec<i64>, CheckpointError> {
        let rows = self.rows(action, sql, values).await?;
        let ids = rows.iter().map(|row| self.get(row, "id")).collect::<Result<Vec<_>, _>>()?;
        let about = self.about(ids).await?.into_iter();
        let fit = about.filter(|(_, about)| {
            about.thread.as_deref() == Some(thread) && (work.is_none() || work == about.work.as_deref())
        });
        Ok(fit.map(|(id, _)| id).collect())
    }
}
