//! The lanes of threads: one run at a time on each, the others wait in order.
//!
//! Start at [`Hub::create`].

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use superstep_graph::{RunOptions, ThreadId};
use tokio::time::Instant;

use crate::{
    error::{ApiError, ServerError},
    events::{modes::Modes, projection::About},
    rows::{
        run::{Plan, RunRow, RunStatus, Stop, Strategy},
        thread::ThreadRow,
    },
    runs::{
        hub::{Hub, run_key, threads::IDS},
        lane::{Lane, Lanes, Retained},
        live::{LiveRun, RunEnd},
    },
    wire::time,
};

/// The reason of the end of a run whose thread gets another one.
const REPLACED: &str = "another run of the thread replaced it (multitask_strategy)";

/// A run to create.
pub(crate) struct NewRun {
    pub(crate) id: String,
    pub(crate) assistant: String,
    pub(crate) graph: String,
    pub(crate) plan: Plan,
}

/// The effect of a cancellation.
pub(crate) enum Cancelled {
    /// The run is being stopped.
    Stopping(Arc<LiveRun>),
    /// The server stops, and has left the run to the next start, which ends it.
    AtNextStart,
    /// The run has ended.
    Nothing,
}

impl Hub {
    /// Queues a run on a thread, and stores it. It begins when the runs before it have ended, or, by its strategy, have been
    /// stopped.
    ///
    /// # Errors
    /// 400 if the thread belongs to another graph; 409 if it is busy with one, or busy and the strategy is to reject, or if too many
    /// runs wait; 503 if the server stops; those of the rows.
    pub(crate) async fn create(
        self: &Arc<Self>,
        thread: &ThreadRow,
        new: NewRun,
    ) -> Result<Arc<LiveRun>, ApiError> {
        let NewRun { id, assistant, graph, mut plan } = new;
        if thread.graph().is_some_and(|known| known != graph) {
            self.check_graph(thread, &graph).await?;
        }
        // The run has the metadata of its thread under its own.
        let of_thread =
            thread.metadata.iter().filter(|(name, _)| *name != "owner" && !IDS.contains(&name.as_str()));
        for (name, value) in of_thread {
            plan.metadata.entry(name).or_insert_with(|| value.clone());
        }
        let now_us = time::now_us();
        let row = RunRow {
            id,
            thread: thread.id.clone(),
            assistant,
            graph,
            created_us: now_us,
            updated_us: now_us,
            status: RunStatus::Pending,
            failure: None,
            stop: None,
            cancel_reason: None,
            head: None,
            log_bytes: None,
            plan,
        };
        let live = self.live_run(&row, thread.owner.clone())?;
        let strategy = row.plan.strategy;
        let replaced = self.enter(&live, strategy, Duration::from_millis(row.plan.after_ms))?;
        let stored = self.store_new(thread, &row, &replaced).await;
        live.stored.send_replace(Some(stored.is_ok()));
        stored.map(|()| live)
    }

    /// Checks that a thread whose row names another graph has no run and no state of one.
    ///
    /// # Errors
    /// 409 for a run that has not ended, 400 for a state.
    async fn check_graph(&self, thread: &ThreadRow, graph: &str) -> Result<(), ApiError> {
        let is_other = |live: &&Arc<LiveRun>| !live.log.has_ended() && live.about.graph != graph;
        if let Some(other) = self.live_of(&thread.id).iter().find(is_other) {
            let (thread, other) = (&thread.id, &other.about.graph);
            return Err(ApiError::conflict(format!(
                "thread `{thread}` is busy with a run of graph `{other}`"
            )));
        }
        if thread.state_us.is_some() {
            // The row of a thread names the graph that reads it, so that the thread of another one is refused.
            let options = RunOptions::new().thread(ThreadId::from(thread.id.as_str()));
            self.graph(graph)?.thread(options).state().await?;
        }
        Ok(())
    }

    /// Queues the runs that had not ended when the rows were stored, in the order of their creation, with their logs.
    ///
    /// # Errors
    /// [`ServerError::InvalidRun`], and those of the rows.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<(), ServerError> {
        let mut logged = self.runs.list(|row| row.log_bytes.is_some());
        logged.sort_by_key(|row| row.updated_us);
        for RunRow { thread, id: run, log_bytes, .. } in logged {
            self.lanes().retained_bytes += log_bytes.unwrap_or(0);
            self.lanes().retained.push_back(Retained { thread, run, bytes: log_bytes.unwrap_or(0) });
        }
        let mut open = self.runs.list(|row| row.status.is_open());
        open.sort_by(|a, b| (a.created_us, &a.id).cmp(&(b.created_us, &b.id)));
        for row in open {
            let invalid =
                |error: ApiError| ServerError::InvalidRun { run: row.id.clone(), detail: error.detail };
            let owner = self.threads.get(&row.thread).and_then(|thread| thread.owner);
            let live = self.live_run(&row, owner).map_err(invalid)?;
            self.read_log(&live).await?;
            let due_us = row.created_us.saturating_add_unsigned(row.plan.after_ms * 1_000);
            let after = u64::try_from(due_us - time::now_us()).unwrap_or(0);
            live.stored.send_replace(Some(true));
            if let Some(stop) = row.stop {
                live.stop(stop, row.cancel_reason.as_deref().unwrap_or_default());
            }
            self.enter(&live, Strategy::Enqueue, Duration::from_micros(after)).map_err(invalid)?;
        }
        Ok(())
    }

    /// Returns an ended run with its stored log; `None` if it has none.
    ///
    /// # Errors
    /// The errors of the rows.
    pub(crate) async fn logged_run(&self, row: &RunRow) -> Result<Option<Arc<LiveRun>>, ApiError> {
        if row.log_bytes.is_none() {
            return Ok(None);
        }
        let owner = self.thread_row(&row.thread)?.owner;
        let live = self.live_run(row, owner)?;
        self.read_log(&live).await?;
        live.log.end();
        live.end.send_replace(Some(RunEnd::default()));
        Ok(Some(live))
    }

    /// Reads the stored log of a run that may have one.
    async fn read_log(&self, live: &LiveRun) -> Result<(), ServerError> {
        if !live.resumable {
            return Ok(());
        }
        let (_, batches) = self.journals.open(&live.about.run, self.limits.log).await?;
        for entry in batches.into_iter().flat_map(|batch| batch.entries) {
            self.count_from(entry.number);
            live.log.push(entry);
        }
        Ok(())
    }

    fn live_run(&self, row: &RunRow, owner: Option<String>) -> Result<Arc<LiveRun>, ApiError> {
        let modes = Modes::of_names(row.plan.stream_modes.iter().map(String::as_str))?;
        let about = About {
            run: row.id.clone(),
            thread: row.thread.clone(),
            owner,
            assistant: row.assistant.clone(),
            graph: row.graph.clone(),
            metadata: row.plan.metadata.clone(),
        };
        Ok(Arc::new(LiveRun::new(about, modes, row.plan.subgraphs, row.plan.resumable, self.limits.log)))
    }

    /// Queues a run. Returns the runs that its strategy has stopped.
    fn enter(
        self: &Arc<Self>,
        live: &Arc<LiveRun>,
        strategy: Strategy,
        after: Duration,
    ) -> Result<Vec<Arc<LiveRun>>, ApiError> {
        if self.stopping.is_cancelled() {
            return Err(ApiError::stopping());
        }
        let (thread, run) = (live.about.thread.clone(), live.about.run.clone());
        let mut lanes = self.lanes();
        if lanes.closed.contains(&thread) {
            return Err(ApiError::not_found("thread", &thread));
        }
        let lane = lanes.lanes.get(&thread);
        let is_busy = lane.is_some_and(Lane::is_busy);
        let runs = lane.iter().flat_map(|lane| lane.active.iter().chain(&lane.waiting));
        let mut open: Vec<_> = runs.filter(|run| run.end.borrow().is_none()).cloned().collect();
        if strategy == Strategy::Reject && is_busy {
            return Err(ApiError::conflict(format!("thread `{thread}` is busy with another run")));
        }
        if open.len() > self.limits.queue {
            return Err(ApiError::conflict(format!(
                "{} runs of thread `{thread}` wait already",
                self.limits.queue
            )));
        }
        let waits = self.threads.get(&thread).is_some_and(|row| !row.interrupts.is_empty());
        if let Some(log) = self.thread_logs.get(&live.about.key()).filter(|_| open.is_empty() && !waits) {
            log.idle_point();
        }
        self.thread_logs.begun(&live.about.key());
        match strategy.stop() {
            Some(stop) => open.iter().for_each(|open| open.stop(stop, REPLACED)),
            None => open.clear(),
        }
        lanes.live.insert(run, live.clone());
        if after.is_zero() {
            self.queue(&mut lanes, live);
        } else {
            let (hub, live) = (self.clone(), live.clone());
            self.tasks.spawn(async move {
                tokio::select! {
                    () = tokio::time::sleep(after) => {}
                    () = live.cancel.cancelled() => {}
                    () = hub.stopping.cancelled() => return leave(&live),
                }
                hub.queue(&mut hub.lanes(), &live);
            });
        }
        drop(lanes);
        // Without a follower of any thread there is no receiver.
        let _ = self.begun.send(live.clone());
        Ok(open)
    }

    fn queue(self: &Arc<Self>, lanes: &mut Lanes, live: &Arc<LiveRun>) {
        let thread = live.about.thread.clone();
        if let Some(lane) = lanes.lanes.get_mut(&thread) {
            lane.waiting.push_back(live.clone());
            return;
        }
        lanes.lanes.insert(thread.clone(), Lane { active: Some(live.clone()), waiting: VecDeque::new() });
        let (hub, mut next) = (self.clone(), live.clone());
        self.tasks.spawn(async move {
            loop {
                hub.run_one(&next).await;
                let mut lanes = hub.lanes();
                let Some(lane) = lanes.lanes.get_mut(&thread) else { return };
                lane.active = if hub.stopping.is_cancelled() { None } else { lane.waiting.pop_front() };
                match &lane.active {
                    Some(live) => next = live.clone(),
                    None => {
                        let left = lanes.lanes.remove(&thread).unwrap_or_default();
                        left.waiting.iter().for_each(|live| leave(live));
                        return;
                    }
                }
            }
        });
    }

    /// Stores a new run, and before it the stops of those that it replaces.
    async fn store_new(
        &self,
        thread: &ThreadRow,
        row: &RunRow,
        replaced: &[Arc<LiveRun>],
    ) -> Result<(), ApiError> {
        for run in replaced {
            if let Some(stop) = row.plan.strategy.stop() {
                self.store_stop(&run.about.thread, &run.about.run, stop, REPLACED).await?;
            }
        }
        let (graph, assistant) = (row.graph.as_str(), row.assistant.as_str());
        let metadata = &thread.metadata;
        if metadata.get("graph_id").is_none_or(|known| known != graph)
            || metadata.get("assistant_id").is_none_or(|known| known != assistant)
        {
            let change = |thread: &mut ThreadRow| {
                thread.metadata.insert("graph_id".to_owned(), graph.into());
                thread.metadata.insert("assistant_id".to_owned(), assistant.into());
            };
            // Before the run is stored, whose thread has a graph then, whenever the server is killed.
            self.threads.change(&thread.id, change).await?;
        }
        self.runs.put(&run_key(&row.thread, &row.id), row.clone()).await
    }

    async fn run_one(self: &Arc<Self>, live: &Arc<LiveRun>) {
        let mut stored = live.stored.subscribe();
        let is_stored = stored.wait_for(Option::is_some).await.is_ok_and(|stored| *stored == Some(true));
        let begin = Instant::now();
        #[cfg(feature = "webhooks")]
        let row = self.row_with_webhook(live);
        let end = if is_stored { self.execute(live).await } else { RunEnd::default() };
        if let Some(status) = end.status(live).filter(|_| is_stored) {
            self.metrics.ended(&live.about.graph, status.as_str(), begin.elapsed());
        }
        #[cfg(feature = "webhooks")]
        self.send_end(live, row, &end);
        // Rows are final now. First the log, so that who waits for the end finds it whole.
        live.log.end();
        if let Some(log) = self.thread_logs.get(&live.about.key()) {
            log.end(&live.about, &live.log, end.of_thread());
            self.thread_logs.ended(&live.about.key());
        }
        live.end.send_replace(Some(end));
        for dropped in self.retain(live) {
            if let Err(error) = self.forget_log(&dropped).await {
                tracing::warn!(run = dropped.run, error = error.detail, "the log of a run cannot be deleted");
            }
        }
    }

    /// Retains the log of an ended run that is resumable. Returns those that are to be deleted for it.
    fn retain(&self, live: &LiveRun) -> Vec<Retained> {
        let (About { run, thread, .. }, bytes) = (&live.about, live.log.bytes());
        let (mut lanes, mut dropped) = (self.lanes(), Vec::new());
        if !live.resumable {
            lanes.live.remove(run);
            return dropped;
        }
        lanes.retained.push_back(Retained { thread: thread.clone(), run: run.clone(), bytes });
        lanes.retained_bytes += bytes;
        while lanes.retained_bytes > self.limits.retained {
            let Some(oldest) = lanes.retained.pop_front() else { break };
            lanes.retained_bytes -= oldest.bytes;
            lanes.live.remove(&oldest.run);
            dropped.push(oldest);
        }
        dropped
    }

    async fn forget_log(&self, Retained { thread, run, .. }: &Retained) -> Result<(), ApiError> {
        self.journals.delete(run).await?;
        self.runs.change(&run_key(thread, run), |row| row.log_bytes = None).await.map(drop)
    }

    /// Returns a run that is queued or under way, or whose log is retained.
    pub(crate) fn live(&self, run: &str) -> Option<Arc<LiveRun>> {
        self.lanes().live.get(run).cloned()
    }

    /// Returns the runs of a thread that are queued or under way, or whose logs are retained, by age.
    pub(crate) fn live_of(&self, thread: &str) -> Vec<Arc<LiveRun>> {
        self.lanes().live.values().filter(|live| live.about.thread == thread).cloned().collect()
    }

    /// Returns how many runs wait for their turn, and how many are under way.
    pub(crate) fn queued_and_running(&self) -> (usize, usize) {
        let lanes = self.lanes();
        let queued = lanes.lanes.values().map(|lane| lane.waiting.len()).sum();
        (queued, lanes.lanes.values().filter(|lane| lane.active.is_some()).count())
    }

    /// Returns the runs of a thread with logs, in memory or stored, by age.
    ///
    /// # Errors
    /// The errors of the rows.
    pub(crate) async fn logs_of(&self, thread: &str) -> Result<Vec<Arc<LiveRun>>, ApiError> {
        let mut logs = self.live_of(thread);
        for row in self.runs_of(thread) {
            if !logs.iter().any(|live| live.about.run == row.id) {
                logs.extend(self.logged_run(&row).await?);
            }
        }
        logs.sort_by(|a, b| a.about.run.cmp(&b.about.run));
        Ok(logs)
    }

    /// Returns whether a run of the thread is under way or waits.
    pub(crate) fn is_busy(&self, thread: &str) -> bool {
        self.lanes().lanes.get(thread).is_some_and(Lane::is_busy)
    }

    /// Returns whether a run of a thread may write to its log.
    pub(crate) fn has_lane(&self, thread: &str) -> bool {
        self.lanes().lanes.contains_key(thread)
    }

    /// Returns the threads of which a run is under way or waits.
    pub(crate) fn busy(&self) -> BTreeSet<String> {
        let lanes = self.lanes();
        let busy = lanes.lanes.iter().filter(|(_, lane)| lane.is_busy());
        busy.map(|(thread, _)| thread.clone()).collect()
    }

    /// Stores that a run is to be stopped, so that no restart continues it. Returns whether it has not ended.
    async fn store_stop(&self, thread: &str, run: &str, stop: Stop, reason: &str) -> Result<bool, ApiError> {
        let change = |row: &mut RunRow| {
            if row.status.is_open() && row.stop.is_none_or(|before| before < stop) {
                (row.stop, row.cancel_reason) = (Some(stop), Some(reason.to_owned()));
            }
        };
        let row = self.runs.change(&run_key(thread, run), change).await?;
        Ok(row.is_some_and(|row| row.status.is_open()))
    }

    /// Stops a run, also over a restart.
    ///
    /// # Errors
    /// The errors of the rows; the run continues then.
    pub(crate) async fn cancel_run(
        self: &Arc<Self>,
        thread: &str,
        run: &str,
        stop: Stop,
        reason: &str,
    ) -> Result<Cancelled, ApiError> {
        let is_open = self.store_stop(thread, run, stop, reason).await?;
        Ok(match self.stop_run(run, stop, reason) {
            Some(live) => Cancelled::Stopping(live),
            None if is_open => Cancelled::AtNextStart,
            None => Cancelled::Nothing,
        })
    }

    /// Stops a run of this process. Returns it if there was something to stop.
    pub(crate) fn stop_run(self: &Arc<Self>, run: &str, stop: Stop, reason: &str) -> Option<Arc<LiveRun>> {
        let live = self.live(run).filter(|live| !live.log.has_ended())?;
        live.stop(stop, reason);
        let was_waiting = {
            let mut lanes = self.lanes();
            let lane = lanes.lanes.get_mut(&live.about.thread);
            let before = lane.as_ref().map_or(0, |lane| lane.waiting.len());
            lane.is_some_and(|lane| {
                lane.waiting.retain(|waiting| waiting.about.run != run);
                lane.waiting.len() < before
            })
        };
        // It need not wait for its turn to be stopped.
        if was_waiting {
            let (hub, live) = (self.clone(), live.clone());
            self.tasks.spawn(async move { hub.run_one(&live).await });
        }
        Some(live)
    }

    /// Stops the runs of a thread, waits for their ends, and takes no more until [`reopen`](Self::reopen).
    pub(crate) async fn close(self: &Arc<Self>, thread: &str) {
        self.lanes().closed.insert(thread.to_owned());
        for live in self.live_of(thread) {
            if self.stop_run(&live.about.run, Stop::Interrupt, "the thread is deleted").is_some() {
                live.ended().await;
            }
        }
    }

    pub(crate) fn reopen(&self, thread: &str) {
        self.lanes().closed.remove(thread);
    }

    /// Forgets the logs of a thread.
    pub(crate) fn drop_logs(&self, thread: &str) {
        let mut lanes = self.lanes();
        let Lanes { live, retained, retained_bytes, .. } = &mut *lanes;
        retained.retain(|log| {
            if log.thread == thread {
                *retained_bytes -= log.bytes;
                live.remove(&log.run);
            }
            log.thread != thread
        });
    }

    pub(super) fn cancel_all(&self) {
        self.lanes().live.values().for_each(|live| live.cancel.cancel());
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves a stored run to the next start of the server.
fn leave(live: &LiveRun) {
    live.log.end();
    live.end.send_replace(Some(RunEnd::left()));
}
