//! The run of a [`Probe`], and the observer that reports its tasks.
//!
//! Start at [`probe`].

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use serde_json::Value;
use superstep_checkpoint::{Commit, MemoryCheckpointer, RecordedTarget, Source, TaskRecord};
use superstep_engine::{
    Breakpoints, Control, NodeIndex, NodeName, RunLimits, START, Target, Task, TaskId, Topology,
};
use superstep_state::{RawJson, StoredUpdate, chain};

use super::{
    begin::{RunInput, begin_leased},
    breakpoints::limits,
    driver::drive,
    encode::snapshot,
    execution::Execution,
    observer::{RunObserver, RunView, TaskStart, Wait},
    probe::{AfterFailure, Probe, Probed, ProbedTask},
    recording::record,
    superstep::{Stop, TaskResult},
    targets::{items, named},
};
use crate::{
    Answers, Checkpointer, Event, Interrupt, NodeError, RunError, RunOptions, State, Status, Store,
    StreamMode, Streaming, ThreadId,
    compiled::graph::Inner,
    journal::{
        divergence::Deviation,
        interrupts::WaitReason,
        recorder::{Recorded, ReplayMode},
    },
    node::cx::RunScope,
    stream::{
        emitter::{Events, Sink},
        patience::ConsumerWait,
    },
};

/// The thread of a probe without a name of its own.
const THREAD: &str = "test";

/// Runs a probe: see [`CompiledGraph::probe`](crate::CompiledGraph::probe).
///
/// # Errors
/// Those of a probe that cannot begin.
pub(crate) async fn probe<S: State>(
    graph: Arc<Inner<S>>,
    store: Option<Arc<dyn Store>>,
    probe: Probe<S>,
) -> Result<Probed<S>, RunError> {
    let Probe { node, state, item, failure, step, effects, answers, recovers, until, options } = probe;
    let unknown = || RunError::UnknownNode { graph: graph.name.clone(), node: node.clone() };
    graph.topology.find(&node).filter(|found| *found != graph.topology.start()).ok_or_else(unknown)?;
    let state = state.unwrap_or_else(|| (*graph.initial).clone());
    let thread = options.thread.clone().unwrap_or_else(|| ThreadId::from(THREAD));
    if thread.is_child() {
        return Err(RunError::ChildThread { thread });
    }
    let mut options = RunOptions {
        thread: Some(thread.clone()),
        checkpoint: None,
        answers: Answers::new(),
        max_concurrency: Some(1),
        recording: true,
        ..options
    };
    options.check_metadata()?;
    options.breakpoints.before.extend(until.iter().flatten().cloned());
    let pending =
        failure.as_ref().map_or_else(|| NodeName::from(node.as_str()), |failure| failure.node.clone());
    let mut control = Control::new(step.saturating_sub(1), vec![pending]);
    control.items.extend(item.map(|item| (0, item.to_string())));
    let started = TaskRecord::Started { attempts: 0, once: BTreeMap::new() };
    let records = failure.map(|failure| (0, started.handled(Some(&failure))));
    // As a database stores them, so that every build finds the values that cannot be stored.
    let checkpointer: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new().keeping_values(false));
    let first = Commit {
        parent: None,
        source: Source::Update,
        created_ms: options.clock.now_ms(),
        metadata: graph.mark(None).metadata(),
        applied: Vec::new(),
        snapshot: Some(snapshot(&state, control.step)?.into()),
        records: records.into_iter().collect(),
        fingerprints: None,
        control: control.clone(),
    };
    checkpointer.commit(&thread, None, first).await?;
    let log = Log { control: control.clone(), ..Log::new(state, control.items.clone(), effects) };
    let until = until.map(Arc::from);
    let probing = Probing { log: Arc::new(log.into()), recovers, until };
    probing.answered(graph, (checkpointer, thread), store, options, answers).await
}

/// The tasks so far.
struct Log<S: State> {
    /// The state before the first superstep.
    state: S,
    tasks: Vec<(TaskId, ProbedTask<S>)>,
    /// The position of the task that began last. One runs at a time, so that events are its own.
    current: usize,
    /// The items of the present superstep, by slot.
    items: BTreeMap<u32, String>,
    control: Control,
    /// `true` once a superstep is completed.
    has_committed: bool,
    effects: Arc<BTreeMap<String, Value>>,
    /// The error of the task that ended the run.
    error: Option<RunError>,
}

impl<S: State> Log<S> {
    fn new(state: S, items: BTreeMap<u32, String>, effects: BTreeMap<String, Value>) -> Self {
        let (tasks, control, effects) = (Vec::new(), Control::new(0, Vec::new()), Arc::new(effects));
        Self { state, tasks, current: 0, items, control, has_committed: false, effects, error: None }
    }

    /// Returns the last entry of a task. That of its error handler follows that of the failed node.
    fn task(&mut self, id: TaskId) -> Option<&mut ProbedTask<S>> {
        let position = self.position(id)?;
        Some(&mut self.tasks[position].1)
    }

    fn position(&self, id: TaskId) -> Option<usize> {
        self.tasks.iter().rposition(|(of, _)| *of == id)
    }

    /// Adds the entry of an attempt that begins, or replaces that of the one before: a retry adds to its events, and a run
    /// with an answer begins again.
    fn begin(&mut self, id: TaskId, mut new: ProbedTask<S>) {
        let before = self.position(id).filter(|position| self.tasks[*position].1.node == new.node);
        self.current = before.unwrap_or(self.tasks.len());
        match before {
            None => self.tasks.push((id, new)),
            Some(position) => {
                let (_, before) = &mut self.tasks[position];
                if new.attempt > 1 {
                    new.events = std::mem::take(&mut before.events);
                }
                *before = new;
            }
        }
    }

    fn add_inputs(&mut self, id: TaskId, recorded: Recorded) {
        let Some(task) = self.task(id) else { return };
        task.results = recorded.results;
        let text = |error: &NodeError| chain(error.cause());
        let errors = recorded.errors.into_iter();
        task.errors = errors.map(|(name, failed)| (name, text(&failed.into()))).collect();
    }
}

/// The observer of a probe, and the sink of its events.
struct Probing<S: State> {
    log: Arc<Mutex<Log<S>>>,
    recovers: bool,
    /// The nodes before which it stops; `None` if it stops after the first superstep.
    until: Option<Arc<[String]>>,
}

impl<S: State> Clone for Probing<S> {
    fn clone(&self) -> Self {
        Self { log: self.log.clone(), recovers: self.recovers, until: self.until.clone() }
    }
}

impl<S: State> Probing<S> {
    fn log(&self) -> MutexGuard<'_, Log<S>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs it, and again with the answers to what it asks, as long as there are any.
    async fn answered(
        self,
        graph: Arc<Inner<S>>,
        place: (Arc<dyn Checkpointer>, ThreadId),
        store: Option<Arc<dyn Store>>,
        mut options: RunOptions,
        answers: Vec<(String, Value)>,
    ) -> Result<Probed<S>, RunError> {
        let mut unused: BTreeMap<String, VecDeque<Value>> = BTreeMap::new();
        for (name, value) in answers {
            unused.entry(name).or_default().push_back(value);
        }
        let mut questions: Vec<Interrupt> = Vec::new();
        let end = loop {
            let ended = self.drive(graph.clone(), place.clone(), store.clone(), &options).await?;
            let (status, open) = match ended {
                Ok(ended) => ended,
                Err(error) => break Err(error),
            };
            options.answers = Answers::new();
            for question in open {
                let name = [&question.id, &question.key].into_iter().find(|name| unused.contains_key(*name));
                if let Some(answers) = name.and_then(|name| unused.get_mut(name))
                    && let Some(answer) = answers.pop_front()
                {
                    options.answers.add(question.id.clone(), answer);
                }
                if questions.iter().all(|before| before.id != question.id) {
                    questions.push(question);
                }
            }
            if options.answers.is_empty() {
                break Ok(status);
            }
        };
        let mut log = self.log();
        let used = log.tasks.iter().flat_map(|(_, task)| task.results.keys()).collect::<BTreeSet<_>>();
        let unused_effects = log.effects.keys().filter(|name| !used.contains(name)).cloned().collect();
        let (control, tasks) = (log.control.clone(), std::mem::take(&mut log.tasks));
        let tasks = tasks.into_iter().map(|(_, task)| task).collect();
        let unused = unused.into_iter().filter(|(_, answers)| !answers.is_empty());
        let unused_answers = unused.map(|(name, _)| name).collect();
        Ok(Probed { tasks, end, control, asked: questions, unused_answers, unused_effects })
    }

    /// Runs it until it ends or waits; returns its open questions.
    async fn drive(
        &self,
        graph: Arc<Inner<S>>,
        (checkpointer, thread): (Arc<dyn Checkpointer>, ThreadId),
        store: Option<Arc<dyn Store>>,
        options: &RunOptions,
    ) -> Result<Result<(Status, Vec<Interrupt>), RunError>, RunError> {
        let (limits, config) = (limits(&graph, options)?, Arc::new(options.clone()));
        let unfinished = |(_, task): &&mut (TaskId, ProbedTask<S>)| task.update.is_none();
        self.log().tasks.iter_mut().filter(unfinished).for_each(|(_, task)| task.events.clear());
        let scope = RunScope::root(config.clone(), Some((checkpointer.clone(), thread.clone())), store);
        let modes = vec![StreamMode::Custom, StreamMode::Messages];
        let streaming = Streaming::from(modes).subgraphs();
        let events = Events::new(streaming, Arc::new(self.clone()));
        let mut exec = Execution::new(graph, scope, Some(events), Box::new(self.clone()));
        let set = exec.cx.recorder.given_results.set(self.log().effects.clone());
        set.expect("the recorder is new");
        let begin = begin_leased(&mut exec, checkpointer, thread, None, RunInput::Nothing, &config).await;
        let begin = begin.map_err(Stop::into_error)?;
        {
            let log = self.log();
            if !log.has_committed {
                // With the values that are not stored, which a run passes from one superstep to the next.
                exec.state = log.state.clone();
            }
        }
        let status = match drive(&mut exec, begin, limits, &config).await {
            Ok(status) => status,
            Err(Stop::Refused(refused)) => return Ok(Err(refused.error)),
            Err(Stop::Halted) => {
                return Ok(Err(self.log().error.take().expect("a probe halts only for the error of a task")));
            }
        };
        let (step, mut open) = (exec.superstep.step, Vec::new());
        let mut log = self.log();
        for (slot, asking) in exec.superstep.waiting {
            let questions: Vec<_> = asking.into_iter().map(|asking| asking.interrupt).collect();
            if let Some(task) = log.task(TaskId { step, slot }) {
                task.questions.clone_from(&questions);
            }
            open.extend(questions);
        }
        Ok(Ok((status, open)))
    }
}

impl<S: State> RunObserver<S> for Probing<S> {
    fn begin<'a>(&'a self, run: RunView<'a, S>, limits: &mut RunLimits) -> Wait<'a> {
        let topology = &run.graph.topology;
        limits.breakpoints = match &self.until {
            Some(until) => {
                let before = until.iter().filter_map(|name| topology.find(name)).collect();
                Breakpoints { before, after: Vec::new() }
            }
            None => {
                let after = topology.names().filter_map(|name| topology.find(name.as_str())).collect();
                Breakpoints { before: Vec::new(), after }
            }
        };
        None
    }

    fn before_task(&self, run: RunView<'_, S>, task: Task) -> TaskStart<S> {
        run.cx.recorder.begin(task.id, ReplayMode::Nothing);
        let mut log = self.log();
        let once = log.effects.iter().map(|(name, value)| (name.clone(), RawJson::from(value)));
        run.cx.effects.restore(task.id, once.collect());
        let node = run.graph.topology.name(task.node).clone();
        let item = log.items.get(&task.id.slot).and_then(|item| serde_json::from_str(item).ok());
        let new = ProbedTask {
            node,
            step: task.id.step,
            attempt: task.attempt,
            item,
            state: run.state.clone(),
            update: None,
            chosen: Vec::new(),
            next: None,
            events: Vec::new(),
            results: BTreeMap::new(),
            errors: BTreeMap::new(),
            questions: Vec::new(),
            failure: None,
        };
        log.begin(task.id, new);
        TaskStart::Run { counts: None }
    }

    fn reads_cache(&self) -> bool {
        false
    }

    fn after_task(&self, run: RunView<'_, S>, task: Task, result: &mut TaskResult<S>) -> Result<(), Stop> {
        if let TaskResult::Finished(written, _) = result {
            if let Some(probed) = self.log().task(task.id) {
                probed.update = Some(written.update.clone());
            }
            return Ok(());
        }
        let recorded = run.cx.recorder.take_inputs(task.id, || run.cx.effects.results(task.id));
        self.log().add_inputs(task.id, recorded.unwrap_or_default());
        if let TaskResult::Interrupted(reasons) = result {
            let unfit = reasons.iter().find_map(|reason| match reason {
                WaitReason::Deviated(Deviation::Unfit { effect, recorded }) => {
                    Some(UnfitEffect { name: effect.clone(), result: recorded.clone() })
                }
                _ => None,
            });
            let Some(unfit) = unfit else { return Ok(()) };
            *result = TaskResult::Failed(NodeError::new(unfit).fatal());
        }
        if self.recovers {
            return Ok(());
        }
        let failed = std::mem::replace(result, TaskResult::Interrupted(Vec::new()));
        let TaskResult::Failed(error) = failed else { return Ok(()) };
        let topology = &run.graph.topology;
        let policy = run.graph.nodes[task.node.position()].retry.policy(&error);
        let after = AfterFailure {
            is_fatal: error.is_fatal(),
            attempts: policy.map_or(1, |policy| policy.max_attempts.max(1)),
            handler: topology.handler(task.node).map(|handler| topology.name(handler).clone()),
            data: error.data().cloned(),
        };
        let (node, step) = (topology.name(task.node).clone(), task.id.step);
        let (source, _) = error.into_parts();
        let mut log = self.log();
        log.error = Some(RunError::Node { node, step, attempts: task.attempt, source });
        if let Some(task) = log.task(task.id) {
            task.failure = Some(after);
        }
        Err(Stop::Halted)
    }

    fn before_store(
        &self,
        run: RunView<'_, S>,
        task: Task,
        cached: Option<Vec<RecordedTarget>>,
        update: Option<&mut StoredUpdate>,
    ) -> Result<(), RunError> {
        let Some(update) = update else { return Ok(()) };
        record(run, task, task.attempt, cached, Some(&mut *update))?;
        let recorded = Recorded::of(update).map_err(|source| {
            let (node, step) = (run.graph.topology.name(task.node).clone(), task.id.step);
            RunError::Encode { node, channel: None, step, source }
        })?;
        self.log().add_inputs(task.id, recorded);
        Ok(())
    }

    fn before_commit<'a>(&'a self, run: RunView<'a, S>, new: &'a mut Commit) -> Wait<'a> {
        let plan = run.plan.filter(|_| new.source == Source::Loop)?;
        let topology = &run.graph.topology;
        let mut log = self.log();
        let mut sent = new.control.items.values().map(|item| RawJson::from(item.as_str()));
        for slot in (0..).take(plan.width()) {
            let (Some(node), Some(report)) = (plan.node(slot), plan.report(slot)) else { continue };
            let chosen = named(topology, &report.targets, &mut sent);
            let next = leads_to(topology, (node, report.targets.clone()), plan.task(slot).step, &chosen);
            if let Some(task) = log.task(plan.task(slot)) {
                (task.chosen, task.next) = (chosen, Some(next));
            }
        }
        (log.items, log.control) = (new.control.items.clone(), new.control.clone());
        log.has_committed = true;
        None
    }
}

/// Returns the control record to which a finished task of `step` leads, without those of other tasks. `chosen` are its
/// targets as they are stored.
pub(crate) fn leads_to(
    topology: &Topology,
    finished: (NodeIndex, Vec<Target>),
    step: i64,
    chosen: &[RecordedTarget],
) -> Control {
    // Beside another task, because the last task of a thread ends the waits of joins and of deferred nodes.
    let other = Target::Node(topology.start());
    let mut next = topology.after(None, &[other], &[], &[finished]);
    next.next.retain(|node| node.as_str() != START);
    let item = |target: &RecordedTarget| match target {
        RecordedTarget::Send { item, .. } => Some(item.clone()),
        RecordedTarget::Node(_) => None,
    };
    next.items = items(next.next.len(), chosen.iter().filter_map(item).collect());
    Control { step, ..next }
}

impl<S: State> Sink<S> for Probing<S> {
    fn is_open(&self) -> bool {
        true
    }

    fn send(&self, event: Event<S>) {
        let is_of_task =
            matches!(event, Event::Custom { .. } | Event::Message { .. } | Event::Subgraph { .. });
        if !is_of_task {
            return;
        }
        let mut log = self.log();
        let current = log.current;
        if let Some((_, task)) = log.tasks.get_mut(current) {
            task.events.push(event);
        }
    }

    fn poll_room(&self, _: &mut Context<'_>, _: &mut Option<ConsumerWait>) -> Poll<()> {
        Poll::Ready(())
    }

    fn capacity(&self) -> usize {
        usize::MAX
    }
}

/// A given result that is not of the type of its effect.
#[derive(Debug, thiserror::Error)]
#[error("the effect `{name}` was given {result}, which does not fit its type")]
struct UnfitEffect {
    name: String,
    result: Value,
}
