//! Workers.
//!
//! Start at [`Worker`].

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use superstep_graph::{
    CompiledGraph, RunOptions, State, ThreadId,
    erased::{JsonGraph, of_inputs},
};

use crate::{GraphName, Jobs, Schedule, graph::Admit};

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
    pub(crate) has_stored_schedules: bool,
    pub(crate) concurrency: usize,
    pub(crate) heartbeat: Duration,
    pub(crate) grace: Duration,
    pub(crate) options: RunOptions,
    pub(crate) admit: Option<Admit>,
    pub(crate) now_ms: Option<i64>,
}

/// A graph of a worker.
pub(crate) struct Hosted {
    pub(crate) graph: Arc<dyn JsonGraph>,
    /// The maximum number of runs in this worker.
    pub(crate) limit: usize,
    /// The maximum number of runs in all workers.
    pub(crate) limit_of_all: Option<usize>,
}

impl Worker {
    /// Creates a worker without graphs.
    pub fn new(jobs: &Jobs) -> Self {
        Self {
            jobs: jobs.clone(),
            graphs: BTreeMap::new(),
            schedules: Vec::new(),
            has_stored_schedules: true,
            concurrency: 8,
            heartbeat: Duration::from_secs(5),
            grace: Duration::from_secs(30),
            options: RunOptions::new(),
            admit: None,
            now_ms: None,
        }
    }

    /// Adds a graph, a [`CompiledGraph`] or one of [any state](superstep_graph::erased), in place of one with the same name. The worker
    /// takes only jobs of its graphs.
    pub fn graph(mut self, graph: impl Into<Arc<dyn JsonGraph>>) -> Self {
        let graph = graph.into();
        let name = graph.name().to_owned();
        self.graphs.insert(name, Hosted { graph, limit: usize::MAX, limit_of_all: None });
        self
    }

    /// Adds a graph whose jobs have inputs of the type `I`, which `convert` turns into updates of the state. A job can then set nothing else
    /// of the state.
    ///
    /// ```
    /// # use superstep_graph::{CompiledGraph, State};
    /// # use superstep_worker::Worker;
    /// # fn example<S: State>(worker: Worker, chat: CompiledGraph<S>, asked: fn(String) -> S::Update) -> Worker {
    /// #[derive(serde::Deserialize)]
    /// #[serde(deny_unknown_fields)]
    /// struct Question { text: String }
    ///
    /// worker.graph_of_inputs(chat, move |question: Question| asked(question.text))
    /// # }
    /// ```
    pub fn graph_of_inputs<S: State, I: DeserializeOwned>(
        self,
        graph: CompiledGraph<S>,
        convert: impl Fn(I) -> S::Update + Send + Sync + 'static,
    ) -> Self {
        self.graph(of_inputs(graph, convert))
    }

    /// Adds a graph of which this worker runs at most this number at the same time.
    pub fn graph_at_most(mut self, graph: impl Into<Arc<dyn JsonGraph>>, limit: usize) -> Self {
        let graph = graph.into();
        let name = graph.name().to_owned();
        self = self.graph(graph);
        if let Some(hosted) = self.graphs.get_mut(&name) {
            hosted.limit = limit;
        }
        self
    }

    /// Sets the maximum number of runs of a graph at the same time over all workers of the database. Set it in each of them: a worker
    /// without it claims jobs regardless, and one with a smaller number waits longer. Without effect on a graph that was not added.
    ///
    /// A run counts until its job is done, or until its worker counts as [dead](Self::heartbeat); so a worker that slept through that
    /// time may exceed the limit until it notices.
    pub fn limit_of_all(mut self, graph: &(impl GraphName + ?Sized), runs: usize) -> Self {
        if let Some(hosted) = self.graphs.get_mut(graph.graph_name()) {
            hosted.limit_of_all = Some(runs.max(1));
        }
        self
    }

    /// Sets a check of each job's thread immediately before its run. The error is the failure of the attempt.
    pub fn admit<F>(self, check: impl Fn(ThreadId) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self { admit: Some(Arc::new(move |thread| Box::pin(check(thread)))), ..self }
    }

    /// Adds a schedule. Each of its times makes one job, however many workers have the schedule.
    ///
    /// The worker also has the [stored schedules](Jobs::store_schedule) of its graphs.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedules.push(schedule);
        self
    }

    /// Sets whether the worker has the stored schedules of its graphs. `true` by default.
    pub fn stored_schedules(self, on: bool) -> Self {
        Self { has_stored_schedules: on, ..self }
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
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("graphs", &self.graphs.keys()).finish_non_exhaustive()
    }
}
