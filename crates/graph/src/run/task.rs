//! Execution of a superstep's tasks.

use std::{
    any::Any,
    collections::{BTreeMap, VecDeque},
    future::{self, Future},
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
};

use futures::future::BoxFuture;
use superstep_engine::{NodeIndex, Task, TaskId};
use superstep_state::Panicked;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::Sleep,
};
use tracing::Span;

use crate::{
    Cx, NodeError, State,
    compiled::node::CompiledNode,
    node::{
        cache::Lookup,
        cx::{RunCx, TaskCx},
        output::Written,
        timeout::Deadlines,
    },
    own_task::{Owner, owned},
    run::{
        superstep::{TaskEnd, TaskResult},
        trace,
    },
    stream::patience::ConsumerWait,
    timers::{self, NoTimers},
};

/// One attempt of a task: its node, its timeouts, its panic.
pub(crate) struct RunTask<S: State> {
    task: Task,
    /// `None` after its end.
    node: Option<BoxFuture<'static, Result<Written<S>, NodeError>>>,
    deadlines: Option<Box<Deadlines>>,
    lookup: Lookup,
    /// The time that it lets the consumer of its events go first.
    patience: Option<ConsumerWait>,
    /// `None` if nothing listens. Boxed, because tasks are moved often.
    span: Option<Box<Span>>,
    /// The context, whose waker is for messages of the node, even from a future that runs in parallel; `None` after its end.
    cx: Option<Arc<TaskCx>>,
}

impl<S: State> Drop for RunTask<S> {
    /// A node's values may panic when they are dropped. The node has ended by then, so the panic is ignored.
    fn drop(&mut self) {
        let _ = self.drop_node();
    }
}

impl<S: State> RunTask<S> {
    /// Calls the node. An async function runs its first part only when it is polled.
    pub(crate) fn new(task: Task, node: &CompiledNode<S>, state: S, cx: Cx, lookup: Lookup) -> Self {
        let failed = |error| Self::over(task, Err(error), Lookup::None);
        let timeout = match node.timeout_of(cx.0.item.as_deref()) {
            Ok(timeout) => timeout,
            Err(panicked) => return failed(NodeError::new(panicked).fatal()),
        };
        let deadlines = match Deadlines::begin(timeout, node.idle_timeout.zip(cx.0.heartbeat.clone())) {
            Ok(deadlines) => deadlines.map(Box::new),
            Err(error) => return failed(NodeError::new(error).fatal()),
        };
        let shared = Some(cx.0.clone());
        let span = trace::attempt(cx.0.run.topology.name(task.node), task, cx.0.attempt);
        let entered = span.as_ref().map(|span| span.enter());
        let run = node.run.as_ref().expect("only the start has no function, and it is never executed");
        let call = || {
            if !cx.is_observed() {
                return run(state, cx);
            }
            let run = run.clone();
            Box::pin(async move {
                cx.waits("begin", "").await;
                let ended = run(state, cx.clone()).await;
                cx.waits("end", "").await;
                ended
            })
        };
        let called = catch_unwind(AssertUnwindSafe(call));
        let node = called.unwrap_or_else(|panic| Box::pin(future::ready(Err(panicked(&*panic)))));
        drop(entered);
        Self { task, node: Some(node), deadlines, lookup, patience: None, span, cx: shared }
    }

    /// Creates a task that has ended without a run of its node.
    pub(crate) fn over(task: Task, result: Result<Written<S>, NodeError>, lookup: Lookup) -> Self {
        let node = Some(Box::pin(future::ready(result)) as BoxFuture<'static, _>);
        Self { task, node, deadlines: None, lookup, patience: None, span: None, cx: None }
    }

    /// Drops the node and its values.
    fn drop_node(&mut self) -> thread::Result<()> {
        let Some(node) = self.node.take() else { return Ok(()) };
        catch_unwind(AssertUnwindSafe(|| drop(node)))
    }

    /// Polls the node; the result is left in `end`, because it may be large and should not be moved more
    /// often than needed.
    fn poll(&mut self, run: &RunCx, context: &mut Context<'_>, end: &mut Option<TaskEnd<S>>) -> Poll<()> {
        let entered = self.span.as_deref().map(|span| span.clone().entered());
        ready!(self.poll_node(run, context, end));
        if let Err(panic) = self.drop_node()
            && let Some(end) = end
            && matches!(end.result, TaskResult::Finished(..))
        {
            end.result = TaskResult::Failed(panicked(&*panic));
        }
        if let (Some(entered), Some(end)) = (&entered, end) {
            trace::attempted(entered, &end.result);
        }
        Poll::Ready(())
    }

    fn poll_node(
        &mut self,
        run: &RunCx,
        context: &mut Context<'_>,
        end: &mut Option<TaskEnd<S>>,
    ) -> Poll<()> {
        let task = self.task;
        ready!(run.poll_room(context, &mut self.patience));
        let node = self.node.as_mut().expect("a task is polled until its end");
        let polled = catch_unwind(AssertUnwindSafe(|| {
            node.as_mut().poll(context).map(|result| {
                let lookup = mem::replace(&mut self.lookup, Lookup::None);
                let result = match result {
                    Ok(written) => TaskResult::Finished(written, lookup),
                    Err(error) => TaskResult::Failed(error),
                };
                *end = Some(TaskEnd { task, result });
            })
        }));
        // Before the messages are read, so that none is missed. Most nodes end without a need for it.
        if let (Ok(Poll::Pending), Some(cx)) = (&polled, &self.cx) {
            cx.waker.register(context.waker());
        }
        // Checked first: a node that continued without the answer must not swallow its question.
        if !run.calls.at_work(task.id)
            && let Some(reasons) = run.interrupts.take(task.id)
        {
            *end = Some(TaskEnd { task, result: TaskResult::Interrupted(reasons) });
            return Poll::Ready(());
        }
        match polled {
            Ok(Poll::Ready(())) => return Poll::Ready(()),
            Err(panic) => {
                *end = Some(TaskEnd { task, result: TaskResult::Failed(panicked(&*panic)) });
                return Poll::Ready(());
            }
            Ok(Poll::Pending) => {}
        }
        let Some(deadlines) = &mut self.deadlines else { return Poll::Pending };
        let out = ready!(deadlines.poll(context));
        *end = Some(TaskEnd { task, result: TaskResult::Failed(out.into()) });
        Poll::Ready(())
    }
}

/// A task that runs in parallel to its run, and its end.
struct Parallel<S: State> {
    task: RunTask<S>,
    run: Arc<RunCx>,
    end: Option<TaskEnd<S>>,
}

/// The future of a parallel task, which it returns. It is boxed, because the runtime moves futures and their
/// outputs often. `None` after its end.
struct Spawned<S: State>(Option<Box<Parallel<S>>>);

impl<S: State> Future for Spawned<S> {
    type Output = Option<Box<Parallel<S>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(parallel) = &mut self.0 {
            let Parallel { task, run, end } = &mut **parallel;
            ready!(task.poll(run, context, end));
        }
        Poll::Ready(self.0.take())
    }
}

/// A spawned task.
struct Running<S: State> {
    task: AbortHandle,
    /// The owner of its future in a called graph, which another task may drop: no node runs after its graph is gone.
    owner: Option<Owner<Spawned<S>>>,
}

impl<S: State> Running<S> {
    fn stop(self) {
        drop(self.owner);
        self.task.abort();
    }
}

fn panicked(payload: &(dyn Any + Send)) -> NodeError {
    NodeError::new(Panicked::from_payload(payload)).fatal()
}

/// The unfinished tasks of a superstep. A single task runs inside the run's own future; several are spawned.
pub(crate) struct Tasks<S: State> {
    /// The tasks that may start, in order.
    waiting: VecDeque<Task>,
    /// The failed tasks that wait for a retry.
    resting: Vec<(Task, Pin<Box<Sleep>>)>,
    /// The spawned ones.
    running: VecDeque<(Task, Running<S>)>,
    dropped: Vec<Task>,
    /// The task that runs inline.
    inline: Option<RunTask<S>>,
    spawned: JoinSet<Option<Box<Parallel<S>>>>,
    limit: usize,
    /// The concurrency limits of single nodes.
    limits: BTreeMap<NodeIndex, Limit>,
}

/// The concurrency limit of one node.
struct Limit {
    most: usize,
    spawned: usize,
    /// The tasks that wait for this limit.
    held: VecDeque<Task>,
}

impl<S: State> Tasks<S> {
    /// Creates a scheduler of at most `limit` concurrent tasks, and fewer of some nodes.
    pub(crate) fn new(limit: usize, limits: impl Iterator<Item = (NodeIndex, usize)>) -> Self {
        let limits = limits.map(|(node, most)| (node, Limit { most, spawned: 0, held: VecDeque::new() }));
        Self {
            limits: limits.collect(),
            waiting: VecDeque::new(),
            resting: Vec::new(),
            running: VecDeque::new(),
            dropped: Vec::new(),
            inline: None,
            spawned: JoinSet::new(),
            limit,
        }
    }

    /// Accepts a task, to run after its delay. Until then it is not started, and no other task waits for it.
    pub(crate) fn push(&mut self, task: Task) -> Result<(), NoTimers> {
        if task.delay.is_zero() {
            self.waiting.push_back(task);
        } else {
            self.resting.push((task, Box::pin(timers::sleep(task.delay)?)));
        }
        Ok(())
    }

    /// Returns the unfinished tasks.
    pub(crate) fn at_work(&self) -> impl Iterator<Item = Task> {
        let inline = self.inline.iter().map(|alone| alone.task);
        let running = self.running.iter().map(|(task, _)| *task);
        let resting = self.resting.iter().map(|(task, _)| *task);
        let held = self.limits.values().flat_map(|limit| limit.held.iter().copied());
        inline.chain(running).chain(resting).chain(self.waiting.iter().copied()).chain(held)
    }

    /// Starts waiting tasks within the limits, at most `batch`. Returns whether `batch` was the reason for
    /// others to wait.
    pub(crate) fn start(&mut self, batch: usize, cx: &Arc<RunCx>, run: impl Fn(Task) -> RunTask<S>) -> bool {
        if self.inline.is_some() {
            return false;
        }
        let held = self.limits.values().any(|limit| !limit.held.is_empty());
        if self.running.is_empty() && self.resting.is_empty() && !held && self.waiting.len() == 1 {
            self.inline = self.waiting.pop_front().map(run);
            return false;
        }
        let full = self.limit.min(self.running.len().saturating_add(batch));
        self.running.reserve(self.waiting.len().min(full));
        while self.running.len() < full
            && let Some(task) = self.next()
        {
            let parallel = Spawned(Some(Box::new(Parallel { task: run(task), run: cx.clone(), end: None })));
            let spawned = self.spawn(parallel, cx.scope.caller.is_some());
            self.running.push_back((task, spawned));
        }
        self.running.len() < self.limit && !self.waiting.is_empty()
    }

    fn spawn(&mut self, parallel: Spawned<S>, is_called: bool) -> Running<S> {
        if !is_called {
            return Running { task: self.spawned.spawn(parallel), owner: None };
        }
        let (owner, poller) = owned(parallel);
        Running { task: self.spawned.spawn(async move { poller.await.flatten() }), owner: Some(owner) }
    }

    /// Returns the next task that may start.
    fn next(&mut self) -> Option<Task> {
        loop {
            let task = self.waiting.pop_front()?;
            match self.limits.get_mut(&task.node) {
                Some(limit) if limit.spawned >= limit.most => limit.held.push_back(task),
                Some(limit) => {
                    limit.spawned += 1;
                    return Some(task);
                }
                None => return Some(task),
            }
        }
    }

    /// Removes a spawned task, so that another one of its node may start.
    fn leave(&mut self, position: usize) -> Option<(Task, Running<S>)> {
        let (task, spawned) = self.running.remove(position)?;
        if let Some(limit) = self.limits.get_mut(&task.node) {
            limit.spawned -= 1;
            if let Some(held) = limit.held.pop_front() {
                self.waiting.push_front(held);
            }
        }
        Some((task, spawned))
    }

    /// Leaves the next finished task in `end`; returns without one if a delay has ended, so that another task
    /// may [`start`](Self::start).
    pub(crate) fn poll_next(
        &mut self,
        cx: &RunCx,
        context: &mut Context<'_>,
        end: &mut Option<TaskEnd<S>>,
    ) -> Poll<()> {
        if !self.resting.is_empty() {
            let rested = self.resting.extract_if(.., |(_, sleep)| sleep.as_mut().poll(context).is_ready());
            let before = self.waiting.len();
            self.waiting.extend(rested.map(|(task, _)| task));
            if self.waiting.len() > before {
                return Poll::Ready(());
            }
        }
        if let Some(task) = &mut self.inline {
            ready!(task.poll(cx, context, end));
            self.inline = None;
            return Poll::Ready(());
        }
        loop {
            let Some(joined) = ready!(self.spawned.poll_join_next(context)) else {
                assert!(!self.resting.is_empty(), "the engine waits only while tasks run");
                return Poll::Pending;
            };
            // An error means that it was dropped; panics of nodes are caught.
            let Ok(Some(mut parallel)) = joined else { continue };
            let id = parallel.task.task.id;
            // A task that finished just before it was dropped counts as dropped. Tasks end nearly in the
            // order of their starts, so that the search and the removal are short.
            if let Some(position) = self.running.iter().position(|(task, _)| task.id == id) {
                self.leave(position);
                *end = parallel.end.take();
                return Poll::Ready(());
            }
        }
    }

    /// Drops a task, running or not.
    pub(crate) fn drop_task(&mut self, id: TaskId) {
        let running = self.running.iter().position(|(task, _)| task.id == id);
        if let Some((task, spawned)) = running.and_then(|position| self.leave(position)) {
            spawned.stop();
            self.dropped.push(task);
        }
        if let Some(alone) = self.inline.take_if(|alone| alone.task.id == id) {
            self.dropped.push(alone.task);
        }
        for waiting in self.limits.values_mut().map(|limit| &mut limit.held).chain([&mut self.waiting]) {
            if let Some(task) = waiting.iter().position(|task| task.id == id) {
                self.dropped.extend(waiting.remove(task));
            }
        }
        let rested = self.resting.extract_if(.., |(task, _)| task.id == id);
        self.dropped.extend(rested.map(|(task, _)| task));
    }

    /// Drops every task and returns the unfinished ones, and the unprocessed results of the others.
    pub(crate) async fn stop(&mut self) -> (Vec<Task>, Vec<TaskEnd<S>>) {
        let mut over = Vec::new();
        self.spawned.abort_all();
        while let Some(joined) = self.spawned.join_next().await {
            over.extend(joined.ok().flatten().and_then(|parallel| parallel.end));
        }
        let mut dropped = mem::take(&mut self.dropped);
        dropped.extend(self.inline.take().map(|alone| alone.task));
        dropped.extend(self.running.drain(..).map(|(task, _)| task));
        dropped.extend(self.resting.drain(..).map(|(task, _)| task));
        dropped.extend(self.waiting.drain(..));
        dropped.extend(self.limits.values_mut().flat_map(|limit| limit.held.drain(..)));
        over.retain(|end: &TaskEnd<S>| dropped.iter().any(|task| task.id == end.task.id));
        dropped.retain(|task| over.iter().all(|end| task.id != end.task.id));
        over.sort_by_key(|end| end.task.id.slot);
        (dropped, over)
    }
}
