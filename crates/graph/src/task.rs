//! Running the tasks of a superstep.

use std::{
    any::Any,
    collections::VecDeque,
    future::{self, Future},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::future::BoxFuture;
use superstep_engine::{Task, TaskId};
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{Sleep, sleep},
};

use crate::{Cx, NodeError, Panicked, State, TimedOut, cx::RunCx, interrupt::Asked, node::CompiledNode};

/// How an attempt of a task ended.
pub(crate) struct TaskEnd<S: State> {
    pub(crate) task: Task,
    pub(crate) result: TaskResult<S>,
}

pub(crate) enum TaskResult<S: State> {
    Finished(S::Update),
    Failed(NodeError),
    Interrupted(Vec<Asked>),
}

/// One attempt of a task: its node, its time-out, its panic.
pub(crate) struct RunTask<S: State> {
    task: Task,
    node: BoxFuture<'static, Result<S::Update, NodeError>>,
    run: Arc<RunCx>,
    timeout: Option<Duration>,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S: State> RunTask<S> {
    /// Calls the node, or has it called after the delay of the task. What it does before it first waits, an async
    /// function does when it is polled.
    pub(crate) fn new(task: Task, node: &CompiledNode<S>, state: S, cx: Cx) -> Self {
        let shared = cx.run.clone();
        let run = node.run.as_ref().expect("only the start has no function, and it is never executed");
        let timeout = node.timeout.map(|timeout| task.delay + timeout);
        let node = if task.delay.is_zero() {
            let called = catch_unwind(AssertUnwindSafe(|| run(state, cx)));
            called.unwrap_or_else(|panic| Box::pin(future::ready(Err(panicked(&*panic)))))
        } else {
            let run = run.clone();
            Box::pin(async move {
                sleep(task.delay).await;
                run(state, cx).await
            })
        };
        Self { task, node, run: shared, timeout, deadline: None }
    }
}

impl<S: State> Future for RunTask<S> {
    type Output = TaskEnd<S>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<TaskEnd<S>> {
        let this = &mut *self;
        let task = this.task;
        let polled = catch_unwind(AssertUnwindSafe(|| this.node.as_mut().poll(context)));
        // Asked first: a node that went on without the answer must not swallow its question.
        if let Some(asked) = this.run.desk.take(task.id) {
            return Poll::Ready(TaskEnd { task, result: TaskResult::Interrupted(asked) });
        }
        if let Poll::Ready(result) = polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(&*panic)))) {
            let result = match result {
                Ok(update) => TaskResult::Finished(update),
                Err(error) => TaskResult::Failed(error),
            };
            return Poll::Ready(TaskEnd { task, result });
        }
        let Some(timeout) = this.timeout else { return Poll::Pending };
        let deadline = this.deadline.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(TaskEnd { task, result: TaskResult::Failed(TimedOut(timeout - task.delay).into()) })
    }
}

fn panicked(payload: &(dyn Any + Send)) -> NodeError {
    NodeError::new(Panicked::from_payload(payload)).fatal()
}

/// The tasks of a superstep that are not over. A task alone runs inside the run's own future; several are spawned.
pub(crate) struct Tasks<S: State> {
    waiting: VecDeque<Task>,
    /// The spawned ones.
    running: VecDeque<(Task, AbortHandle)>,
    dropped: Vec<Task>,
    /// The one that runs alone.
    inline: Option<RunTask<S>>,
    spawned: JoinSet<TaskEnd<S>>,
    limit: usize,
}

impl<S: State> Tasks<S> {
    /// At most `limit` tasks at a time.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            running: VecDeque::new(),
            dropped: Vec::new(),
            inline: None,
            spawned: JoinSet::new(),
            limit,
        }
    }

    pub(crate) fn push(&mut self, task: Task) {
        self.waiting.push_back(task);
    }

    /// Begins as many waiting tasks as may run.
    pub(crate) fn start(&mut self, run: impl Fn(Task) -> RunTask<S>) {
        if self.inline.is_some() {
            return;
        }
        if self.running.is_empty() && self.waiting.len() == 1 {
            self.inline = self.waiting.pop_front().map(run);
            return;
        }
        while self.running.len() < self.limit
            && let Some(task) = self.waiting.pop_front()
        {
            let spawned = self.spawned.spawn(run(task));
            self.running.push_back((task, spawned));
        }
    }

    /// The next task that is over.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<TaskEnd<S>> {
        if let Some(task) = &mut self.inline {
            let end = ready!(Pin::new(task).poll(context));
            self.inline = None;
            return Poll::Ready(end);
        }
        loop {
            let joined = ready!(self.spawned.poll_join_next(context));
            let end = match joined.expect("the engine waits only while tasks run") {
                Ok(end) => end,
                Err(error) if error.is_cancelled() => continue,
                Err(_) => unreachable!("panics of nodes are caught"),
            };
            // A task that was over just before it was dropped counts as dropped. Tasks end nearly in the order in which
            // they began, so that the search and the removal are short.
            if let Some(position) = self.running.iter().position(|(task, _)| task.id == end.task.id) {
                self.running.remove(position);
                return Poll::Ready(end);
            }
        }
    }

    /// Drops a task where it stands, or before it begins.
    pub(crate) fn drop_task(&mut self, id: TaskId) {
        let running = self.running.iter().position(|(task, _)| task.id == id);
        if let Some((task, spawned)) = running.and_then(|position| self.running.remove(position)) {
            spawned.abort();
            self.dropped.push(task);
        }
        if let Some(alone) = self.inline.take_if(|alone| alone.task.id == id) {
            self.dropped.push(alone.task);
        }
        if let Some(task) = self.waiting.iter().position(|task| task.id == id) {
            self.dropped.extend(self.waiting.remove(task));
        }
    }

    /// Drops every task and returns those that were not over.
    pub(crate) async fn stop(&mut self) -> Vec<Task> {
        self.spawned.shutdown().await;
        let mut dropped = std::mem::take(&mut self.dropped);
        dropped.extend(self.inline.take().map(|alone| alone.task));
        dropped.extend(self.running.drain(..).map(|(task, _)| task));
        dropped.extend(self.waiting.drain(..));
        dropped
    }
}
