//! The loop of a worker.
//!
//! ```text
//!        ┌── claim while a slot is free ◄──────────────────────────────────────┐
//!        ▼                                                                     │
//! wait for the first of: the end of a run │ a notification │ the time of a job or schedule │ a sign of life is due │ stop
//!                                                                                                    │
//!                          drain the runs, for at most the time of grace; give their jobs back ◄─────┘
//! ```
//!
//! Start at [`Running::run`].

use std::{collections::BTreeMap, future, pin::pin, sync::Arc, time::Duration};

use rand::{TryRng as _, rngs::SysRng};
use superstep_graph::{checkpoint::CheckpointError, error::chain, thread::Drain};
use superstep_postgres::internal::Notification;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    task::JoinSet,
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Schedule, Worker,
    attempt::{Attempt, BUSY_PAUSE, Ended, STOPPED},
    queue::{Free, Key, NEW_JOBS, Queue, is_rejected},
};

/// The pause after a failed request.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest wait, without a job or a schedule.
const LONG: Duration = Duration::from_secs(3600);

/// The number of signs of life between two clean-ups.
const CLEANED: u32 = 120;

/// A worker at work.
pub(crate) struct Running<'a> {
    worker: &'a Worker,
    queue: &'a Queue,
    name: Arc<str>,
    numbers: BTreeMap<String, i32>,
    notifications: UnboundedReceiver<Option<Notification>>,
    beats: Interval,
    nth_beat: u32,
    /// A time of the server, and when it was read.
    clock: (i64, Instant),
    runs: JoinSet<Ended>,
    jobs: BTreeMap<i64, Claimed>,
    /// The keys that are locked because the thread of their first job is busy or waits, and until when.
    postponed: BTreeMap<Key, Instant>,
    /// The stored schedules of its graphs.
    stored: Vec<Schedule>,
    /// `true` if the stored schedules are to be read again.
    is_stale: bool,
    /// The latest time of each schedule for which the database has decided whether it makes a job.
    fired: BTreeMap<String, i64>,
    ended: usize,
    /// The time at which jobs or schedules may be due, without a notification.
    wake: Instant,
}

/// A running job.
struct Claimed {
    graph: String,
    cancel: CancellationToken,
    drain: Drain,
}

impl Worker {
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
        self.run_due_until(future::pending()).await
    }

    /// Runs the jobs that are due, like [`run_due`](Self::run_due), until `stop` is ready. Then runs stop as in
    /// [`run_until`](Self::run_until). Returns the number of runs, including those that stopped.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn run_due_until(self, stop: impl Future<Output = ()>) -> Result<usize, CheckpointError> {
        Running::start(&self).await?.run(stop, true).await
    }
}

impl<'a> Running<'a> {
    /// Registers a worker.
    pub(crate) async fn start(worker: &'a Worker) -> Result<Self, CheckpointError> {
        let queue = &worker.jobs.queue;
        let notifications = queue.listen();
        let numbers = queue.numbers(worker.graphs.keys().cloned().collect()).await?;
        queue.know(worker.schedules.iter().map(|schedule| schedule.identifier.clone()).collect()).await?;
        let now = Instant::now();
        let mut beats = interval_at(now + worker.heartbeat, worker.heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let drawn = SysRng.try_next_u64().map_err(|cause| CheckpointError::Storage {
            what: "this machine has no random number for the name of a worker; try again".to_owned(),
            source: Some(Box::new(cause)),
        })?;
        let mut running = Self {
            worker,
            queue,
            name: format!("superstep-{}-{drawn:016x}", std::process::id()).into(),
            numbers,
            notifications,
            beats,
            nth_beat: 0,
            clock: (0, now),
            runs: JoinSet::new(),
            jobs: BTreeMap::new(),
            postponed: BTreeMap::new(),
            stored: Vec::new(),
            is_stale: true,
            fired: BTreeMap::new(),
            ended: 0,
            wake: now,
        };
        running.beat().await?;
        Ok(running)
    }

    /// Runs jobs until `stop` is ready, or until no job is due. Returns the number of runs.
    pub(crate) async fn run(
        mut self,
        stop: impl Future<Output = ()>,
        until_idle: bool,
    ) -> Result<usize, CheckpointError> {
        let mut stop = pin!(stop);
        let mut failed = None;
        loop {
            if let Err(error) = self.take().await {
                if until_idle {
                    failed = Some(error);
                    break;
                }
                tracing::warn!(error = chain(&error), "no jobs can be taken; trying again");
                self.wake = Instant::now() + PAUSE;
            }
            if until_idle && self.jobs.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = self.wait() => {}
            }
        }
        self.stop().await?;
        failed.map_or(Ok(self.ended), Err)
    }

    /// Waits for the first event.
    async fn wait(&mut self) {
        tokio::select! {
            Some(ended) = self.runs.join_next() => self.ended(ended.ok()),
            Some(notification) = self.notifications.recv() => {
                self.notified(notification);
                // Many jobs at once are one event.
                while let Ok(next) = self.notifications.try_recv() {
                    self.notified(next);
                }
            }
            _ = self.beats.tick() => {
                if let Err(error) = self.beat().await {
                    tracing::warn!(error = chain(&error), "no sign of life can be stored; trying again");
                }
            }
            () = sleep_until(self.wake) => {}
        }
    }

    fn ended(&mut self, ended: Option<Ended>) {
        let Some(Ended { job, locked, is_answered }) = ended else { return };
        let now = Instant::now();
        self.jobs.remove(&job);
        if is_answered {
            // One of them may have waited for the answer.
            self.postponed.values_mut().for_each(|until| *until = now);
        }
        self.postponed.extend(locked.map(|key| (key, now + BUSY_PAUSE)));
        self.ended += 1;
    }

    fn notified(&mut self, notification: Option<Notification>) {
        let Some(Notification { channel, payload }) = notification else {
            // Some may be lost.
            self.is_stale = true;
            return;
        };
        if channel == NEW_JOBS {
            return;
        }
        if channel == self.queue.schedules {
            self.is_stale = true;
            return;
        }
        if let Some(claimed) = payload.parse().ok().and_then(|job: i64| self.jobs.get(&job)) {
            claimed.cancel.cancel();
        }
    }

    /// Stores a sign of life, and compares the jobs that run with those that the database has for this worker.
    async fn beat(&mut self) -> Result<(), CheckpointError> {
        let mine = self.queue.beat(&self.name, self.worker.heartbeat).await?;
        let mut unknown = Vec::new();
        for job in mine {
            match self.jobs.get(&job.id) {
                // Its notification was lost.
                Some(claimed) if job.is_cancelled => claimed.cancel.cancel(),
                Some(_) => {}
                None => unknown.push(job.id),
            }
        }
        if !unknown.is_empty() {
            self.queue.disown(&self.name, unknown).await?;
        }
        self.queue.unlock_unused(&self.name, self.postponed.keys().copied().collect()).await?;
        self.clock = (self.queue.now_ms().await?, Instant::now());
        self.is_stale = true;
        self.nth_beat += 1;
        if self.nth_beat.is_multiple_of(CLEANED) {
            self.queue.clean().await?;
        }
        Ok(())
    }

    fn now_ms(&self) -> i64 {
        let (then, read) = self.clock;
        let passed = i64::try_from(read.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.worker.now_ms.unwrap_or(then.saturating_add(passed))
    }

    /// Takes what is due: times of schedules, and jobs while slots are free.
    async fn take(&mut self) -> Result<(), CheckpointError> {
        let mut wait = self.unlock().await?.min(self.fire().await?);
        let free = loop {
            let free = self.free();
            if free.is_empty() {
                break free;
            }
            match self.queue.claim(&self.name, &free, self.worker.now_ms).await? {
                Some(job) => self.begin(job),
                None => break free,
            }
        };
        if !free.is_empty() {
            let due = self.queue.next_due(free.iter().map(|free| free.number).collect()).await?;
            wait = wait.min(due.unwrap_or(LONG));
        }
        self.wake = Instant::now() + wait;
        Ok(())
    }

    /// Unlocks the keys whose pause is over, and returns the time until the next one.
    async fn unlock(&mut self) -> Result<Duration, CheckpointError> {
        let now = Instant::now();
        let over: Vec<Key> =
            self.postponed.iter().filter(|(_, until)| **until <= now).map(|(key, _)| *key).collect();
        if !over.is_empty() {
            self.queue.unlock(&self.name, over).await?;
            self.postponed.retain(|_, until| *until > now);
        }
        Ok(self.postponed.values().min().map_or(LONG, |until| *until - now))
    }

    /// Stores the jobs of schedules that are due, and returns the time until the next one.
    async fn fire(&mut self) -> Result<Duration, CheckpointError> {
        if self.is_stale && self.worker.has_stored_schedules {
            let graphs = self.worker.graphs.keys().cloned().collect();
            let rows = self.queue.schedules(Some(graphs)).await?;
            let read = rows.into_iter().filter_map(|row| {
                let name = row.name.clone();
                let read = Schedule::of_row(row);
                read.inspect_err(|error| {
                    tracing::warn!(schedule = name, error = chain(error), "a schedule is not valid")
                })
                .ok()
            });
            self.stored = read.collect();
            self.is_stale = false;
        }
        let (now_ms, mut wait) = (self.now_ms(), LONG);
        for schedule in self.worker.schedules.iter().chain(&self.stored) {
            if let Some((unix_ms, job)) = schedule.latest(now_ms)
                && self.fired.get(&schedule.identifier) != Some(&unix_ms)
            {
                match self.queue.fire(&schedule.identifier, unix_ms, &job).await {
                    // Another one would be rejected again, and the other schedules and jobs must not wait for it.
                    Err(error) if is_rejected(&error) => {
                        let schedule = &*schedule.times.name;
                        tracing::warn!(schedule, error = chain(&error), "a time of a schedule makes no job");
                    }
                    fired => drop(fired?),
                }
                self.fired.insert(schedule.identifier.clone(), unix_ms);
            }
            let next = schedule.next(now_ms).map(|next| Duration::from_millis(next.abs_diff(now_ms)));
            wait = wait.min(next.unwrap_or(LONG));
        }
        Ok(wait)
    }

    /// Returns the graphs of which another run may begin.
    fn free(&self) -> Vec<Free> {
        if self.jobs.len() >= self.worker.concurrency {
            return Vec::new();
        }
        let free = self.numbers.iter().filter_map(|(graph, number)| {
            let hosted = self.worker.graphs.get(graph)?;
            let running = self.jobs.values().filter(|claimed| claimed.graph == *graph).count();
            let free = Free { graph: graph.clone(), number: *number, limit: hosted.limit_of_all };
            (running < hosted.limit).then_some(free)
        });
        free.collect()
    }

    fn begin(&mut self, job: graphile_worker::Job) {
        let (id, graph) = (*job.id(), job.task_identifier().clone());
        let Some(hosted) = self.worker.graphs.get(&graph) else { return };
        let (cancel, drain) = (CancellationToken::new(), Drain::new());
        self.jobs.insert(id, Claimed { graph, cancel: cancel.clone(), drain: drain.clone() });
        let attempt = Attempt {
            queue: self.queue.clone(),
            worker: self.name.clone(),
            job,
            graph: hosted.graph.clone(),
            options: self.worker.options.clone(),
            admit: self.worker.admit.clone(),
            is_awaited: hosted.limit_of_all.is_some(),
            drain,
            cancel,
        };
        self.runs.spawn(attempt.run());
    }

    /// Ends the runs after their supersteps, or after the time of grace, and gives their jobs back.
    async fn stop(&mut self) -> Result<(), CheckpointError> {
        self.jobs.values().for_each(|claimed| claimed.drain.request(STOPPED));
        let until = Instant::now() + self.worker.grace;
        while !self.runs.is_empty() && Instant::now() < until {
            self.wake = until;
            self.wait().await;
        }
        self.runs.shutdown().await;
        self.queue.leave(&self.name, STOPPED).await
    }
}
