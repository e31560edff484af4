//! The driver: runs the engine's plan on tokio. One path for first runs and resumed ones, streamed and not.
//!
//! Start at [`run`].

mod begin;
mod call;
mod interrupts;
mod outside;
mod record;
mod tell;

pub(crate) use begin::recorded_targets;
pub(crate) use call::{Call, Called, SEEDED, TASK, call};
use call::{Inside, begin_fold, note};
use interrupts::breakpoints;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    future::{Future as _, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    task::Poll,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::Map;
use superstep_engine::{
    Commit as Plan, Control, Failure, Finished, Input, NodeIndex, NodeName, Output, Records, Report, Run,
    RunLimits, Task, TaskId,
};
use tokio::{
    sync::oneshot,
    time::{Sleep, sleep},
};

use crate::{
    AppliedTask, CheckpointMeta, Command, Cx, Namespace, NodeError, NodeFailure, Outcome, Panicked,
    RunConfig, RunError, Source, State, Status, StreamMode, TaskRecord, ThreadId,
    background::Background,
    cache::Lookup,
    call::Calls,
    command::Written,
    compiled::{Inner, Keepers},
    cx::{RunCx, Standing},
    durability::Settling,
    error::chain,
    hold::{Hold, NewCheckpoint},
    interrupt::{Asking, Desk},
    json::{check, encode, snapshot},
    node::{CompiledNode, Targets},
    once::{Ledger, Request},
    reduce,
    state::fold,
    stream::{Events, NodeEvents},
    task::{RunTask, TaskEnd, TaskResult, Tasks},
    timeout::Pulse,
};

/// What a run is given to begin with.
pub(crate) enum Given<S: State> {
    /// It begins at `START`.
    Input(S::Update),
    /// It goes on with what the thread has to run.
    Nothing,
    /// The same, and someone outside adds to it.
    Command(Command<S, NodeName>),
}

/// Runs a graph on a thread: from an input, or from where the thread stands.
pub(crate) async fn run<S: State>(
    graph: Arc<Inner<S>>,
    keepers: Keepers,
    given: Given<S>,
    config: RunConfig,
    events: Option<Events<S>>,
) -> Result<Outcome<S>, RunError> {
    let (limits, config) = (limits(&graph, &config)?, Arc::new(config));
    if let Some(thread) = config.thread.clone().filter(ThreadId::is_child) {
        return Err(RunError::ChildThread { thread });
    }
    let Keepers { checkpointer, store } = keepers;
    let standing = Standing {
        place: checkpointer.clone().zip(config.thread.clone()),
        store,
        drain: config.drain.clone(),
        config: config.clone(),
        namespace: Namespace::default(),
        ids: String::new(),
        keys: None,
    };
    let mut driver = Driver::new(graph, standing, events);
    if let Some(events) = &driver.events {
        events.check(&driver.state)?;
    }
    let begin = match checkpointer {
        None => driver.begin_without_store(given, &config)?,
        Some(checkpointer) => driver.begin_with_store(checkpointer, given, &config).await?,
    };
    let status = driver.drive(begin, limits, &config).await?;
    Ok(driver.outcome(status, &config))
}

/// What bounds a run.
fn limits<S: State>(graph: &Inner<S>, config: &RunConfig) -> Result<RunLimits, RunError> {
    if config.step_limit == 0 {
        return Err(RunError::ZeroStepLimit);
    }
    let breakpoints = breakpoints(graph, &config.breakpoints)?;
    let drained = config.drain.requested().is_some();
    Ok(RunLimits { supersteps: config.step_limit, breakpoints, drained })
}

/// Where a run begins: what the engine is restored from.
struct Begin {
    control: Control,
    /// The checkpoint with which a fork or a command from outside begins, to be stored once the engine has accepted the
    /// rest.
    first: Option<NewCheckpoint>,
    records: Records,
    /// The records of tasks that were just given answers, to be stored likewise.
    answered: Vec<(u32, TaskRecord)>,
}

struct Driver<S: State> {
    graph: Arc<Inner<S>>,
    cx: Arc<RunCx>,
    _end: EndOfRun,
    events: Option<Events<S>>,
    hold: Option<Hold>,
    state: S,
    /// The state of the last superstep, if it is held until the run ends. Another one than `state`, which a superstep that
    /// is not over may have begun to change.
    held: Option<S>,
    /// The finished tasks of this superstep, by slot.
    done: Vec<Option<Done<S>>>,
    /// See [`encode`].
    scratch: Vec<u8>,
    /// The last failure of a task, until it is known whether the task runs again.
    failure: Option<(Task, Box<dyn std::error::Error + Send + Sync>)>,
    /// What the error handlers of this superstep are told, by the slot of the task that they have over.
    failures: BTreeMap<u32, Arc<NodeFailure>>,
    /// What the tasks of this superstep wait for, by slot.
    waiting: BTreeMap<u32, Vec<Asking>>,
    /// The command with which a node left the graph.
    left: Option<Box<dyn Any + Send + Sync>>,
    /// The interrupt whose answer was of the wrong type.
    refused: Option<String>,
    /// Whether the last failure can be mended by no other attempt.
    fatal: bool,
    /// The superstep in which the run ended.
    last_step: i64,
    /// What is different if another graph called this one.
    inside: Option<Inside<S>>,
    /// The items of this superstep's workers, by slot, as JSON.
    items: BTreeMap<u32, String>,
}

/// Takes along what nodes left behind, also if the run is dropped: they hold on to its context themselves.
struct EndOfRun(Arc<RunCx>);

impl Drop for EndOfRun {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A finished task whose superstep is not over.
struct Done<S: State> {
    node: NodeIndex,
    /// `None` once it is folded, which happens early to a task that is alone in its superstep.
    update: Option<S::Update>,
    /// The update as it is stored; empty without a checkpointer.
    json: Vec<u8>,
    /// What it sends to workers, as JSON.
    items: Vec<String>,
    recorded: bool,
}

impl<S: State> Driver<S> {
    fn new(graph: Arc<Inner<S>>, standing: Standing, events: Option<Events<S>>) -> Self {
        let config = standing.config.clone();
        let cx = RunCx {
            topology: graph.topology.clone(),
            thread: config.thread.clone(),
            clock: config.clock.clone(),
            seed: config.seed,
            cancel: config.cancel.clone(),
            drain: standing.drain.clone(),
            context: config.context.clone(),
            events: events.clone().map(|events| Box::new(events) as Box<dyn NodeEvents>),
            ledger: Ledger::default(),
            background: Background::default(),
            desk: Desk::default(),
            settling: Settling::default(),
            checkpoint: AtomicU64::new(0),
            since_ms: AtomicI64::new(config.clock.now_ms()),
            standing,
            calls: Calls::default(),
        };
        let state = graph.initial.clone();
        let cx = Arc::new(cx);
        Self {
            graph,
            _end: EndOfRun(cx.clone()),
            cx,
            events,
            hold: None,
            state,
            held: None,
            done: Vec::new(),
            scratch: Vec::new(),
            failure: None,
            failures: BTreeMap::new(),
            waiting: BTreeMap::new(),
            left: None,
            refused: None,
            fatal: false,
            last_step: 0,
            inside: None,
            items: BTreeMap::new(),
        }
    }

    async fn drive(
        &mut self,
        begin: Begin,
        limits: RunLimits,
        config: &RunConfig,
    ) -> Result<Status, RunError> {
        let Begin { control, first, records, answered } = begin;
        let restored = Run::restore(self.graph.topology.clone(), &control, records, limits);
        let mut run =
            restored.map_err(|error| RunError::Restore { graph: self.graph.name.clone(), error })?;
        if let Some(first) = first {
            self.checkpoint(first).await?;
        }
        for (slot, record) in answered {
            self.store_record(slot, record).await?;
        }
        if let Some(hold) = &mut self.hold {
            hold.begin(config.durability);
        }
        let limit = config.max_concurrency.unwrap_or(usize::MAX).max(1);
        let mut tasks = Tasks::new(limit, self.graph.limits.iter().copied());
        let ended = self.supersteps(&mut run, &mut tasks, config).await;
        let dropped = tasks.stop().await;
        self.cx.ledger.close();
        self.cx.background.finish().await;
        self.last_step = run.task(0).step;
        match ended {
            Ok(status) => {
                self.record_stop(&run, &[], "", &dropped).await?;
                self.flush().await?;
                Ok(status)
            }
            Err(Refused { error: error @ RunError::Checkpoint(_), .. }) => Err(error),
            Err(Refused { error, blamed }) => {
                self.record_stop(&run, &blamed, &chain(&error), &dropped).await?;
                self.flush().await?;
                Err(error)
            }
        }
    }

    fn outcome(self, status: Status, config: &RunConfig) -> Outcome<S> {
        let checkpoint = self.hold.as_ref().and_then(Hold::at);
        let interrupts = self.waiting.into_values().flatten().map(|asking| asking.interrupt).collect();
        let drained = config.drain.requested().filter(|_| status == Status::Drained).map(str::to_owned);
        Outcome { state: self.state, status, checkpoint, interrupts, drained }
    }

    /// Does what the engine asks for until it asks for nothing more.
    async fn supersteps(
        &mut self,
        run: &mut Run,
        tasks: &mut Tasks<S>,
        config: &RunConfig,
    ) -> Result<Status, Refused> {
        let mut told = false;
        let mut cancelled = pin!(config.cancel.cancelled());
        let mut too_long: Option<Pin<Box<Sleep>>> = None;
        loop {
            while let Some(output) = run.poll() {
                match output {
                    Output::Execute(task) => {
                        if self.failure.is_some() {
                            self.record_failed_attempt(task).await?;
                        }
                        tasks.push(task);
                    }
                    Output::Commit(plan) => {
                        self.fold(plan)?;
                        if self.hold.is_some() {
                            self.store_superstep(run.control().expect("a commit is pending")).await?;
                        }
                        self.done.clear();
                        too_long = None;
                        if config.drain.requested().is_some() {
                            run.handle(Input::Drain).expect("the run is not over");
                        }
                        run.handle(Input::Committed).expect("the engine asked for the commit");
                    }
                    Output::Drop(task) => tasks.drop_task(task),
                    Output::Done => return Ok(Status::Completed),
                    Output::Drained => return Ok(Status::Drained),
                    Output::Cancelled => return Ok(Status::Cancelled),
                    Output::Suspended => return Ok(Status::Interrupted),
                    Output::Fail(failure) => return Err(self.failed(failure, config)),
                }
            }
            // Nodes that are always ready must not keep the runtime from its other work.
            tokio::task::coop::consume_budget().await;
            self.give_way().await;
            if !told && config.cancel.is_cancelled() {
                told = true;
                run.handle(Input::Cancel).expect("the run is not over");
                continue;
            }
            let batch = self.events.as_ref().map_or(usize::MAX, Events::batch);
            while tasks.start(batch, &self.cx, |task| self.start(task, run.steps_left())) {
                self.give_way().await;
            }
            if let (Some(limit), None) = (config.step_timeout, &too_long) {
                too_long = Some(Box::pin(sleep(limit)));
            }
            let mut end = None;
            let woken = poll_fn(|context| {
                if let Some(hold) = &mut self.hold {
                    let asked = self.cx.settling.asked(context);
                    if !asked.is_empty() {
                        return Poll::Ready(Woken::Settle(asked));
                    }
                    if let Poll::Ready(stored) = hold.poll(context) {
                        return Poll::Ready(Woken::Stored(stored));
                    }
                }
                if tasks.poll_next(&self.cx, context, &mut end).is_ready() {
                    return Poll::Ready(Woken::Again);
                }
                let requests = self.cx.ledger.requests(context);
                if !requests.is_empty() {
                    return Poll::Ready(Woken::Asked(requests));
                }
                if !told && cancelled.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Woken::Again);
                }
                match &mut too_long {
                    Some(sleep) => sleep.as_mut().poll(context).map(|()| Woken::TooLong),
                    None => Poll::Pending,
                }
            });
            match woken.await {
                Woken::Again => {}
                Woken::Asked(requests) => self.record_started(run, requests).await?,
                Woken::Stored(stored) => self.tell(stored?),
                Woken::Settle(asked) => {
                    self.flush().await?;
                    for asked in asked {
                        // Who does not wait any more need not know.
                        let _ = asked.send(());
                    }
                }
                Woken::TooLong => return Err(self.too_long(run, tasks, config).into()),
            }
            let Some(TaskEnd { task, result }) = end else { continue };
            let slot = task.id.slot;
            match result {
                TaskResult::Finished(written, lookup) => self.finish_task(run, task, written, lookup)?,
                TaskResult::Failed(error) => self.fail_task(run, task, error).await?,
                TaskResult::Interrupted(asked) => self.interrupt(run, task, asked).await?,
            }
            if run.unfinished() > 0 && self.hold.is_some() {
                self.record(run, slot).await?;
            }
        }
    }

    fn start(&self, task: Task, steps_left: u32) -> RunTask<S> {
        let compiled = &self.graph.nodes[task.node.position()];
        let item: Option<Arc<str>> = self.items.get(&task.id.slot).map(|item| Arc::from(item.as_str()));
        let looked = self.look_up(task, compiled, item.clone());
        if let Ok((Some(written), hit)) = looked {
            return RunTask::over(task, Ok(written), hit);
        }
        self.tell_start(task);
        let lookup = match looked {
            Ok((_, lookup)) => lookup,
            Err(panicked) => {
                return RunTask::over(task, Err(NodeError::new(panicked).fatal()), Lookup::None);
            }
        };
        let pulse = compiled.idle_timeout.map(|_| Arc::new(Pulse::begin()));
        let (run, attempt) = (self.cx.clone(), task.attempt);
        let failure = self.failures.get(&task.id.slot).cloned();
        let cx = Cx { run, node: task.node, task: task.id, attempt, steps_left, item, failure, pulse };
        RunTask::new(task, compiled, self.state.clone(), cx, lookup)
    }

    /// Looks for what a task would give. One that was answered, and an error handler, is not to be
    /// found, nor kept: its answer, and what it is told, is in no key.
    fn look_up(
        &self,
        task: Task,
        node: &CompiledNode<S>,
        item: Option<Arc<str>>,
    ) -> Result<(Option<Written<S>>, Lookup), Panicked> {
        match &node.cache {
            Some(cache)
                if self.cx.desk.answers_of(task.id).is_empty() && self.failure_of(task.id.slot).is_none() =>
            {
                cache.find(&self.state, item, self.cx.clock.now_ms())
            }
            _ => Ok((None, Lookup::None)),
        }
    }

    /// Keeps what a task wrote.
    fn finish_task(
        &mut self,
        run: &mut Run,
        task: Task,
        written: Written<S>,
        lookup: Lookup,
    ) -> Result<(), Refused> {
        let (step, slot) = (task.id.step, task.id.slot);
        let blame = |error| Refused { error, blamed: vec![slot] };
        let (cached, missing) = match lookup {
            Lookup::None => (false, None),
            Lookup::Hit => (true, None),
            Lookup::Miss(missing) => (false, Some((*missing, written.clone()))),
        };
        let Written { update, goto } = written;
        let json = self.encode(&update, task.node, step).map_err(blame)?;
        self.tell_update(task, &update, cached);
        let gotos = if goto.is_empty() {
            Targets::default()
        } else {
            let gotos = self.graph.gotos(task.node, goto);
            gotos.map_err(|error| blame(RunError::Route { step, error }))?
        };
        let report = self.finish(task.id, task.node, update, json, gotos, run.width() == 1).map_err(blame)?;
        let finished = run.handle(Input::Finished(Finished { task: task.id, report }));
        finished.map_err(|error| blame(RunError::Route { step, error }))?;
        // Only what was accepted, or it would be refused again and again.
        let cache = self.graph.nodes[task.node.position()].cache.as_ref();
        if let (Some(cache), Some((missing, written))) = (cache, missing) {
            cache.keep(missing, written, self.cx.clock.now_ms());
        }
        Ok(())
    }

    /// Has the engine decide about a failure.
    async fn fail_task(&mut self, run: &mut Run, task: Task, error: NodeError) -> Result<(), RunError> {
        let retryable = !error.is_fatal() && (self.graph.nodes[task.node.position()].retry_on)(&error);
        self.fatal = error.is_fatal();
        let (source, data) = error.into_parts();
        self.tell_failure(task, &*source);
        let chance = self.chance(task);
        run.handle(Input::Failed { task: task.id, retryable, chance }).expect("the task was running");
        if run.node(task.id.slot) != Some(task.node) {
            return self.hand_over(task, source, data).await;
        }
        self.failure = Some((task, source));
        Ok(())
    }

    /// Keeps a finished task for the end of its superstep and asks its routers, which add to where it `goes` itself.
    ///
    /// A task that is `alone` in its superstep is folded at once: nothing can come before or between.
    fn finish(
        &mut self,
        task: TaskId,
        node: NodeIndex,
        update: S::Update,
        json: Vec<u8>,
        goes: Targets,
        alone: bool,
    ) -> Result<Report, RunError> {
        let (written, exclusive) = (self.state.written(&update), self.state.exclusive(&update));
        let name = self.graph.topology.name(node);
        let compiled = &self.graph.nodes[node.position()];
        if let Some(other) = compiled.undeclared(written) {
            let channel = self.state.channels()[other].name.clone();
            return Err(RunError::Undeclared { node: name.clone(), step: task.step, channel });
        }
        let refuse = |source| RunError::Fold { node: name.clone(), step: task.step, source };
        let (update, targets) = if alone {
            begin_fold(&mut self.state, self.inside.as_mut());
            note(self.inside.as_mut(), &update);
            fold(&mut self.state, update).map_err(refuse)?;
            (None, targets(compiled, &self.state, task.step, name)?)
        } else if !compiled.decides() {
            (Some(update), Targets::default())
        } else {
            let left_behind = reduce(&self.state, [update.clone()]).map_err(refuse)?;
            (Some(update), targets(compiled, &left_behind, task.step, name)?)
        };
        let Targets { ends, items } = goes.followed_by(targets);
        if update.is_some() || !items.is_empty() || self.hold.is_some() {
            self.put(task.slot, Done { node, update, json, items, recorded: false });
        }
        Ok(Report { written, exclusive, targets: ends })
    }

    /// Folds what the tasks of a superstep wrote, in the order of the plan, and keeps the items of the next one.
    fn fold(&mut self, plan: Plan) -> Result<(), Refused> {
        if self.done.iter().flatten().any(|done| done.update.is_some()) {
            begin_fold(&mut self.state, self.inside.as_mut());
        }
        for (task, done) in plan.order().zip(&mut self.done) {
            let Some(Done { node, update, .. }) = done else { continue };
            let Some(update) = update.take() else { continue };
            note(self.inside.as_mut(), &update);
            fold(&mut self.state, update).map_err(|source| {
                let node = self.graph.topology.name(*node).clone();
                Refused { error: RunError::Fold { node, step: plan.step, source }, blamed: vec![task.slot] }
            })?;
        }
        // Nearly always both are empty, and clearing an empty map is not for nothing.
        if !self.items.is_empty() {
            self.items.clear();
        }
        debug_assert!(self.waiting.is_empty(), "a superstep with a task that asks is not over");
        if !self.failures.is_empty() {
            self.failures.clear();
        }
        if self.done.iter().flatten().any(|done| !done.items.is_empty()) {
            let sent = self.done.iter_mut().flatten().flat_map(|done| done.items.drain(..)).collect();
            self.items = items(plan.next as usize, sent);
        }
        if let Some(events) = &self.events {
            events.values(plan.step, &self.state);
        }
        Ok(())
    }

    /// Stores a superstep that is folded.
    async fn store_superstep(&mut self, mut control: Control) -> Result<(), RunError> {
        control.items.clone_from(&self.items);
        let mut applied = Vec::with_capacity(self.done.len());
        for (slot, done) in (0..).zip(self.done.drain(..)) {
            let Some(Done { node, json, recorded, .. }) = done else { continue };
            let node = self.graph.topology.name(node).clone();
            applied.push(AppliedTask { slot, recorded, node, update: json });
        }
        let (metadata, records) = (Map::new(), Vec::new());
        self.checkpoint(NewCheckpoint { source: Source::Loop, control, metadata, applied, records }).await
    }

    /// Stores a checkpoint and tells of it.
    async fn checkpoint(&mut self, new: NewCheckpoint) -> Result<(), RunError> {
        let describe = self.wants(StreamMode::Checkpoints) || self.wants(StreamMode::Debug);
        let seeded = self.is_seeded();
        let (state, control) = (&self.state, &new.control);
        let (source, step) = (new.source, control.step);
        let snapshot = || snapshot(state, step);
        let Some(hold) = &mut self.hold else {
            return Ok(());
        };
        // What a graph makes of its caller's state is told by its updates alone.
        let may_snapshot = source == Source::Loop && !seeded;
        let stored = hold.commit(new, may_snapshot.then_some(snapshot), describe).await?;
        self.held = hold.holds().then(|| self.state.clone());
        self.show_place();
        self.tell(stored);
        Ok(())
    }

    /// Stores what the run has not stored yet.
    async fn flush(&mut self) -> Result<(), RunError> {
        let describe = self.wants(StreamMode::Checkpoints) || self.wants(StreamMode::Debug);
        let Some(hold) = &mut self.hold else { return Ok(()) };
        let state = self.held.as_ref().unwrap_or(&self.state);
        let stored = hold.flush(|step| snapshot(state, step), describe).await?;
        self.tell(stored);
        Ok(())
    }

    /// Tells of checkpoints that were stored.
    fn tell(&self, stored: impl IntoIterator<Item = CheckpointMeta>) {
        stored.into_iter().for_each(|meta| self.tell_checkpoint(meta));
    }

    fn failed(&mut self, failure: Failure, config: &RunConfig) -> Refused {
        match failure {
            Failure::Task(id) => {
                let (task, source) = self.failure.take().expect("the engine gives up only after a failure");
                let node = self.graph.topology.name(task.node).clone();
                let error = RunError::Node { node, step: id.step, attempts: task.attempt, source };
                Refused { error, blamed: vec![id.slot] }
            }
            Failure::Conflict { channel, first, second } => {
                let node = |task: TaskId| {
                    let done = self.done[task.slot as usize].as_ref().expect("both tasks are finished");
                    self.graph.topology.name(done.node).clone()
                };
                let channel = self.state.channels()[channel].name.clone();
                let error = RunError::Conflict {
                    channel,
                    step: first.step,
                    first: node(first),
                    second: node(second),
                };
                Refused { error, blamed: vec![first.slot, second.slot] }
            }
            Failure::StepLimit { next } => {
                Refused { error: RunError::StepLimit { limit: config.step_limit, next }, blamed: Vec::new() }
            }
        }
    }

    fn too_long(&self, run: &Run, tasks: &Tasks<S>, config: &RunConfig) -> RunError {
        let unfinished: BTreeSet<NodeIndex> = tasks.at_work().map(|task| task.node).collect();
        let name = |node| self.graph.topology.name(node).clone();
        RunError::StepTimeout {
            step: run.task(0).step,
            limit: config.step_timeout.unwrap_or_default(),
            unfinished: unfinished.into_iter().map(name).collect(),
        }
    }

    /// Tells the tasks which checkpoint they belong to.
    fn show_place(&self) {
        if let Some((checkpoint, since_ms)) = self.hold.as_ref().and_then(Hold::place) {
            self.cx.checkpoint.store(checkpoint.0, Ordering::Relaxed);
            self.cx.since_ms.store(since_ms, Ordering::Relaxed);
        }
    }

    fn put(&mut self, slot: u32, done: Done<S>) {
        let slot = slot as usize;
        if self.done.len() <= slot {
            self.done.resize_with(slot + 1, || None);
        }
        self.done[slot] = Some(done);
    }

    fn encode(&mut self, update: &S::Update, node: NodeIndex, step: i64) -> Result<Vec<u8>, RunError> {
        let name = self.graph.topology.name(node);
        if self.hold.is_none() {
            return check(&self.state, update, step, name).map(|()| Vec::new());
        }
        encode(&self.state, update, step, name, &mut self.scratch)
    }

    /// The share of the jitter that a failed attempt waits: drawn from the seed, so that a replay waits the same.
    fn chance(&self, task: Task) -> f64 {
        let attempt = (task.id.step as u64) << 32 ^ u64::from(task.id.slot) << 16 ^ u64::from(task.attempt);
        // Spread over all bits, so that seeds and attempts that are close to each other do not meet.
        StdRng::seed_from_u64(self.cx.seed ^ attempt.wrapping_mul(0xD1B5_4A32_D192_ED03)).random()
    }
}

/// What the driver goes on for.
enum Woken {
    /// Tasks wait until what they did once is stored.
    Asked(Vec<Request>),
    /// A task is over or may begin, or the run is cancelled.
    Again,
    /// A write of the queue is over.
    Stored(Result<Option<CheckpointMeta>, RunError>),
    /// Tasks need their checkpoint stored.
    Settle(Vec<oneshot::Sender<()>>),
    /// The superstep takes longer than it may.
    TooLong,
}

/// A superstep that will not be committed, and the tasks that are to blame, by slot.
struct Refused {
    error: RunError,
    blamed: Vec<u32>,
}

impl From<RunError> for Refused {
    fn from(error: RunError) -> Self {
        Self { error, blamed: Vec::new() }
    }
}

/// Where the conditional edges and fan-outs of a node lead, given the state that it left behind.
pub(crate) fn targets<S: State>(
    node: &CompiledNode<S>,
    state: &S,
    step: i64,
    name: &NodeName,
) -> Result<Targets, RunError> {
    if !node.decides() {
        return Ok(Targets::default());
    }
    node.targets(state).map_err(|source| RunError::Router { node: name.clone(), step, source })
}

/// The items of the last of `next` tasks, by slot: those that were sent, in the order in which they were.
pub(crate) fn items(next: usize, sent: Vec<String>) -> BTreeMap<u32, String> {
    let first = next - sent.len();
    (first..).map(slot_number).zip(sent).collect()
}

fn slot_number(slot: usize) -> u32 {
    u32::try_from(slot).expect("slots are counted in 32 bits")
}
