//! The driver: runs the engine's plan on tokio. One path for first runs and resumed ones, streamed and not.
//!
//! Start at [`run`].

use std::{
    any::Any,
    collections::BTreeMap,
    future::{Future as _, poll_fn},
    iter, mem,
    pin::{Pin, pin},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicU64},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::{future::BoxFuture, task::AtomicWaker};
use superstep_checkpoint::{CheckpointMeta, TaskRecord, store::Operation};
use superstep_engine::{
    ChannelSet, Control, Input, NodeIndex, NodeName, Output, Records, Run, RunLimits, Task,
};
use superstep_state::chain;
use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{Instant, Sleep},
};

use super::{
    breakpoints::breakpoints,
    nested_call::NestedContext,
    observer::{RunObserver, RunView, TaskStart},
    observers,
    stop::{Refused, Stop},
    trace,
};
use crate::{
    Command, Cx, NodeError, NodeFailure, Outcome, Question, RunError, RunOptions, State, Status, ThreadId,
    compiled::graph::{Backends, Inner},
    journal::{
        effects::Request,
        interrupts::{InterruptQueue, PendingQuestion},
        memories::Memories,
        task_origin::CarriedOrigins,
    },
    node::{
        cache::{Lookup, Missing},
        commit_barrier::CommitBarrier,
        cx::{RunCx, RunScope, TaskCx},
        nested_calls::{Calls, mix},
        output::Written,
        spawned_work::Background,
        timeout::Heartbeat,
    },
    run::{
        task::{RunTask, Tasks},
        task_result::{FinishedTask, TaskEnd, TaskResult},
        thread_writer::{NewCheckpoint, ThreadWriter},
    },
    stream::emitter::{Events, NodeEvents},
    timers,
};

/// The time after the start of parallel tasks in which their ends are expected to come together.
const QUICK: Duration = Duration::from_millis(1);

/// The input of a run.
pub(crate) enum RunInput<S: State> {
    /// An input, which starts at `START`.
    Input(S::Update),
    /// The same, and the input is one that was stored: it has what the tasks before it left behind.
    Stored(S::Update),
    /// The run has no input and continues the pending tasks.
    Nothing,
    /// An external command, in addition to the pending tasks.
    Command(Command<S, NodeName>),
}

/// Runs a graph on a thread: from an input, or from the thread's current state.
///
/// The future is boxed, because it is large and callers move it several times before they poll it.
pub(crate) fn run<S: State>(
    graph: Arc<Inner<S>>,
    backends: Backends,
    input: RunInput<S>,
    config: RunOptions,
    events: Option<Events<S>>,
) -> BoxFuture<'static, Result<Outcome<S>, RunError>> {
    Box::pin(run_to_end(graph, backends, input, Arc::new(config), events))
}

async fn run_to_end<S: State>(
    graph: Arc<Inner<S>>,
    backends: Backends,
    input: RunInput<S>,
    config: Arc<RunOptions>,
    events: Option<Events<S>>,
) -> Result<Outcome<S>, RunError> {
    config.check_metadata()?;
    let limits = limits(&graph, &config)?;
    if let Some(thread) = config.thread.clone().filter(ThreadId::is_child) {
        return Err(RunError::ChildThread { thread });
    }
    let Backends { checkpointer, store, retention } = backends;
    let place = checkpointer.clone().zip(config.thread.clone());
    let scope = RunScope::root(config.clone(), place, store);
    let mut driver = Driver::new(graph, scope, events);
    if let Some(events) = &driver.events {
        events.check(&driver.state)?;
    }
    let begin = match checkpointer {
        None => driver.begin_without_store(input, &config)?,
        Some(checkpointer) => {
            driver.begin_with_store(checkpointer, input, &config).await.map_err(Stop::into_error)?
        }
    };
    let status = driver.drive(begin, limits, &config).await.map_err(Stop::into_error)?;
    if let Some(keep) = &retention {
        driver.retain(keep).await;
    }
    Ok(driver.outcome(status, &config))
}

/// The limits of a run.
pub(super) fn limits<S: State>(graph: &Inner<S>, config: &RunOptions) -> Result<RunLimits, RunError> {
    if config.step_limit == 0 {
        return Err(RunError::ZeroStepLimit);
    }
    let breakpoints = breakpoints(graph, &config.breakpoints)?;
    let drained = config.drain.requested().is_some();
    Ok(RunLimits { supersteps: config.step_limit, breakpoints, drained })
}

/// The start of a run: the data from which the engine is restored.
pub(super) struct Begin {
    pub(super) control: Control,
    /// The first checkpoint of a fork or of an external command, stored after the engine has accepted the
    /// rest.
    pub(super) first: Option<Box<NewCheckpoint>>,
    pub(super) records: Records,
    /// The records of tasks with new answers, stored likewise.
    pub(super) answered: Vec<(u32, TaskRecord)>,
}

pub(super) struct Driver<S: State> {
    pub(super) graph: Arc<Inner<S>>,
    pub(super) cx: Arc<RunCx>,
    _end: EndOfRun,
    pub(super) events: Option<Events<S>>,
    pub(super) writer: Option<ThreadWriter>,
    pub(super) state: S,
    /// The state of the last superstep, if its storage is delayed to the end of the run. It differs from
    /// `state`, which an incomplete superstep may have begun to change.
    pub(super) held: Option<S>,
    /// `true` while `state` is that of the thread's head.
    pub(super) is_head: bool,
    /// The finished tasks of this superstep, by slot.
    pub(super) done: Vec<Option<FinishedTask<S>>>,
    /// The slots of those whose records are due, if their superstep does not end first.
    pub(super) ended: Vec<u32>,
    /// Cache entries of this superstep's tasks, by slot, to insert once their results are accepted.
    pub(super) cache_inserts: Vec<(u32, NodeIndex, Missing, Written<S>)>,
    /// The cache entries of committed supersteps that are not in the store yet.
    pub(super) cache_puts: Vec<(NodeIndex, Operation)>,
    /// The results of this superstep's tasks that were found in the store, by slot.
    pub(super) fetched: BTreeMap<u32, Written<S>>,
    /// The encoding buffer of updates.
    pub(super) scratch: Vec<u8>,
    /// The last failure of a task, until it is known whether the task runs again.
    pub(super) failure: Option<(Task, Box<dyn std::error::Error + Send + Sync>)>,
    /// The failures that the error handlers of this superstep receive, by the slot of their task.
    pub(super) failures: BTreeMap<u32, Arc<NodeFailure>>,
    /// The pending questions of this superstep's tasks, by slot.
    pub(super) waiting: BTreeMap<u32, Vec<PendingQuestion>>,
    /// The command with which a node left the graph.
    pub(super) exit_command: Option<Box<dyn Any + Send + Sync>>,
    /// The questions of this superstep's tasks at the start of the run, by slot.
    pub(super) open_questions: BTreeMap<u32, Vec<Question>>,
    /// The interrupt whose answer was rejected.
    pub(super) rejected: Option<String>,
    /// `true` if no retry can help after the last failure.
    pub(super) fatal: bool,
    /// `true` if the last failure refuses the run.
    pub(super) refusal: bool,
    /// The superstep at the end of the run.
    pub(super) last_step: i64,
    /// Additional data of a nested run.
    pub(super) inside: Option<NestedContext<S>>,
    /// The origins of this superstep's tasks that an external update left pending.
    pub(super) origins: CarriedOrigins,
    /// The names under which tasks of renamed nodes were planned, by slot.
    pub(super) planned: BTreeMap<u32, NodeName>,
    /// The stored records of running tasks without the results of their effects, by slot.
    pub(super) started: BTreeMap<u32, TaskRecord>,
    /// The items of this superstep's workers, by slot, as JSON.
    pub(super) items: BTreeMap<u32, String>,
    /// The channels that this superstep wrote.
    pub(super) written: ChannelSet,
    pub(super) observer: Box<dyn RunObserver<S>>,
}

/// Drops the work that nodes left behind, also if the run is dropped: that work has references to the run's
/// context itself.
struct EndOfRun(Arc<RunCx>);

impl Drop for EndOfRun {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<S: State> Driver<S> {
    pub(super) fn new(graph: Arc<Inner<S>>, scope: RunScope, events: Option<Events<S>>) -> Self {
        let config = scope.config.clone();
        let (observer, recorder) = observers::of(&scope);
        // A run without storage has no checkpoint with a stored time, but its caller has.
        let since_ms = match &scope.parent {
            Some(parent) => parent.since_ms,
            None => config.clock.now_ms(),
        };
        // The seed of a nested run is already derived from its caller's.
        let thread = config.thread.as_ref().filter(|_| scope.path.is_root());
        let seed = thread.map_or(config.seed, |thread| mix(config.seed, thread.as_str().bytes()));
        let cx = RunCx {
            topology: graph.topology.clone(),
            thread: config.thread.clone(),
            clock: config.clock.clone(),
            seed,
            cancel: config.cancel.clone(),
            drain: scope.drain.clone(),
            context: config.context.clone(),
            events: events.clone().map(|events| Box::new(events) as Box<dyn NodeEvents>),
            effects: Arc::default(),
            background: Background::default(),
            interrupts: InterruptQueue::default(),
            commit_barrier: CommitBarrier::default(),
            nonce: OnceLock::new(),
            checkpoint: AtomicU64::new(0),
            since_ms: AtomicI64::new(since_ms),
            scope,
            calls: Calls::default(),
            memories: Memories::default(),
            recorder: Arc::new(recorder),
        };
        let state = (*graph.initial).clone();
        let cx = Arc::new(cx);
        Self {
            graph,
            _end: EndOfRun(cx.clone()),
            cx,
            events,
            writer: None,
            state,
            held: None,
            is_head: false,
            done: Vec::new(),
            ended: Vec::new(),
            cache_inserts: Vec::new(),
            cache_puts: Vec::new(),
            fetched: BTreeMap::new(),
            scratch: Vec::new(),
            failure: None,
            failures: BTreeMap::new(),
            waiting: BTreeMap::new(),
            exit_command: None,
            open_questions: BTreeMap::new(),
            rejected: None,
            fatal: false,
            refusal: false,
            last_step: 0,
            inside: None,
            origins: CarriedOrigins::new(),
            planned: BTreeMap::new(),
            started: BTreeMap::new(),
            items: BTreeMap::new(),
            written: ChannelSet::EMPTY,
            observer,
        }
    }

    /// The parts that the observer reads; `plan` while a superstep is committed.
    pub(super) fn view<'a>(&'a self, plan: Option<&'a Run>) -> RunView<'a, S> {
        RunView {
            graph: &self.graph,
            cx: &self.cx,
            state: &self.state,
            done: &self.done,
            failures: &self.failures,
            written: self.written,
            is_nested: self.inside.is_some(),
            is_stored: self.writer.is_some(),
            // What a caller gave to this graph is not stored.
            can_restore: self.writer.as_ref().is_some_and(ThreadWriter::keeps_values) && !self.is_seeded(),
            plan,
        }
    }

    pub(super) async fn drive(
        &mut self,
        begin: Begin,
        limits: RunLimits,
        config: &RunOptions,
    ) -> Result<Status, Stop> {
        let span = trace::run(&self.graph.name, &self.cx.scope);
        let driven = pin!(self.drive_to_end(begin, limits, config));
        let ended = trace::inside(&span, driven).await;
        trace::ended(&span, &ended);
        ended
    }

    async fn drive_to_end(
        &mut self,
        begin: Begin,
        mut limits: RunLimits,
        config: &RunOptions,
    ) -> Result<Status, Stop> {
        let Begin { control, first, records, answered } = begin;
        if let Some(wait) = self.observer.begin(self.view(None), &mut limits) {
            wait.await?;
        }
        let restored = Run::restore(self.graph.topology.clone(), &control, records, limits);
        let run = restored.map_err(|error| RunError::Restore { graph: self.graph.name.clone(), error })?;
        if let Some(first) = first {
            self.checkpoint(first, None).await?;
        }
        if !answered.is_empty() {
            self.store_records(answered).await?;
        }
        if let Some(writer) = &mut self.writer {
            writer.begin(config.durability);
        }
        let limit = config.max_concurrency.unwrap_or(usize::MAX).max(1);
        let tasks = Tasks::new(limit, self.graph.limits.iter().copied());
        self.stage();
        let mut active = ActiveRun { driver: self, run, tasks, is_over: false };
        let ActiveRun { driver, run, tasks, is_over } = &mut active;
        let ended = driver.supersteps(run, tasks, config).await;
        driver.release();
        let (dropped, over) = tasks.stop().await;
        *is_over = true;
        driver.cx.effects.close();
        driver.cx.commit_barrier.close();
        driver.cx.background.finish().await;
        driver.last_step = run.task(0).step;
        driver.stage();
        let ended = driver.store_end(run, ended, dropped, over).await;
        driver.release();
        ended
    }

    /// Stores the results that the end of the run left unprocessed, unless the store failed.
    async fn store_end(
        &mut self,
        run: &Run,
        ended: Result<Status, Stop>,
        mut dropped: Vec<Task>,
        over: Vec<TaskEnd<S>>,
    ) -> Result<Status, Stop> {
        match ended {
            Ok(status) => {
                dropped.extend(self.record_over(over).await?);
                self.record_stop(run, &[], "", &dropped).await?;
                self.flush().await?;
                self.cache_finished().await?;
                self.observer.ended(self.view(None), None);
                Ok(status)
            }
            Err(Stop::Refused(refused)) if !matches!(refused.error, RunError::Checkpoint(_)) => {
                self.observer.ended(self.view(None), Some(&refused));
                dropped.extend(self.record_over(over).await?);
                let Refused { error, blamed } = *refused;
                self.record_stop(run, &blamed, &chain(&error), &dropped).await?;
                self.flush().await?;
                // The failure of the run is reported, and another one stores what is missing.
                let _ = self.cache_finished().await;
                Err(error.into())
            }
            Err(stop) => Err(stop),
        }
    }

    fn outcome(mut self, status: Status, config: &RunOptions) -> Outcome<S> {
        if let (Some(writer), true) = (&self.writer, self.is_head) {
            writer.remember(&self.graph, &self.state);
        }
        if status != Status::Completed {
            self.fold_early();
        }
        let checkpoint = self.writer.as_ref().and_then(ThreadWriter::at);
        let interrupts = self.waiting.into_values().flatten().map(|asking| asking.interrupt).collect();
        let drained = config.drain.requested().filter(|_| status == Status::Drained).map(str::to_owned);
        Outcome { state: self.state, status, checkpoint, interrupts, drained }
    }

    /// Runs the supersteps to the end of the run, or to its suspension.
    async fn supersteps(
        &mut self,
        run: &mut Run,
        tasks: &mut Tasks<S>,
        config: &RunOptions,
    ) -> Result<Status, Stop> {
        let mut cancelled = pin!(config.cancel.cancelled());
        let mut is_cancelled = false;
        let mut timing = StepTiming::default();
        loop {
            if let Some(status) = self.execute_outputs(run, tasks, &mut timing, config).await? {
                return Ok(status);
            }
            if self.ended.is_empty() {
                self.release();
                // Nodes that are always ready must not block the runtime's other work.
                tokio::task::coop::consume_budget().await;
                self.give_way().await;
            }
            if !is_cancelled && config.cancel.is_cancelled() {
                is_cancelled = true;
                run.handle(Input::Cancel).expect("the run is not over");
                continue;
            }
            let batch = self.events.as_ref().map_or(usize::MAX, Events::batch);
            while tasks.start(batch, &self.cx, |task| self.start(task, run.steps_left())) {
                self.give_way().await;
            }
            timing.begin(config.step_timeout, self.writer.is_some() && run.width() > 1)?;
            let mut end = None;
            let event = poll_fn(|context| match self.poll_event(tasks, &mut end, context) {
                Poll::Pending if !is_cancelled && cancelled.as_mut().poll(context).is_ready() => {
                    Poll::Ready(DriverEvent::Again)
                }
                Poll::Pending => timing.poll_timeout(context).map(|()| DriverEvent::TooLong),
                ready => ready,
            });
            let event = event.await;
            self.stage();
            match event {
                DriverEvent::Again => {}
                DriverEvent::Ended => self.record_ended(run).await?,
                DriverEvent::EffectRequests(requests) => self.record_started(run, requests).await?,
                DriverEvent::Stored(stored) => self.emit_checkpoints((*stored)?),
                DriverEvent::Settle(requests) => self.settle(requests).await?,
                DriverEvent::TooLong => return Err(self.too_long(run, tasks, config).into()),
            }
            let Some(TaskEnd { task, mut result }) = end else { continue };
            self.observe_end(task, &mut result)?;
            match result {
                TaskResult::Finished(written, lookup) => self.finish_task(run, task, written, lookup)?,
                TaskResult::Failed(error) => self.fail_task(run, task, error).await?,
                TaskResult::Interrupted(reasons) => self.interrupt(run, task, reasons).await?,
            }
            if self.is_due(run, task) {
                self.ended.push(task.id.slot);
                self.record_due(run, batch, &timing).await?;
            }
        }
    }

    /// Executes the engine's outputs until there are no more; returns the status of a run that is over.
    async fn execute_outputs(
        &mut self,
        run: &mut Run,
        tasks: &mut Tasks<S>,
        timing: &mut StepTiming,
        config: &RunOptions,
    ) -> Result<Option<Status>, Stop> {
        let mut looked_up = Vec::new();
        while let Some(output) = run.poll() {
            match output {
                Output::Execute(task) => {
                    if self.failure.is_some() {
                        self.record_failed_attempt(task).await?;
                    }
                    if self.is_cached_in_store(task) {
                        looked_up.push(task);
                    }
                    tasks.push(task).map_err(RunError::from)?;
                }
                Output::Commit(plan) => {
                    self.fold(plan)?;
                    self.commit(run, config).await?;
                    *timing = StepTiming::default();
                }
                Output::Drop(task) => tasks.drop_task(task),
                Output::Done => return Ok(Some(Status::Completed)),
                Output::Drained => return Ok(Some(Status::Drained)),
                Output::Cancelled => return Ok(Some(Status::Cancelled)),
                Output::Suspended => return Ok(Some(Status::Interrupted)),
                Output::Fail(failure) => return Err(self.failed(failure, config).into()),
            }
        }
        if !looked_up.is_empty() {
            self.fetch_cached(looked_up).await?;
        }
        Ok(None)
    }

    /// Emits and stores a folded superstep, and begins the next one.
    async fn commit(&mut self, run: &mut Run, config: &RunOptions) -> Result<(), Stop> {
        self.show_state();
        if self.writer.is_some() {
            let new = self.folded(run);
            self.checkpoint(new, Some(run)).await?;
        }
        if !self.cache_puts.is_empty() {
            self.store_cached().await?;
        }
        self.written = ChannelSet::EMPTY;
        self.done.clear();
        self.ended.clear();
        if config.drain.requested().is_some() {
            run.handle(Input::Drain).expect("the run is not over");
        }
        run.handle(Input::Committed).expect("the engine asked for the commit");
        Ok(())
    }

    /// Polls the tasks, the thread writer and their requests; `end` receives the end of a task.
    #[inline]
    fn poll_event(
        &mut self,
        tasks: &mut Tasks<S>,
        end: &mut Option<TaskEnd<S>>,
        context: &mut Context<'_>,
    ) -> Poll<DriverEvent> {
        if let Some(writer) = &mut self.writer
            && let Poll::Ready(stored) = writer.poll(context, false)
        {
            return Poll::Ready(DriverEvent::Stored(Box::new(stored)));
        }
        if tasks.poll_next(&self.cx, context, end).is_ready() {
            return Poll::Ready(DriverEvent::Again);
        }
        if self.writer.is_some() {
            let requests = self.cx.commit_barrier.take(context);
            if !requests.is_empty() {
                return Poll::Ready(DriverEvent::Settle(requests));
            }
        }
        if !self.ended.is_empty() {
            return Poll::Ready(DriverEvent::Ended);
        }
        if let Some(writer) = &mut self.writer
            && let Poll::Ready(stored) = writer.poll(context, true)
        {
            return Poll::Ready(DriverEvent::Stored(Box::new(stored)));
        }
        let requests = self.cx.effects.requests(context);
        if requests.is_empty() { Poll::Pending } else { Poll::Ready(DriverEvent::EffectRequests(requests)) }
    }

    /// Stores the pending writes, and notifies the tasks that wait for them.
    async fn settle(&mut self, requests: Vec<oneshot::Sender<()>>) -> Result<(), Stop> {
        self.flush().await?;
        for request in requests {
            // The requester may have stopped waiting.
            let _ = request.send(());
        }
        Ok(())
    }

    /// Reports the end of a task to the heartbeat of the run and to its observer.
    #[inline]
    fn observe_end(&self, task: Task, result: &mut TaskResult<S>) -> Result<(), Stop> {
        if let Some(heartbeat) = &self.cx.scope.heartbeat {
            heartbeat.beat();
        }
        self.observer.after_task(self.view(None), task, result)
    }

    /// Returns whether the end of a task is stored before its superstep ends.
    #[inline]
    fn is_due(&self, run: &Run, task: Task) -> bool {
        run.unfinished() > 0 && self.writer.is_some() && run.report(task.id.slot).is_some()
    }

    /// Stores the due records, unless others may join them.
    async fn record_due(&mut self, run: &Run, batch: usize, timing: &StepTiming) -> Result<(), Stop> {
        if self.ended.len() >= batch {
            self.record_ended(run).await?;
        } else if self.ended.len() == 1 && timing.is_quick() {
            // A runtime polls the driver right after the first of many tasks. Those that end as fast share its
            // transaction.
            yield_now().await;
        }
        Ok(())
    }

    pub(super) fn start(&self, task: Task, steps_left: u32) -> RunTask<S> {
        let compiled = &self.graph.nodes[task.node.position()];
        let item: Option<Arc<str>> = self.items.get(&task.id.slot).map(|item| Arc::from(item.as_str()));
        let counts = match self.observer.before_task(self.view(None), task) {
            TaskStart::Run { counts } => counts,
            TaskStart::Ended(result, lookup) => return RunTask::over(task, result, lookup),
        };
        let looked = match &compiled.cache {
            Some(cache) if self.observer.reads_cache() => self.look_up(task, cache, item.clone()),
            _ => Ok((None, Lookup::None)),
        };
        if let Ok((Some(written), hit)) = looked {
            return RunTask::over(task, Ok(written), hit);
        }
        // Belongs to an attempt that failed before it waited for the answer.
        drop(self.cx.interrupts.take(task.id));
        self.emit_start(task);
        let lookup = match looked {
            Ok((_, lookup)) => lookup,
            Err(panicked) => {
                return RunTask::over(task, Err(NodeError::new(panicked).fatal()), Lookup::None);
            }
        };
        let above = self.cx.scope.heartbeat.clone();
        let heartbeat = match compiled.idle_timeout {
            Some(_) => Some(Arc::new(Heartbeat::begin(above))),
            None => above,
        };
        let (attempt, steps_left) = counts.unwrap_or((task.attempt, steps_left));
        let cx = Cx(Arc::new(TaskCx {
            run: self.cx.clone(),
            node: task.node,
            task: task.id,
            attempt,
            steps_left,
            item,
            failure: self.failures.get(&task.id.slot).cloned(),
            heartbeat,
            origin: self.origins.get(&task.id.slot).copied(),
            planned: self.planned.get(&task.id.slot).cloned(),
            waker: AtomicWaker::new(),
            observed_store: OnceLock::new(),
        }));
        RunTask::new(task, compiled, self.state.clone(), cx, lookup)
    }
}

/// A run whose nodes execute. If it is dropped then, it stores the results of effects that are known.
struct ActiveRun<'d, S: State> {
    driver: &'d mut Driver<S>,
    run: Run,
    tasks: Tasks<S>,
    /// `true` once no node executes.
    is_over: bool,
}

impl<S: State> Drop for ActiveRun<'_, S> {
    fn drop(&mut self) {
        if !self.is_over {
            // No node has an effect after this.
            drop(mem::replace(&mut self.tasks, Tasks::new(0, iter::empty())));
            self.driver.store_known_effects(&self.run);
        }
    }
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
