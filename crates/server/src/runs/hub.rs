//! The state that all requests of a server share.
//!
//! Start at [`Hub`].

#[cfg(feature = "webhooks")]
mod ends;
mod execute;
pub(crate) mod lanes;
mod thread_log;
mod threads;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::future::BoxFuture;
use serde_json::{Map, Value};
use superstep_graph::{
    Checkpointer, RunOptions, Store, ThreadId,
    erased::{JsonGraph, JsonThread},
    thread::Drain,
};
use tokio::sync::broadcast;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    access::User,
    error::{ApiError, ServerError},
    events::event::RunEvent,
    limits::Limits,
    metrics::Metrics,
    rows::thread::ThreadKey,
    rows::{
        assistant::{AssistantRow, AssistantVersion},
        run::RunRow,
        table::Table,
        thread::ThreadRow,
    },
    runs::{journal::Journals, lane::Lanes, live::LiveRun, log::Entry, origins::Origins},
    thread::logs::ThreadLogs,
    thread_actions::ThreadActions,
    wire::{ids, time},
};

/// The number of new runs that a follower of a thread may be behind.
const BEGUN: usize = 1_024;

/// The graphs, rows and runs of a server.
pub(crate) struct Hub {
    pub(crate) graphs: BTreeMap<String, Arc<dyn JsonGraph>>,
    pub(crate) checkpointer: Arc<dyn Checkpointer>,
    /// The items that clients read and write; `None` refuses them.
    pub(crate) items: Option<Arc<dyn Store>>,
    pub(crate) threads: Table<ThreadRow>,
    /// By thread and run, joined with `/`.
    pub(crate) runs: Table<RunRow>,
    pub(crate) assistants: Table<AssistantRow>,
    pub(crate) journals: Journals,
    pub(crate) limits: Limits,
    /// The options of runs before those of their requests, and the change after them.
    pub(crate) defaults: RunOptions,
    pub(crate) options: Option<Arc<Options>>,
    pub(crate) admit: Option<Arc<Admit>>,
    /// `true` if requests that write are refused.
    pub(crate) read_only: bool,
    /// The channels that clients see, by graph; without an entry all of them.
    pub(crate) shown: BTreeMap<String, BTreeSet<String>>,
    /// The actions on threads that concern more than their checkpoints, by graph.
    pub(crate) actions: BTreeMap<String, Arc<dyn ThreadActions>>,
    pub(crate) metrics: Metrics,
    /// `None` refuses them.
    #[cfg(feature = "crons")]
    pub(crate) crons: Option<crate::rows::cron::Crons>,
    #[cfg(feature = "webhooks")]
    pub(crate) webhooks: crate::runs::webhook::Webhooks,
    pub(super) lanes: Mutex<Lanes>,
    /// The events of threads for clients of the thread protocol.
    pub(crate) thread_logs: ThreadLogs,
    pub(crate) origins: Origins,
    /// The runs as they are queued.
    pub(crate) begun: broadcast::Sender<Arc<LiveRun>>,
    /// Ends all runs after their supersteps.
    pub(super) drain: Drain,
    /// Cancelled when the server stops.
    pub(crate) stopping: CancellationToken,
    pub(super) tasks: TaskTracker,
    events: AtomicU64,
    /// The start of the server: UTC microseconds.
    started_us: i64,
}

/// The change of the options of each run.
pub(crate) type Options = dyn Fn(RunOptions) -> RunOptions + Send + Sync;

/// The check of a thread before each of its runs, with the answers of the run by the ids of their interrupts.
pub(crate) type Admit =
    dyn Fn(ThreadId, Vec<(String, Value)>) -> BoxFuture<'static, Result<(), String>> + Send + Sync;

/// The key of a run's row.
pub(crate) fn run_key(thread: &str, run: &str) -> String {
    format!("{thread}/{run}")
}

impl Hub {
    /// Reads the rows; runs that had not ended are queued by [`recover`](Self::recover).
    ///
    /// # Errors
    /// The errors of the rows.
    pub(crate) async fn open(
        graphs: BTreeMap<String, Arc<dyn JsonGraph>>,
        checkpointer: Arc<dyn Checkpointer>,
        items: Option<Arc<dyn Store>>,
        rows: Arc<dyn Store>,
        limits: Limits,
        #[cfg(feature = "webhooks")] webhooks: crate::runs::webhook::Webhooks,
    ) -> Result<Self, ServerError> {
        let with_storage = |(name, graph): (String, Arc<dyn JsonGraph>)| {
            (name, graph.with_checkpointer(checkpointer.clone()))
        };
        Ok(Self {
            graphs: graphs.into_iter().map(with_storage).collect(),
            items,
            threads: Table::open(rows.clone(), "threads").await?,
            runs: Table::open(rows.clone(), "runs").await?,
            assistants: Table::open(rows.clone(), "assistants").await?,
            journals: Journals::new(rows),
            checkpointer,
            thread_logs: ThreadLogs::new(limits.log, limits.retained),
            origins: Origins::default(),
            limits,
            defaults: RunOptions::new(),
            options: None,
            admit: None,
            read_only: false,
            shown: BTreeMap::new(),
            actions: BTreeMap::new(),
            metrics: Metrics::new(),
            #[cfg(feature = "crons")]
            crons: None,
            #[cfg(feature = "webhooks")]
            webhooks,
            lanes: Mutex::default(),
            begun: broadcast::Sender::new(BEGUN),
            drain: Drain::new(),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
            // Greater than the numbers of an earlier process, which had less than one event in a microsecond.
            events: AtomicU64::new(u64::try_from(time::now_us()).unwrap_or(1)),
            started_us: time::now_us(),
        })
    }

    /// Adds an event to the log of a run.
    pub(super) fn log(&self, run: &LiveRun, event: RunEvent) {
        let entry = self.entry(self.shown_event(&run.about.graph, event));
        self.push(run, entry);
    }

    /// Adds a numbered event to the log of a run, and to that of its thread.
    pub(super) fn push(&self, run: &LiveRun, entry: Entry) {
        run.log.push(entry);
        if let Some(log) = self.thread_logs.get(&run.about.key()) {
            log.follow(&run.about, &run.log);
        }
    }

    /// Returns the part of an event that clients see.
    pub(super) fn shown_event(&self, graph: &str, mut event: RunEvent) -> RunEvent {
        if let Some(shown) = self.shown.get(graph) {
            event.hide(shown);
        }
        event
    }

    /// Numbers an event.
    pub(super) fn entry(&self, event: RunEvent) -> Entry {
        Entry { number: self.next_number(), at_ms: time::now_us() / 1_000, event }
    }

    /// Returns a number that is greater than all before.
    pub(crate) fn next_number(&self) -> u64 {
        self.events.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes later numbers greater than this one, which an earlier process used.
    pub(super) fn count_from(&self, number: u64) {
        self.events.fetch_max(number + 1, Ordering::Relaxed);
    }

    /// Returns a graph by its name on this server.
    ///
    /// # Errors
    /// 404, with the names that there are.
    pub(crate) fn graph(&self, name: &str) -> Result<&Arc<dyn JsonGraph>, ApiError> {
        self.graphs.get(name).ok_or_else(|| {
            let names: Vec<_> = self.graphs.keys().map(|name| format!("`{name}`")).collect();
            let detail = format!("graph `{name}` not found; this server has {}", names.join(", "));
            ApiError::new(axum::http::StatusCode::NOT_FOUND, detail)
        })
    }

    /// Returns an assistant by its id, or by the name of its graph.
    pub(crate) fn assistant(&self, id: &str) -> Option<AssistantRow> {
        let named = self.graphs.keys().find(|name| *name == id || ids::of_graph(name) == id);
        match named {
            Some(name) => {
                Some(self.assistants.get(&ids::of_graph(name)).unwrap_or_else(|| self.of_graph(name)))
            }
            None => self.assistants.get(id),
        }
    }

    /// Returns the assistant that a graph has from the start.
    pub(crate) fn of_graph(&self, name: &str) -> AssistantRow {
        let version = AssistantVersion {
            graph: name.to_owned(),
            config: Map::new(),
            context: Map::new(),
            metadata: Map::from_iter([("created_by".to_owned(), "system".into())]),
            name: name.to_owned(),
            description: None,
            created_us: self.started_us,
        };
        AssistantRow::new(ids::of_graph(name), version)
    }

    /// Returns the thread of superstep of a row, with the graph that the row names.
    ///
    /// # Errors
    /// 404 if there is no such graph, 409 if the thread has none yet.
    pub(crate) fn thread(
        &self,
        row: &ThreadRow,
        options: RunOptions,
    ) -> Result<Box<dyn JsonThread>, ApiError> {
        let name = row.graph().ok_or_else(|| {
            ApiError::conflict(format!(
                "thread `{}` has no graph yet; run it, or create it with `graph_id` in its metadata",
                row.id
            ))
        })?;
        Ok(self.graph(name)?.thread(options.thread(ThreadId::from(row.id.as_str()))))
    }

    /// Returns the row of a thread.
    ///
    /// # Errors
    /// 404.
    pub(crate) fn thread_row(&self, id: &str) -> Result<ThreadRow, ApiError> {
        self.threads.get(id).ok_or_else(|| ApiError::not_found("thread", id))
    }

    /// Returns the thread of this id that exists for a user, or that the user may create.
    ///
    /// # Errors
    /// 404 for a thread of another user.
    pub(crate) fn thread_key(&self, user: &User, id: &str) -> Result<ThreadKey, ApiError> {
        match self.threads.get(id) {
            Some(row) if user.owns(row.owner.as_ref()) => Ok(row.key()),
            Some(_) => Err(ApiError::not_found("thread", id)),
            None => Ok(ThreadKey { thread: id.to_owned(), owner: user.owner() }),
        }
    }

    /// Returns the row of a thread, unless one of another owner has its id.
    pub(crate) fn row_of(&self, thread: &ThreadKey) -> Option<ThreadRow> {
        self.threads.get(&thread.thread).filter(|row| row.owner == thread.owner)
    }

    /// Returns the row of a run.
    ///
    /// # Errors
    /// 404.
    pub(crate) fn run_row(&self, thread: &str, run: &str) -> Result<RunRow, ApiError> {
        self.runs.get(&run_key(thread, run)).ok_or_else(|| ApiError::not_found("run", run))
    }

    /// Returns the runs of a thread, oldest first.
    pub(crate) fn runs_of(&self, thread: &str) -> Vec<RunRow> {
        self.runs.under(&format!("{thread}/"))
    }

    /// Runs work of a client's stream, which ends when the server stops.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Stops to accept runs, ends those under way after their supersteps, and waits for them, at most as long as the limit says.
    /// Runs that are queued, or were ended by this, continue when the rows are opened again.
    pub(crate) async fn stop(&self) {
        self.stopping.cancel();
        self.drain.request("the server stops");
        self.tasks.close();
        let waited = tokio::time::timeout(self.limits.drain, self.tasks.wait()).await;
        if waited.is_err() {
            // The threads stay resumable.
            self.cancel_all();
            let _ = tokio::time::timeout(self.limits.drain, self.tasks.wait()).await;
        }
    }
}
