//! Running the tasks of a superstep.

use std::{
    collections::VecDeque,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::future::BoxFuture;
use superstep_engine::{Task, TaskId};
use tokio::{
    task::{AbortHandle, JoinSet},
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
            ready!(wait.as_mut().poll(context));
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
        ready!(deadline.as_mut().poll(context));
        this.stage = Stage::Over;
        Poll::Ready(TaskEnd { task, result: Err(TimedOut(timeout).into()) })
    }
}

/// The tasks of a superstep that are not over. A task alone runs inside the run's own future; several are spawned.
pub(crate) struct Tasks<S: State> {
    waiting: VecDeque<Task>,
    /// Each with its handle, if it is spawned.
    running: VecDeque<(Task, Option<AbortHandle>)>,
    dropped: Vec<Task>,
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
        if self.running.is_empty() && self.waiting.len() == 1 {
            let task = self.waiting.pop_front().expect("there is one");
            self.running.push_back((task, None));
            self.inline = Some(run(task));
            return;
        }
        while self.running.len() < self.limit
            && let Some(task) = self.waiting.pop_front()
        {
            let spawned = self.spawned.spawn(run(task));
            self.running.push_back((task, Some(spawned)));
        }
    }

    /// The next task that is over.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<TaskEnd<S>> {
        loop {
            let end = match &mut self.inline {
                Some(task) => ready!(Pin::new(task).poll(context)),
                None => {
                    let joined = ready!(self.spawned.poll_join_next(context));
                    match joined.expect("the engine waits only while tasks run") {
                        Ok(end) => end,
                        Err(error) if error.is_cancelled() => continue,
                        Err(_) => unreachable!("panics of nodes are caught"),
                    }
                }
            };
            self.inline = None;
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
            match spawned {
                Some(spawned) => spawned.abort(),
                None => self.inline = None,
            }
            self.dropped.push(task);
        }
        if let Some(task) = self.waiting.iter().position(|task| task.id == id) {
            self.dropped.extend(self.waiting.remove(task));
        }
    }

    /// Drops every task and returns those that were not over.
    pub(crate) async fn stop(&mut self) -> Vec<Task> {
        self.inline = None;
        self.spawned.shutdown().await;
        let mut dropped = std::mem::take(&mut self.dropped);
        dropped.extend(self.running.drain(..).map(|(task, _)| task));
        dropped.extend(self.waiting.drain(..));
        dropped
    }
}
