//! Workers.
//!
//! Start at [`Worker`].

use std::{collections::BTreeMap, future, sync::Arc, time::Duration};

use superstep_graph::{CompiledGraph, RunOptions, State, checkpoint::CheckpointError};

use crate::{Jobs, Schedule, graph::AnyGraph, running::Running};

/// Takes jobs of a database and runs them, one process among any number of them.
///
/// Each run has the lease of its thread, as every other run. The graphs need a checkpointer in a database that all workers share.
///
/// ```no_run
/// # use superstep_graph::{CompiledGraph, RunOptions, State};
/// use std::sync::Arc;
/// use superstep_postgres::{PostgresCheckpointer, PostgresOptions};
/// use superstep_worker::{Jobs, Worker};
///
/// # async fn example<S: State>(refunds: CompiledGraph<S>) -> Result<(), Box<dyn std::error::Error>> {
/// let options = PostgresOptions::new(std::env::var("SUPERSTEP_DB")?);
/// let refunds = refunds.with_checkpointer(PostgresCheckpointer::open(options.clone())?);
/// let jobs = Jobs::open(options).await?;
/// let ctrl_c = async { drop(tokio::signal::ctrl_c().await) };
/// Worker::new(&jobs).graph(refunds).concurrency(8).run_until(ctrl_c).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a worker does nothing until `run_until` or `run_due`"]
pub struct Worker {
    pub(crate) jobs: Jobs,
    pub(crate) graphs: BTreeMap<String, Hosted>,
    pub(crate) schedules: Vec<Schedule>,
    pub(crate) concurrency: usize,
    pub(crate) heartbeat: Duration,
    pub(crate) grace: Duration,
    pub(crate) options: RunOptions,
    pub(crate) now_ms: Option<i64>,
}

/// A graph of a worker.
pub(crate) struct Hosted {
    pub(crate) graph: Arc<dyn AnyGraph>,
    pub(crate) limit: usize,
}

impl Worker {
    /// Creates a worker without graphs.
    pub fn new(jobs: &Jobs) -> Self {
        Self {
            jobs: jobs.clone(),
            graphs: BTreeMap::new(),
            schedules: Vec::new(),
            concurrency: 8,
            heartbeat: Duration::from_secs(5),
            grace: Duration::from_secs(30),
            options: RunOptions::new(),
            now_ms: None,
        }
    }

    /// Adds a graph, in place of one with the same name. The worker takes only jobs of its graphs.
    pub fn graph<S: State>(self, graph: CompiledGraph<S>) -> Self {
        self.graph_at_most(graph, usize::MAX)
    }

    /// Adds a graph of which this worker runs at most this number at the same time.
    pub fn graph_at_most<S: State>(mut self, graph: CompiledGraph<S>, limit: usize) -> Self {
        self.graphs.insert(graph.name().to_owned(), Hosted { graph: Arc::new(graph), limit });
        self
    }

    /// Adds a schedule. Each of its times makes one job, however many workers have the schedule.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedules.push(schedule);
        self
    }

    /// Sets the maximum number of runs at the same time, for all graphs. 8 by default.
    pub fn concurrency(self, runs: usize) -> Self {
        Self { concurrency: runs.max(1), ..self }
    }

    /// Sets the options of all runs. The worker sets the thread, the cancellation and the drain.
    pub fn options(self, options: RunOptions) -> Self {
        Self { options, ..self }
    }

    /// Sets the pause between two signs of life. 5 s by default. The jobs of a worker without a sign of life for three pauses are given to
    /// others; their threads are free when their [leases](superstep_postgres::PostgresOptions::lease) end.
    pub fn heartbeat(self, pause: Duration) -> Self {
        Self { heartbeat: pause.max(Duration::from_millis(10)), ..self }
    }

    /// Sets the time that runs have to finish their superstep when the worker stops. 30 s by default. A superstep that takes longer is
    /// dropped, and runs again elsewhere.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Sets the time at which jobs and schedules are due, in place of the server's, for tests: UTC milliseconds.
    pub fn at_ms(self, unix_ms: i64) -> Self {
        Self { now_ms: Some(unix_ms), ..self }
    }

    /// Runs jobs until `stop` is ready. Then runs stop after their current superstep, and their jobs are given to others.
    ///
    /// # Errors
    /// The error of the database at the start. Later, the worker waits until the database is back.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), CheckpointError> {
        Running::start(&self).await?.run(stop, false).await.map(drop)
    }

    /// Runs the jobs that are due, also those that they make, until there are none, and returns their number.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn run_due(self) -> Result<usize, CheckpointError> {
        Running::start(&self).await?.run(future::pending(), true).await
    }
}
