//! The driver: runs the engine's plan on tokio. One path for first runs and resumed ones, streamed and not.
//!
//! Start at [`drive`].

use std::{
    future::{Future as _, poll_fn},
    iter, mem,
    pin::{Pin, pin},
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use futures::task::AtomicWaker;
use superstep_checkpoint::CheckpointMeta;
use superstep_engine::{Input, Output, Run, RunLimits, Task};
use superstep_state::chain;
use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{Instant, Sleep},
};

use super::{
    commit::{checkpoint, commit},
    execution::Execution,
    fail::{fail_task, failed, too_long},
    finish::finish_task,
    first_tasks::Begin,
    interrupts::interrupt,
    observer::{Plain, RunObserver, TaskStart},
    record::{
        flush, record_ended, record_failed_attempt, record_started, store_known_effects, store_records,
    },
    recording::Recording,
    replaying::Replaying,
    rerecording::Rerecording,
    stop::{record_over, record_stop},
    stored_cache::{cache_finished, fetch_cached, is_cached_in_store, look_up},
    superstep::{Refused, Stop, TaskEnd, TaskResult},
    trace,
};
use crate::{
    Cx, NodeError, RunError, RunOptions, State, Status,
    compiled::graph::Inner,
    journal::effects::Request,
    node::{
        cache::Lookup,
        cx::{RunScope, TaskCx},
        timeout::Heartbeat,
    },
    run::task::{RunTask, Tasks},
    stream::emitter::Events,
    timers,
};

/// The time after the start of parallel tasks in which their ends are expected to come together.
const QUICK: Duration = Duration::from_millis(1);

/// Creates a run in this scope, with the observer that the scope needs.
pub(super) fn new_execution<S: State>(
    graph: Arc<Inner<S>>,
    scope: RunScope,
    events: Option<Events<S>>,
) -> Execution<S> {
    let observer: Box<dyn RunObserver<S>> = match (&scope.cursor, &scope.supply) {
        (Some(cursor), _) => Box::new(Replaying::new(cursor.clone())),
        (None, Some(supply)) => Box::new(Rerecording(supply.clone())),
        (None, None) if scope.records() => Box::new(Recording),
        (None, None) => Box::new(Plain),
    };
    Execution::new(graph, scope, events, observer)
}

/// Drives a run from its start to its end, or to its suspension.
pub(super) async fn drive<S: State>(
    exec: &mut Execution<S>,
    begin: Begin,
    limits: RunLimits,
    config: &RunOptions,
) -> Result<Status, Stop> {
    let span = trace::run(&exec.graph.name, &exec.cx.scope);
    let driven = pin!(drive_to_end(exec, begin, limits, config));
    let ended = trace::inside(&span, driven).await;
    trace::ended(&span, &ended);
    ended
}

async fn drive_to_end<S: State>(
    exec: &mut Execution<S>,
    begin: Begin,
    mut limits: RunLimits,
    config: &RunOptions,
) -> Result<Status, Stop> {
    let Begin { control, first, records, answered } = begin;
    if let Some(wait) = exec.observer.begin(exec.view(None), &mut limits) {
        wait.await?;
    }
    let restored = Run::restore(exec.graph.topology.clone(), &control, records, limits);
    let plan = restored.map_err(|error| RunError::Restore { graph: exec.graph.name.clone(), error })?;
    if let Some(first) = first {
        checkpoint(exec, first, None).await?;
    }
    if !answered.is_empty() {
        store_records(exec, answered).await?;
    }
    if let Some(writer) = &mut exec.writer {
        writer.begin(config.durability);
    }
    exec.superstep.step = plan.task(0).step;
    let limit = config.max_concurrency.unwrap_or(usize::MAX).max(1);
    let tasks = Tasks::new(limit, exec.graph.limits.iter().copied());
    exec.emit.stage();
    let mut driver = Driver { exec, config, plan, tasks, timing: StepTiming::default(), is_over: false };
    let ended = driver.supersteps().await;
    driver.end(ended).await
}

/// Executes the supersteps of a run. If it is dropped while nodes execute, it stores the results of effects that are known.
struct Driver<'a, S: State> {
    exec: &'a mut Execution<S>,
    config: &'a RunOptions,
    /// The engine.
    plan: Run,
    tasks: Tasks<S>,
    timing: StepTiming,
    /// `true` once no node executes.
    is_over: bool,
}

impl<S: State> Drop for Driver<'_, S> {
    fn drop(&mut self) {
        if !self.is_over {
            // No node has an effect after this.
            drop(mem::replace(&mut self.tasks, Tasks::new(0, iter::empty())));
            store_known_effects(self.exec, &self.plan);
        }
    }
}

impl<S: State> Driver<'_, S> {
    /// Runs the supersteps to the end of the run, or to its suspension.
    async fn supersteps(&mut self) -> Result<Status, Stop> {
        let mut cancelled = pin!(self.config.cancel.cancelled());
        let mut is_cancelled = false;
        loop {
            if let Some(status) = self.execute_outputs().await? {
                return Ok(status);
            }
            if self.exec.superstep.ended.is_empty() {
                self.exec.emit.release();
                // Nodes that are always ready must not block the runtime's other work.
                tokio::task::coop::consume_budget().await;
                self.exec.emit.give_way().await;
            }
            if !is_cancelled && self.config.cancel.is_cancelled() {
                is_cancelled = true;
                self.plan.handle(Input::Cancel).expect("the run is not over");
                continue;
            }
            let batch = self.exec.emit.events.as_ref().map_or(usize::MAX, Events::batch);
            while self.start_tasks(batch) {
                self.exec.emit.give_way().await;
            }
            let is_parallel = self.exec.writer.is_some() && self.plan.width() > 1;
            self.timing.begin(self.config.step_timeout, is_parallel)?;
            let mut end = None;
            let event = poll_fn(|context| match self.poll_event(&mut end, context) {
                Poll::Pending if !is_cancelled && cancelled.as_mut().poll(context).is_ready() => {
                    Poll::Ready(DriverEvent::Again)
                }
                Poll::Pending => self.timing.poll_timeout(context).map(|()| DriverEvent::TooLong),
                ready => ready,
            });
            let event = event.await;
            let Self { exec, plan, .. } = self;
            exec.emit.stage();
            match event {
                DriverEvent::Again => {}
                DriverEvent::Ended => record_ended(exec, plan).await?,
                DriverEvent::EffectRequests(requests) => record_started(exec, plan, requests).await?,
                DriverEvent::Stored(stored) => exec.emit.checkpoints((*stored)?, &exec.state),
                DriverEvent::Settle(requests) => settle(exec, requests).await?,
                DriverEvent::TooLong => return Err(too_long(exec, plan, &self.tasks, self.config).into()),
            }
            let Some(TaskEnd { task, mut result }) = end else { continue };
            observe_end(exec, task, &mut result)?;
            match result {
                TaskResult::Finished(written, lookup) => finish_task(exec, plan, task, written, lookup)?,
                TaskResult::Failed(error) => fail_task(exec, plan, task, error).await?,
                TaskResult::Interrupted(reasons) => interrupt(exec, plan, task, reasons).await?,
            }
            if self.is_due(task) {
                self.exec.superstep.ended.push(task.id.slot);
                self.record_due(batch).await?;
            }
        }
    }

    /// Executes the engine's outputs until there are no more; returns the status of a run that is over.
    async fn execute_outputs(&mut self) -> Result<Option<Status>, Stop> {
        let mut looked_up = Vec::new();
        while let Some(output) = self.plan.poll() {
            match output {
                Output::Execute(task) => {
                    if self.exec.superstep.failure.is_some() {
                        record_failed_attempt(self.exec, task).await?;
                    }
                    if is_cached_in_store(self.exec, task) {
                        looked_up.push(task);
                    }
                    self.tasks.push(task).map_err(RunError::from)?;
                }
                Output::Commit(superstep) => {
                    commit(self.exec, &mut self.plan, superstep, self.config).await?;
                    self.timing = StepTiming::default();
                }
                Output::Drop(task) => self.tasks.drop_task(task),
                Output::Done => return Ok(Some(Status::Completed)),
                Output::Drained => return Ok(Some(Status::Drained)),
                Output::Cancelled => return Ok(Some(Status::Cancelled)),
                Output::Suspended => return Ok(Some(Status::Interrupted)),
                Output::Fail(failure) => return Err(failed(self.exec, failure, self.config).into()),
            }
        }
        if !looked_up.is_empty() {
            fetch_cached(self.exec, looked_up).await?;
        }
        Ok(None)
    }

    /// Starts waiting tasks. Returns whether others wait only for the consumer of their events.
    fn start_tasks(&mut self, batch: usize) -> bool {
        let Self { exec, plan, tasks, .. } = self;
        tasks.start(batch, &exec.cx, |task| start(exec, task, plan.steps_left()))
    }

    /// Polls the tasks, the thread writer and their requests; `end` receives the end of a task.
    #[inline]
    fn poll_event(&mut self, end: &mut Option<TaskEnd<S>>, context: &mut Context<'_>) -> Poll<DriverEvent> {
        let Self { exec, tasks, .. } = self;
        if let Some(writer) = &mut exec.writer
            && let Poll::Ready(stored) = writer.poll(context, false)
        {
            return Poll::Ready(DriverEvent::Stored(Box::new(stored)));
        }
        if tasks.poll_next(&exec.cx, context, end).is_ready() {
            return Poll::Ready(DriverEvent::Again);
        }
        if exec.writer.is_some() {
            let requests = exec.cx.commit_barrier.take(context);
            if !requests.is_empty() {
                return Poll::Ready(DriverEvent::Settle(requests));
            }
        }
        if !exec.superstep.ended.is_empty() {
            return Poll::Ready(DriverEvent::Ended);
        }
        if let Some(writer) = &mut exec.writer
            && let Poll::Ready(stored) = writer.poll(context, true)
        {
            return Poll::Ready(DriverEvent::Stored(Box::new(stored)));
        }
        let requests = exec.cx.effects.requests(context);
        if requests.is_empty() { Poll::Pending } else { Poll::Ready(DriverEvent::EffectRequests(requests)) }
    }

    /// Returns whether the end of a task is stored before its superstep ends.
    #[inline]
    fn is_due(&self, task: Task) -> bool {
        self.plan.unfinished() > 0 && self.exec.writer.is_some() && self.plan.report(task.id.slot).is_some()
    }

    /// Stores the due records, unless others may join them.
    async fn record_due(&mut self, batch: usize) -> Result<(), Stop> {
        // A record exists so that a crash does not repeat a finished task. Tasks that end in the same poll
        // end at the same time as far as a crash is concerned, and those that end with the last task of their
        // superstep are in its checkpoint. Later, a result is recorded at once, since the siblings may take
        // minutes.
        let due = self.exec.superstep.ended.len();
        if due >= batch {
            record_ended(self.exec, &self.plan).await?;
        } else if due == 1 && self.timing.is_quick() {
            // A runtime polls the driver right after the first of many tasks: hundreds of short ones would be hundreds of
            // transactions. Those that end as fast share the first one.
            yield_now().await;
        }
        Ok(())
    }

    /// Stops the tasks, and stores what the run left unprocessed.
    async fn end(&mut self, ended: Result<Status, Stop>) -> Result<Status, Stop> {
        self.exec.emit.release();
        let (dropped, over) = self.tasks.stop().await;
        self.is_over = true;
        let Self { exec, plan, .. } = self;
        exec.cx.effects.close();
        exec.cx.commit_barrier.close();
        exec.cx.background.finish().await;
        exec.emit.stage();
        let ended = store_end(exec, plan, ended, dropped, over).await;
        exec.emit.release();
        ended
    }
}

/// Stores the results that the end of the run left unprocessed, unless the store failed.
async fn store_end<S: State>(
    exec: &mut Execution<S>,
    plan: &Run,
    ended: Result<Status, Stop>,
    mut dropped: Vec<Task>,
    over: Vec<TaskEnd<S>>,
) -> Result<Status, Stop> {
    match ended {
        Ok(status) => {
            dropped.extend(record_over(exec, over).await?);
            record_stop(exec, plan, &[], "", &dropped).await?;
            flush(exec).await?;
            cache_finished(exec).await?;
            exec.observer.ended(exec.view(None), None);
            Ok(status)
        }
        Err(Stop::Refused(refused)) if !matches!(refused.error, RunError::Checkpoint(_)) => {
            exec.observer.ended(exec.view(None), Some(&refused));
            dropped.extend(record_over(exec, over).await?);
            let Refused { error, blamed } = *refused;
            record_stop(exec, plan, &blamed, &chain(&error), &dropped).await?;
            flush(exec).await?;
            // The failure of the run is reported, and another one stores what is missing.
            let _ = cache_finished(exec).await;
            Err(error.into())
        }
        Err(stop) => Err(stop),
    }
}

/// Stores the pending writes, and notifies the tasks that wait for them.
async fn settle<S: State>(exec: &mut Execution<S>, requests: Vec<oneshot::Sender<()>>) -> Result<(), Stop> {
    flush(exec).await?;
    for request in requests {
        // The requester may have stopped waiting.
        let _ = request.send(());
    }
    Ok(())
}

/// Reports the end of a task to the heartbeat of the run and to its observer.
#[inline]
fn observe_end<S: State>(exec: &Execution<S>, task: Task, result: &mut TaskResult<S>) -> Result<(), Stop> {
    if let Some(heartbeat) = &exec.cx.scope.heartbeat {
        heartbeat.beat();
    }
    exec.observer.after_task(exec.view(None), task, result)
}

/// Starts an attempt of a task, unless its result is known.
fn start<S: State>(exec: &Execution<S>, task: Task, steps_left: u32) -> RunTask<S> {
    let compiled = &exec.graph.nodes[task.node.position()];
    let item: Option<Arc<str>> = exec.superstep.items.get(&task.id.slot).map(|item| Arc::from(item.as_str()));
    let counts = match exec.observer.before_task(exec.view(None), task) {
        TaskStart::Run { counts } => counts,
        TaskStart::Ended(result, lookup) => return RunTask::over(task, result, lookup),
    };
    let cache_lookup = match &compiled.cache {
        Some(cache) if exec.observer.reads_cache() => look_up(exec, task, cache, item.clone()),
        _ => Ok((None, Lookup::None)),
    };
    if let Ok((Some(written), hit)) = cache_lookup {
        return RunTask::over(task, Ok(written), hit);
    }
    // Belongs to an attempt that failed before it waited for the answer.
    drop(exec.cx.interrupts.take(task.id));
    exec.emit.start(task, &exec.state, &exec.superstep.items);
    let lookup = match cache_lookup {
        Ok((_, lookup)) => lookup,
        Err(panicked) => {
            return RunTask::over(task, Err(NodeError::new(panicked).fatal()), Lookup::None);
        }
    };
    let above = exec.cx.scope.heartbeat.clone();
    let heartbeat = match compiled.idle_timeout {
        Some(_) => Some(Arc::new(Heartbeat::begin(above))),
        None => above,
    };
    let (attempt, steps_left) = counts.unwrap_or((task.attempt, steps_left));
    let cx = Cx(Arc::new(TaskCx {
        run: exec.cx.clone(),
        node: task.node,
        task: task.id,
        attempt,
        steps_left,
        item,
        failure: exec.superstep.failures.get(&task.id.slot).cloned(),
        heartbeat,
        origin: exec.superstep.origins.get(&task.id.slot).copied(),
        planned: exec.superstep.planned.get(&task.id.slot).cloned(),
        waker: AtomicWaker::new(),
        observed_store: OnceLock::new(),
    }));
    RunTask::new(task, compiled, exec.state.clone(), cx, lookup)
}

/// The times of a superstep.
#[derive(Default)]
struct StepTiming {
    /// The start of parallel tasks whose ends are stored.
    begun: Option<Instant>,
    /// The timer of the superstep's time limit.
    timeout: Option<Pin<Box<Sleep>>>,
}

impl StepTiming {
    /// Notes the start of the tasks, and starts the timer, unless the superstep has begun.
    #[inline]
    fn begin(&mut self, limit: Option<Duration>, is_parallel: bool) -> Result<(), RunError> {
        if let (Some(limit), None) = (limit, &self.timeout) {
            self.timeout = Some(Box::pin(timers::sleep(limit)?));
        }
        if self.begun.is_none() && is_parallel {
            self.begun = Some(Instant::now());
        }
        Ok(())
    }

    /// Returns whether other tasks may end together with this one.
    fn is_quick(&self) -> bool {
        self.begun.is_some_and(|begun| begun.elapsed() < QUICK)
    }

    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.timeout {
            Some(timeout) => timeout.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

/// An event that wakes the driver.
enum DriverEvent {
    /// Tasks wait until their effects are stored.
    EffectRequests(Vec<Request>),
    /// A task has ended or may start, or the run is cancelled.
    Again,
    /// No other task has ended since those whose records are due.
    Ended,
    /// Queued writes have been stored. Boxed, because the other events are small.
    Stored(Box<Result<Vec<CheckpointMeta>, RunError>>),
    /// Tasks wait for their checkpoint to be stored.
    Settle(Vec<oneshot::Sender<()>>),
    /// The superstep exceeds its time limit.
    TooLong,
}
