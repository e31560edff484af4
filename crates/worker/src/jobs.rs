//! The jobs of a database: sent, listed, cancelled.
//!
//! Start at [`Jobs`].

use std::{fmt, num::ParseIntError, str::FromStr};

use serde::Serialize;
use superstep_graph::{ThreadId, checkpoint::CheckpointError};
use superstep_postgres::PostgresOptions;

use crate::queue::{Queue, Row};

/// The jobs of a database.
///
/// They are stored in a schema next to that of the threads, `superstep_jobs` by default. Clones share the connections, which belong to the
/// current runtime of tokio.
///
/// ```no_run
/// use std::time::Duration;
/// use superstep_worker::Jobs;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let jobs = Jobs::open(std::env::var("SUPERSTEP_DB")?).await?;
/// let input = serde_json::json!({"order": 17});
/// jobs.run("refunds", "refund-17", input).priority(-1).delay(Duration::from_secs(60)).key("customer-3").send().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Jobs {
    pub(crate) queue: Queue,
}

impl Jobs {
    /// Connects, and creates or migrates the tables.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if the URL is not valid, or the server cannot be reached or refuses. No error contains the URL.
    pub async fn open(options: impl Into<PostgresOptions>) -> Result<Self, CheckpointError> {
        Ok(Self { queue: Queue::open(options.into()).await? })
    }

    /// Lists jobs, in the order in which they are due. Jobs that are done are not stored.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn list(&self, which: Listed) -> Result<Vec<JobInfo>, CheckpointError> {
        let (thread, state) = match &which {
            Listed::All => (None, None),
            Listed::Of(thread) => (Some(thread.as_str()), None),
            Listed::In(state) => (None, Some(state.name())),
        };
        Ok(self.queue.list(None, thread, state).await?.into_iter().map(JobInfo::from).collect())
    }

    /// Returns a job; `None` if it is finished or never existed.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn get(&self, id: JobId) -> Result<Option<JobInfo>, CheckpointError> {
        Ok(self.queue.list(Some(id.0), None, None).await?.into_iter().next().map(JobInfo::from))
    }

    /// Makes a dead job, or one that waits for its time, due now, with all its attempts. Returns `false` if it runs, or does not exist.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn retry(&self, id: JobId) -> Result<bool, CheckpointError> {
        self.queue.retry(id.0).await
    }

    /// Removes a queued or dead job, and requests the end of a running one: its worker cancels the run, which leaves its thread ready to be
    /// resumed.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn cancel(&self, id: JobId) -> Result<Cancelled, CheckpointError> {
        if self.queue.remove(id.0).await? {
            return Ok(Cancelled::Removed);
        }
        Ok(if self.queue.request_cancel(id.0).await? { Cancelled::Requested } else { Cancelled::Unknown })
    }
}

/// The number of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct JobId(pub(crate) i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for JobId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

/// A selection of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listed {
    /// All jobs.
    #[default]
    All,
    /// The jobs of a thread.
    Of(ThreadId),
    /// The jobs in a state.
    In(JobState),
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobState {
    /// The job waits for a worker, or for its time.
    Queued,
    /// A worker runs it.
    Running,
    /// All its attempts failed. It remains until it is [retried](Jobs::retry) or [removed](Jobs::cancel).
    Dead,
}

impl JobState {
    fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Dead => "dead",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A stored job, without its input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobInfo {
    /// The number of the job.
    pub id: JobId,
    /// The id of its request; see [`NewJob::id`](crate::NewJob::id).
    pub request: Option<String>,
    /// The graph.
    pub graph: String,
    /// The thread; `None` for a job of another program in the same tables.
    pub thread: Option<String>,
    /// `run`, `resume` or `answer`.
    pub work: Option<String>,
    /// The state of the job.
    pub state: JobState,
    /// The key of the job.
    pub key: Option<String>,
    /// The priority of the job.
    pub priority: i16,
    /// The earliest time of the job: UTC milliseconds.
    pub run_at_ms: i64,
    /// The time at which it was stored: UTC milliseconds.
    pub created_at_ms: i64,
    /// The number of attempts that began.
    pub attempts: i16,
    /// The number of attempts after which it is dead.
    pub max_attempts: i16,
    /// The error of its last attempt, or the reason why it was returned to the queue.
    pub last_error: Option<String>,
    /// The worker that runs it.
    pub worker: Option<String>,
}

impl From<Row> for JobInfo {
    fn from(row: Row) -> Self {
        let state = match row.state.as_str() {
            "running" => JobState::Running,
            "dead" => JobState::Dead,
            _ => JobState::Queued,
        };
        Self {
            id: JobId(row.id),
            request: row.own_id,
            graph: row.graph,
            thread: row.thread,
            work: row.work,
            state,
            key: row.key,
            priority: row.priority,
            run_at_ms: row.run_at_ms,
            created_at_ms: row.created_at_ms,
            attempts: row.attempts,
            max_attempts: row.max_attempts,
            last_error: row.last_error,
            worker: row.worker,
        }
    }
}

/// The result of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// The job was removed before it ran.
    Removed,
    /// The job runs, and its worker cancels it.
    Requested,
    /// There is no such job: it may be done.
    Unknown,
}
