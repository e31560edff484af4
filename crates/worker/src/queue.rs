//! The queue in the database: the tables of Graphile Worker, and requests to them.
//!
//! The requests of a claim, an end, a sign of life and a recovery are those of the crate `graphile_worker`. Its loop is not used: a job of a
//! busy thread must not consume an attempt, and it logs what jobs contain.
//!
//! Start at [`Queue`].

mod claim;
mod listing;
mod migrate;
mod returns;
mod stored_schedules;
mod waiting;

use std::{collections::BTreeMap, fmt, time::Duration};

use graphile_worker::{
    Database, DbError, DbExecutor, DbParams, DbRow, DbValue, Job, Schema, WorkerUtils,
    errors::GraphileWorkerError,
    sql::{
        complete_job::complete_job, fail_job::single::fail_job, task_identifiers::get_tasks_details,
        worker_heartbeat::registration::worker_heartbeat,
    },
    worker_utils::types::CleanupTask,
};
use serde_json::{Value, json};
use superstep_graph::checkpoint::CheckpointError;
use superstep_postgres::{
    PostgresOptions,
    internal::{Notification, Server, queue_error},
};
use tokio::{sync::mpsc::UnboundedReceiver, time::Instant};

pub(crate) use self::{
    claim::Free,
    listing::Row,
    returns::Key,
    stored_schedules::{MAX_INPUT_BYTES, MAX_TEXT_LENGTH, ScheduleRow},
};

/// The channel on which Graphile Worker reports new jobs.
pub(crate) const NEW_JOBS: &str = "jobs:insert";

/// The pause before a request is repeated for the first time.
const PAUSE: Duration = Duration::from_millis(20);

/// The longest of these pauses.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// The entry in the flags of a running job that is to be cancelled.
const CANCELLED: &str = "cancelled";

/// The queue of a database.
#[derive(Clone)]
pub(crate) struct Queue {
    server: Server,
    database: Database,
    schema: Schema,
    /// The channel on which cancellations are requested.
    pub(crate) cancellations: String,
    /// The channel on which changes of stored schedules are reported.
    pub(crate) schedules: String,
    reconnect: Duration,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("place", &self.server.place()).finish_non_exhaustive()
    }
}

/// Repeats a request while the server cannot be reached.
macro_rules! repeated {
    ($queue:expr, $action:expr, $attempt:expr) => {{
        let queue: &Queue = $queue;
        let (until, mut pause) = (Instant::now() + queue.reconnect, PAUSE);
        loop {
            match $attempt.await {
                Ok(done) => break Ok(done),
                Err(error) if is_temporary(&error) && Instant::now() + pause < until => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONG_PAUSE);
                }
                Err(error) => break Err(failed(queue, $action, error)),
            }
        }
    }};
}
use repeated;

/// A new job, as it is stored.
pub(crate) struct Stored {
    pub(crate) graph: String,
    pub(crate) payload: Value,
    pub(crate) id: String,
    pub(crate) key: Option<String>,
    pub(crate) priority: i16,
    pub(crate) attempts: i16,
    pub(crate) when: When,
}

/// The earliest time of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    After(Duration),
    At { unix_ms: i64 },
}

/// A job of a worker as the database has it.
pub(crate) struct Mine {
    pub(crate) id: i64,
    pub(crate) is_cancelled: bool,
}

impl Queue {
    /// Connects, and creates or migrates the tables.
    pub(crate) async fn open(options: PostgresOptions) -> Result<Self, CheckpointError> {
        let (reconnect, wait) = (options.reconnect, options.statement_timeout);
        let server = Server::new(options)?;
        server.check().await?;
        let name = format!("{}_jobs", server.schema());
        let database = Database::from(server.pool().clone());
        let (cancellations, schedules) = (format!("{name}:cancel"), format!("{name}:schedules"));
        let schema = Schema::new(&name);
        let queue = Self { server, database, schema, cancellations, schedules, reconnect };
        queue.migrate(wait).await?;
        Ok(queue)
    }

    fn utils(&self) -> WorkerUtils {
        WorkerUtils::new(self.database.clone(), &self.schema)
    }

    fn table(&self, name: &str) -> String {
        self.schema.private_table(name)
    }

    async fn rows(
        &self,
        action: &str,
        sql: &str,
        values: Vec<DbValue>,
    ) -> Result<Vec<DbRow>, CheckpointError> {
        let values = DbParams::from(values);
        repeated!(self, action, self.database.fetch_all(sql, values.clone()))
    }

    fn get<T: graphile_worker::FromDbCell>(&self, row: &DbRow, column: &str) -> Result<T, CheckpointError> {
        row.try_get(column).map_err(|error| queue_error(&self.server.place(), "read a job", error))
    }

    /// Returns the notifications of new jobs, of cancellations, and of changed schedules.
    pub(crate) fn listen(&self) -> UnboundedReceiver<Option<Notification>> {
        self.server.listen(&[NEW_JOBS, &self.cancellations, &self.schedules])
    }

    /// Stores a job, unless one with the same id is stored, and returns its number.
    pub(crate) async fn add(&self, job: &Stored) -> Result<i64, CheckpointError> {
        let sql = format!("select id from {}", self.add_job(1));
        let rows = self.rows("store a job", &sql, values_of(job)).await?;
        self.get(rows.first().expect("`add_job` returns the job"), "id")
    }

    /// Stores the job of a schedule's time, unless another worker did so, and returns its number.
    pub(crate) async fn fire(
        &self,
        schedule: &str,
        unix_ms: i64,
        job: &Stored,
    ) -> Result<Option<i64>, CheckpointError> {
        let (known, add_job) = (self.table("known_crontabs"), self.add_job(3));
        let time = "to_timestamp($2::bigint / 1000.0)";
        let sql = format!(
            "with fired as (
                update {known} set last_execution = {time}
                where identifier = $1::text and coalesce(last_execution, known_since) < {time} returning identifier
             ) select job.id from fired, lateral {add_job} as job"
        );
        let mut values = vec![DbValue::Text(schedule.to_owned()), DbValue::I64(unix_ms)];
        values.extend(values_of(job));
        let rows = self.rows("store the job of a schedule", &sql, values).await?;
        rows.first().map(|row| self.get(row, "id")).transpose()
    }

    /// Returns the call that stores a job, whose values begin with this number.
    fn add_job(&self, first: usize) -> String {
        let value = |nth: usize| format!("${}", first + nth);
        format!(
            "{}(identifier => {}::text, payload => {}::json, queue_name => {}::text, run_at => case when {at}::bigint is null
                then now() + {}::bigint * interval '1 millisecond' else to_timestamp({at}::bigint / 1000.0) end,
                max_attempts => {}::int, job_key => {}::text, priority => {}::int, job_key_mode => 'unsafe_dedupe')",
            self.schema.function("add_job"),
            value(0),
            value(1),
            value(2),
            value(4),
            value(5),
            value(6),
            value(7),
            at = value(3),
        )
    }

    /// Makes schedules known, which begin now.
    pub(crate) async fn know(&self, schedules: Vec<String>) -> Result<(), CheckpointError> {
        let sql = format!(
            "insert into {} (identifier, known_since) select name, now() from unnest($1::text[]) as name on conflict do nothing",
            self.table("known_crontabs")
        );
        self.rows("store the schedules", &sql, vec![DbValue::TextArray(schedules)]).await.map(drop)
    }

    /// Returns the time of the server.
    pub(crate) async fn now_ms(&self) -> Result<i64, CheckpointError> {
        let sql = "select (extract(epoch from clock_timestamp()) * 1000)::bigint as now";
        let rows = self.rows("read the time", sql, Vec::new()).await?;
        self.get(rows.first().expect("one row"), "now")
    }

    /// Returns the numbers of graphs in jobs.
    pub(crate) async fn numbers(
        &self,
        graphs: Vec<String>,
    ) -> Result<BTreeMap<String, i32>, CheckpointError> {
        let details = repeated!(
            self,
            "read the names of graphs",
            get_tasks_details(&self.database, &self.schema, graphs.clone())
        )?;
        let number = |graph: String| details.get_id(&graph).map(|number| (graph, number));
        Ok(graphs.into_iter().filter_map(number).collect())
    }

    /// Returns the time until the next job of these graphs that is not due yet.
    pub(crate) async fn next_due(&self, graphs: Vec<i32>) -> Result<Option<Duration>, CheckpointError> {
        let sql = format!(
            "select ceil(extract(epoch from min(run_at) - now()) * 1000)::bigint as wait from {}
             where is_available and task_id = any($1::int[]) and run_at > now()",
            self.table("jobs")
        );
        let rows = self.rows("read the time of the next job", &sql, vec![DbValue::I32Array(graphs)]).await?;
        let wait = rows.first().map(|row| self.get::<Option<i64>>(row, "wait")).transpose()?.flatten();
        Ok(wait.map(|wait| Duration::from_millis(wait.unsigned_abs())))
    }

    /// Removes a job that is done.
    pub(crate) async fn complete(&self, job: &Job, worker: &str) -> Result<(), CheckpointError> {
        repeated!(self, "remove a job that is done", complete_job(&self.database, job, worker, &self.schema))
    }

    /// Stores the failure of an attempt.
    pub(crate) async fn fail(&self, job: &Job, worker: &str, error: &str) -> Result<(), CheckpointError> {
        repeated!(
            self,
            "store the failure of a job",
            fail_job(&self.database, job, &self.schema, worker, error, None)
        )
    }

    /// Wakes the workers.
    pub(crate) async fn wake(&self) -> Result<(), CheckpointError> {
        let sql = format!("select pg_notify('{NEW_JOBS}', '{{\"count\":1}}') is null as done");
        self.rows("wake the workers", &sql, Vec::new()).await.map(drop)
    }

    /// Stores a sign of life, puts the jobs of dead workers back, and returns the jobs that this one has.
    pub(crate) async fn beat(&self, worker: &str, interval: Duration) -> Result<Vec<Mine>, CheckpointError> {
        let process = || Some(json!({"pid": std::process::id()}));
        repeated!(
            self,
            "store a sign of life",
            worker_heartbeat(&self.database, &self.schema, worker, process())
        )?;
        self.recover(interval * 3).await?;
        let sql = format!(
            "select id, coalesce(flags, '{{}}') ? '{CANCELLED}' as cancelled from {} where locked_by = $1::text",
            self.table("jobs")
        );
        let rows = self.rows("read the claimed jobs", &sql, vec![DbValue::Text(worker.to_owned())]).await?;
        let mine = |row| Ok(Mine { id: self.get(row, "id")?, is_cancelled: self.get(row, "cancelled")? });
        rows.iter().map(mine).collect()
    }

    /// Removes the rows of keys without jobs.
    pub(crate) async fn clean(&self) -> Result<(), CheckpointError> {
        let utils = self.utils();
        repeated!(self, "remove the keys without jobs", utils.cleanup(&[CleanupTask::GcJobQueues]))
    }

    /// Makes a job due now, with all its attempts. Returns `false` if it runs, or does not exist.
    pub(crate) async fn retry(&self, id: i64) -> Result<bool, CheckpointError> {
        // A request to cancel that its worker did not see before it died is withdrawn.
        let sql = format!(
            "update {} set run_at = now(), attempts = 0, updated_at = now(), flags = nullif(flags - '{CANCELLED}', '{{}}')
             where id = $1::bigint and locked_at is null returning id",
            self.table("jobs")
        );
        let rows = self.rows("retry a job", &sql, vec![DbValue::I64(id)]).await?;
        self.wake().await?;
        Ok(!rows.is_empty())
    }

    /// Removes a job that does not run. Returns `false` if it runs, or does not exist.
    pub(crate) async fn remove(&self, id: i64) -> Result<bool, CheckpointError> {
        let sql = format!(
            "delete from {} where id = $1::bigint and locked_at is null returning id",
            self.table("jobs")
        );
        Ok(!self.rows("remove a job", &sql, vec![DbValue::I64(id)]).await?.is_empty())
    }

    /// Requests the end of a running job. Returns `false` if it does not exist.
    pub(crate) async fn request_cancel(&self, id: i64) -> Result<bool, CheckpointError> {
        let sql = format!(
            "with flagged as (
                update {} set flags = coalesce(flags, '{{}}') || '{{\"{CANCELLED}\": true}}' where id = $1::bigint returning id
             ) select pg_notify($2::text, id::text) is null as done from flagged",
            self.table("jobs")
        );
        let values = vec![DbValue::I64(id), DbValue::Text(self.cancellations.clone())];
        Ok(!self.rows("cancel a job", &sql, values).await?.is_empty())
    }
}

/// Returns whether the cancellation of a claimed job was requested.
pub(crate) fn is_cancelled(job: &Job) -> bool {
    job.flags().as_ref().is_some_and(|flags| flags.get(CANCELLED).is_some())
}

fn values_of(job: &Stored) -> Vec<DbValue> {
    let (at, after) = match job.when {
        When::After(delay) => (None, i64::try_from(delay.as_millis()).unwrap_or(i64::MAX)),
        When::At { unix_ms } => (Some(unix_ms), 0),
    };
    vec![
        DbValue::Text(job.graph.clone()),
        DbValue::Json(job.payload.clone()),
        DbValue::TextOpt(job.key.clone()),
        DbValue::I64Opt(at),
        DbValue::I64(after),
        DbValue::I32(job.attempts.into()),
        DbValue::Text(job.id.clone()),
        DbValue::I32(job.priority.into()),
    ]
}

/// The errors of requests.
trait Request {
    fn database_error(&self) -> Option<&DbError>;
}

impl Request for DbError {
    fn database_error(&self) -> Option<&DbError> {
        Some(self)
    }
}

impl Request for GraphileWorkerError {
    fn database_error(&self) -> Option<&DbError> {
        match self {
            Self::SqlError(error) => Some(error),
            _ => None,
        }
    }
}

/// Creates the error of a request, with the code of the server, of whose error the text is not known.
fn failed(
    queue: &Queue,
    action: &str,
    error: impl Request + Into<Box<dyn std::error::Error + Send + Sync>>,
) -> CheckpointError {
    let code = error.database_error().and_then(DbError::code);
    let code = code.map(|code| format!(" (SQLSTATE {code})")).unwrap_or_default();
    queue_error(&queue.server.place(), &format!("{action}{code}"), error)
}

/// Returns whether the database rejected the values of a request: they are not valid, or break a rule of their table.
pub(crate) fn is_rejected(error: &CheckpointError) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<DbError>());
    let code = cause.and_then(DbError::code);
    code.is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
}

/// Returns whether the connection broke, or the server is starting or stopping.
fn is_temporary(error: &impl Request) -> bool {
    let Some(error) = error.database_error() else { return false };
    error.code().is_none_or(|code| ["57P01", "57P02", "57P03", "40001", "40P01"].contains(&code))
}
