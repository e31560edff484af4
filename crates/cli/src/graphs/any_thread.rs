//! A thread of a graph of any state, and its runs.
//!
//! Start at [`AnyThread`].

use std::sync::Arc;

use futures::{StreamExt, future::BoxFuture};
use serde_json::{Map, Value};
use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, Interrupt, Outcome, RunError, RunOptions, RunStream, State,
    Status, StreamMode, Streaming,
    checkpoint::{CheckpointMeta, Retention},
    drawing::Drawing,
    node::NodeName,
    replay::{ReplayError, Replayed},
    thread::{AsNode, StateMismatch, StateSnapshot, TaskSnapshot},
};

use crate::{
    graphs::state_json::{read_update, values},
    output::exit::Failure,
};

/// One thread of a graph, with the options of its runs.
pub(crate) trait AnyThread: Send + Sync {
    /// Begins a run on an input.
    ///
    /// # Errors
    /// The input does not fit the state.
    fn run(&self, input: &Value) -> Result<Box<dyn AnyRun>, Failure>;

    /// Begins a run of the pending tasks.
    fn resume(&self) -> Box<dyn AnyRun>;

    /// Returns the state, at the head or at the checkpoint of the options.
    fn state(&self) -> BoxFuture<'_, Result<AnySnapshot, Failure>>;

    /// Rejects a thread of another graph.
    fn check_owner(&self) -> BoxFuture<'_, Result<(), RunError>>;

    /// Checks that the graph can resume the thread, without running it.
    fn check(&self) -> BoxFuture<'_, Result<(), RunError>>;

    /// Returns the first checkpoint whose state is not the one that was stored with it.
    fn check_states(&self) -> BoxFuture<'_, Result<Option<StateMismatch>, RunError>>;

    /// Stores an update in the name of a node.
    ///
    /// # Errors
    /// The update does not fit the state, or the error of the run.
    fn update(&self, node: AsNode, update: &Value) -> BoxFuture<'_, Result<CheckpointId, Failure>>;

    /// Makes a copy of a checkpoint the head.
    fn fork(&self, at: CheckpointId) -> BoxFuture<'_, Result<CheckpointId, RunError>>;

    fn copy_to(&self, name: &str) -> BoxFuture<'_, Result<(), RunError>>;

    /// Deletes older checkpoints, and returns their number.
    fn prune(&self, keep: Retention) -> BoxFuture<'_, Result<usize, RunError>>;

    fn drawing(&self) -> BoxFuture<'_, Result<Drawing, RunError>>;

    fn replay(&self, range: ReplayRange) -> BoxFuture<'static, Result<Replayed, ReplayError>>;

    /// Records the thread again in another store.
    fn rerecord(&self, target: Arc<dyn Checkpointer>) -> BoxFuture<'static, Result<(), ReplayError>>;
}

/// The part of a thread to replay, and its live nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayRange {
    pub(crate) from: Option<CheckpointId>,
    pub(crate) to: Option<CheckpointId>,
    pub(crate) live: Vec<String>,
}

pub(crate) trait AnyRun: Send {
    /// Returns the next event in its JSON form; `None` at the end.
    fn next_event(&mut self) -> BoxFuture<'_, Option<serde_json::Result<Value>>>;

    fn end(self: Box<Self>) -> BoxFuture<'static, Result<End, RunError>>;
}

/// The end of a run that did not fail.
pub(crate) struct End {
    pub(crate) values: Result<Map<String, Value>, Failure>,
    pub(crate) status: Status,
    pub(crate) checkpoint: Option<CheckpointId>,
    pub(crate) interrupts: Vec<Interrupt>,
}

/// The state of a thread at a checkpoint.
pub(crate) struct AnySnapshot {
    pub(crate) values: Map<String, Value>,
    pub(crate) next: Vec<NodeName>,
    pub(crate) tasks: Vec<AnyTask>,
    /// `None` if the thread does not exist.
    pub(crate) checkpoint: Option<CheckpointMeta>,
}

pub(crate) struct AnyTask {
    pub(crate) node: NodeName,
    pub(crate) is_done: bool,
    pub(crate) error: Option<String>,
    pub(crate) interrupts: Vec<Interrupt>,
}

impl AnySnapshot {
    pub(crate) fn of<S: State>(snapshot: StateSnapshot<S>) -> Result<Self, Failure> {
        let StateSnapshot { values: state, next, tasks, checkpoint, .. } = snapshot;
        let task = |task: TaskSnapshot<S>| {
            let TaskSnapshot { node, result, error, interrupts, .. } = task;
            AnyTask { node, is_done: result.is_some(), error, interrupts }
        };
        let tasks = tasks.into_iter().map(task).collect();
        Ok(Self { values: values(&state)?, next, tasks, checkpoint })
    }

    /// Returns the questions that wait for an answer.
    pub(crate) fn interrupts(&self) -> impl Iterator<Item = &Interrupt> {
        self.tasks.iter().flat_map(|task| &task.interrupts)
    }

    /// Returns whether questions wait for an answer, and no pending task is without one.
    pub(crate) fn only_waits(&self) -> bool {
        let mut pending = self.tasks.iter().filter(|task| !task.is_done);
        self.interrupts().next().is_some() && pending.all(|task| !task.interrupts.is_empty())
    }
}

pub(super) struct OpenThread<S: State> {
    pub(super) graph: CompiledGraph<S>,
    pub(super) options: RunOptions,
}

/// Returns the events that a run reports.
fn streaming() -> Streaming {
    let modes = [StreamMode::Updates, StreamMode::Custom, StreamMode::Messages, StreamMode::Checkpoints];
    Streaming::from(modes).subgraphs()
}

impl<S: State> OpenThread<S> {
    fn thread(&self) -> superstep::Thread<S> {
        self.graph.configured(self.options.clone())
    }
}

impl<S: State> AnyThread for OpenThread<S> {
    fn run(&self, input: &Value) -> Result<Box<dyn AnyRun>, Failure> {
        let input = read_update(self.graph.initial(), "input", input)?;
        Ok(Box::new(self.thread().stream(input, streaming())))
    }

    fn resume(&self) -> Box<dyn AnyRun> {
        Box::new(self.thread().resume_stream(streaming()))
    }

    fn state(&self) -> BoxFuture<'_, Result<AnySnapshot, Failure>> {
        Box::pin(async { AnySnapshot::of(self.thread().state().await?) })
    }

    fn check_owner(&self) -> BoxFuture<'_, Result<(), RunError>> {
        Box::pin(async { self.thread().history().limit(1).checkpoints().await.map(drop) })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), RunError>> {
        Box::pin(async { self.thread().check().await })
    }

    fn check_states(&self) -> BoxFuture<'_, Result<Option<StateMismatch>, RunError>> {
        Box::pin(async { self.thread().check_states().await })
    }

    fn update(&self, node: AsNode, update: &Value) -> BoxFuture<'_, Result<CheckpointId, Failure>> {
        let update = read_update(self.graph.initial(), "update", update);
        Box::pin(async { Ok(self.thread().update_as(node, update?).await?) })
    }

    fn fork(&self, at: CheckpointId) -> BoxFuture<'_, Result<CheckpointId, RunError>> {
        Box::pin(async move { self.thread().fork(at).await })
    }

    fn copy_to(&self, name: &str) -> BoxFuture<'_, Result<(), RunError>> {
        let name = name.to_owned();
        Box::pin(async { self.thread().copy_to(name).await.map(drop) })
    }

    fn prune(&self, keep: Retention) -> BoxFuture<'_, Result<usize, RunError>> {
        Box::pin(async { self.thread().prune(keep).await })
    }

    fn drawing(&self) -> BoxFuture<'_, Result<Drawing, RunError>> {
        Box::pin(async { self.thread().drawing().await })
    }

    fn replay(&self, range: ReplayRange) -> BoxFuture<'static, Result<Replayed, ReplayError>> {
        let ReplayRange { from, to, live } = range;
        let mut replay = self.thread().replay().context(self.options.get_context().clone());
        if let Some(from) = from {
            replay = replay.from(from);
        }
        if let Some(to) = to {
            replay = replay.to(to);
        }
        if !live.is_empty() {
            replay = replay.live(live);
        }
        Box::pin(replay.run())
    }

    fn rerecord(&self, target: Arc<dyn Checkpointer>) -> BoxFuture<'static, Result<(), ReplayError>> {
        let replay = self.thread().replay().context(self.options.get_context().clone());
        Box::pin(replay.rerecord(target))
    }
}

impl<S: State> AnyRun for RunStream<S> {
    fn next_event(&mut self) -> BoxFuture<'_, Option<serde_json::Result<Value>>> {
        Box::pin(async { Some(serde_json::to_value(self.next().await?)) })
    }

    fn end(self: Box<Self>) -> BoxFuture<'static, Result<End, RunError>> {
        Box::pin(async {
            let Outcome { state, status, checkpoint, interrupts, .. } = self.outcome().await?;
            Ok(End { values: values(&state), status, checkpoint, interrupts })
        })
    }
}
