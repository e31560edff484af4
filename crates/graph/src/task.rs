//! Running the tasks of a superstep.

use std::{
    collections::VecDeque,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use superstep_engine::Task;
use tokio::{
    task::JoinSet,
    time::{Sleep, sleep},
};

use crate::{
    Cx, NodeError, Panicked, State, TimedOut,
    node::{CompiledNode, NodeFn},
};

/// How an attempt of a task ended.
pub(crate) struct TaskEnd<S: State> {
    pub(crate) task: Task,
    pub(crate) result: Result<S::Update, NodeError>,
}

/// One attempt of a task: its wait, its node, its time-out, its panic.
pub(crate) struct RunTask<S: State> {
    task: Task,
    stage: Stage<S>,
    wait: Option<Pin<Box<Sleep>>>,
    timeout: Option<Duration>,
    deadline: Option<Pin<Box<Sleep>>>,
}

enum Stage<S: State> {
    Begin { run: NodeFn<S>, state: S, cx: Cx },
    Running(BoxFuture<'static, Result<S::Update, NodeError>>),
    Over,
}

impl<S: State> RunTask<S> {
    pub(crate) fn new(task: Task, node: &CompiledNode<S>, state: S, cx: Cx) -> Self {
        let run = node.run.clone().expect("only the start has no function, and it is never executed");
        Self {
            task,
            stage: Stage::Begin { run, state, cx },
            wait: (!task.delay.is_zero()).then(|| Box::pin(sleep(task.delay))),
            timeout: node.timeout,
            deadline: None,
        }
    }

    fn poll_node(&mut self, context: &mut Context<'_>) -> Poll<Result<S::Update, NodeError>> {
        let polled = catch_unwind(AssertUnwindSafe(|| {
            if let Stage::Begin { .. } = self.stage
                && let Stage::Begin { run, state, cx } = std::mem::replace(&mut self.stage, Stage::Over)
            {
                self.stage = Stage::Running(run(state, cx));
            }
            match &mut self.stage {
                Stage::Running(future) => future.as_mut().poll(context),
                Stage::Begin { .. } | Stage::Over => Poll::Pending,
            }
        }));
        polled
            .unwrap_or_else(|panic| Poll::Ready(Err(NodeError::new(Panicked::from_payload(&*panic)).fatal())))
    }
}

impl<S: State> Unpin for RunTask<S> {}

impl<S: State> Future for RunTask<S> {
    type Output = TaskEnd<S>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<TaskEnd<S>> {
        let this = self.get_mut();
        if let Some(wait) = &mut this.wait {
            std::task::ready!(wait.as_mut().poll(context));
            this.wait = None;
        }
        let task = this.task;
        if let Poll::Ready(result) = this.poll_node(context) {
            // What the node still holds, such as its clone of the state, goes before anybody folds.
            this.stage = Stage::Over;
            return Poll::Ready(TaskEnd { task, result });
        }
        let Some(timeout) = this.timeout else {
            return Poll::Pending;
        };
        let deadline = this.deadline.get_or_insert_with(|| Box::pin(sleep(timeout)));
        std::task::ready!(deadline.as_mut().poll(context));
        this.stage = Stage::Over;
        Poll::Ready(TaskEnd { task, result: Err(TimedOut(timeout).into()) })
    }
}

/// The tasks of a superstep that are not over. A task alone runs inside the run's own future; several are spawned.
pub(crate) struct Tasks<S: State> {
    waiting: VecDeque<Task>,
    running: Vec<Task>,
    inline: Option<RunTask<S>>,
    spawned: JoinSet<TaskEnd<S>>,
    limit: usize,
}

impl<S: State> Tasks<S> {
    /// At most `limit` tasks at a time.
    pub(crate) fn new(limit: usize) -> Self {
        Self { waiting: VecDeque::new(), running: Vec::new(), inline: None, spawned: JoinSet::new(), limit }
    }

    pub(crate) fn push(&mut self, task: Task) {
        self.waiting.push_back(task);
    }

    /// Begins as many waiting tasks as may run.
    pub(crate) fn start(&mut self, run: impl Fn(Task) -> RunTask<S>) {
        if self.running.is_empty() && self.waiting.len() == 1 {
            let task = self.waiting.pop_front().expect("there is one");
            self.running.push(task);
            self.inline = Some(run(task));
            return;
        }
        while self.running.len() < self.limit
            && let Some(task) = self.waiting.pop_front()
        {
            self.running.push(task);
            self.spawned.spawn(run(task));
        }
    }

    /// The next task that is over. Cancel-safe.
    pub(crate) async fn next(&mut self) -> TaskEnd<S> {
        let end = match &mut self.inline {
            Some(task) => task.await,
            None => {
                let end = self.spawned.join_next().await.expect("the engine waits only while tasks run");
                end.expect("panics are caught, and only `stop` aborts")
            }
        };
        self.inline = None;
        self.running.retain(|task| task.id != end.task.id);
        end
    }

    /// Drops every task and returns those that were not over.
    pub(crate) async fn stop(&mut self) -> Vec<Task> {
        self.inline = None;
        self.spawned.shutdown().await;
        let mut dropped = std::mem::take(&mut self.running);
        dropped.extend(self.waiting.drain(..));
        dropped
    }
}
