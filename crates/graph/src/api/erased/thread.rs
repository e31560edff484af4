//! Threads of graphs of any state.
//!
//! Start at [`JsonThread`].

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{Stream, StreamExt as _, future::BoxFuture};
use serde_json::Value;
use superstep_checkpoint::Retention;
use superstep_engine::Drawing;

use crate::{
    CheckpointId, Checkpointer, Command, CompiledGraph, History, RunError, RunStream, State, Streaming,
    Thread, ThreadId,
    api::{
        erased::{
            input::{InputError, ReadInput, read_update},
            outcome::{JsonOutcome, JsonSnapshot},
        },
        replay::{Replay, ReplayError, Replayed},
    },
    run::{
        begin::RunInput, external_update::AsNode, folded_states::StateMismatch,
        subgraph_lookup::SubgraphValues,
    },
};

/// An operation on a thread, which begins when it is polled.
pub type Running<'a, T> = BoxFuture<'a, Result<T, RunError>>;

/// One thread of a graph, with the options of its runs; a [`Thread`] whose type of state only its methods know.
///
/// JSON that does not fit is an error before anything runs or is stored.
pub trait JsonThread: Send + Sync {
    /// Returns a run, to be polled by the caller.
    ///
    /// # Errors
    /// The JSON does not fit. Those of the run are those of [`Thread::run`].
    fn run(&self, run: JsonRun) -> Result<Running<'static, JsonOutcome>, InputError>;

    /// Returns a run as a stream of events.
    ///
    /// # Errors
    /// The JSON does not fit.
    fn stream(&self, run: JsonRun, streaming: Streaming) -> Result<Box<dyn JsonStream>, InputError>;

    /// Returns the state: see [`Thread::state`].
    fn state(&self) -> Running<'_, JsonSnapshot>;

    /// Returns the state of a subgraph at the head of the thread; `None` if nothing of it is stored: see [`Thread::subgraph`].
    fn subgraph(&self, path: Vec<String>) -> Running<'_, Option<SubgraphValues>>;

    /// Returns the checkpoints that match with their states, newest first: see
    /// [`ThreadHistory::states`](crate::thread::ThreadHistory::states).
    fn history(&self, range: History) -> Running<'_, Vec<JsonSnapshot>>;

    /// Stores an update in the name of a node: see [`Thread::update_as`].
    ///
    /// # Errors
    /// The JSON does not fit.
    fn update(&self, node: AsNode, update: &Value) -> Result<Running<'_, CheckpointId>, InputError>;

    /// Makes a copy of a checkpoint, or of the head, the new head: see [`Thread::fork`].
    fn fork(&self, at: Option<CheckpointId>) -> Running<'_, CheckpointId>;

    /// Copies the thread to another name: see [`Thread::copy_to`].
    fn copy_to(&self, thread: ThreadId) -> Running<'_, ()>;

    /// Deletes older checkpoints, and returns their number: see [`Thread::prune`].
    fn prune(&self, keep: Retention) -> Running<'_, usize>;

    /// Returns the graph with the path of the thread: see [`Thread::drawing`].
    fn drawing(&self) -> Running<'_, Drawing>;

    /// Rejects a thread of another graph, without reading its state.
    fn check_owner(&self) -> Running<'_, ()>;

    /// Checks that the graph can resume the thread: see [`Thread::check`].
    fn check(&self) -> Running<'_, ()>;

    /// Returns the first checkpoint whose state is not the stored one: see [`Thread::check_states`].
    fn check_states(&self) -> Running<'_, Option<StateMismatch>>;

    /// Replays a part of the thread, with the context of the options: see [`Thread::replay`].
    fn replay(&self, range: ReplayRange) -> BoxFuture<'static, Result<Replayed, ReplayError>>;

    /// Records the thread again in another store: see [`Replay::rerecord`].
    fn rerecord(&self, target: Arc<dyn Checkpointer>) -> BoxFuture<'static, Result<(), ReplayError>>;
}

/// A run of a thread. Answers and the id of an input are [options](crate::RunOptions).
#[derive(Clone, Debug, PartialEq)]
pub enum JsonRun {
    /// A run on an input: see [`Thread::run`].
    Input(Value),
    /// A run of the pending tasks: see [`Thread::resume`].
    Resume,
    /// A run of nodes beside the pending tasks: see [`Thread::resume_with`].
    Command {
        /// The update, if any.
        update: Option<Value>,
        /// The names of the nodes.
        goto: Vec<String>,
    },
}

/// The events of a run in their JSON form, and at its end the outcome; a [`RunStream`] of a graph of any state.
pub trait JsonStream: Stream<Item = serde_json::Result<Value>> + Send + Unpin {
    /// Runs to the end, dropping unread events, and returns the outcome: see [`RunStream::outcome`].
    fn outcome(self: Box<Self>) -> Running<'static, JsonOutcome>;
}

/// The part of a thread to replay, and its live nodes: see [`Replay`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayRange {
    /// The first checkpoint; the beginning for `None`.
    pub from: Option<CheckpointId>,
    /// The last checkpoint; the head for `None`.
    pub to: Option<CheckpointId>,
    /// The names of the live nodes.
    pub live: Vec<String>,
}

pub(super) struct TypedThread<S: State> {
    pub(super) thread: Thread<S>,
    pub(super) convert: Option<ReadInput<S>>,
}

impl<S: State> TypedThread<S> {
    fn read(&self, json: &Value) -> Result<S::Update, InputError> {
        read_update(self.thread.graph.initial(), self.convert.as_ref(), json)
    }

    fn input(&self, run: JsonRun) -> Result<RunInput<S>, InputError> {
        Ok(match run {
            JsonRun::Input(input) => RunInput::Input(self.read(&input)?),
            JsonRun::Resume => RunInput::Nothing,
            JsonRun::Command { update, goto } => {
                let update = update.map(|update| self.read(&update)).transpose()?;
                let command = Command::<S, &str> { update, ..Command::new() };
                RunInput::Command(goto.iter().fold(command, |command, node| command.goto(node)).by_name())
            }
        })
    }

    fn replayed(&self) -> Replay<S> {
        self.thread.replay().context(self.thread.options.get_context().clone())
    }
}

impl<S: State> JsonThread for TypedThread<S> {
    fn run(&self, run: JsonRun) -> Result<Running<'static, JsonOutcome>, InputError> {
        let (graph, run) = (self.thread.graph.clone(), self.thread.drive(self.input(run)?));
        Ok(Box::pin(async move { Ok(JsonOutcome::new(&graph, run.await?)) }))
    }

    fn stream(&self, run: JsonRun, streaming: Streaming) -> Result<Box<dyn JsonStream>, InputError> {
        let run = self.thread.drive_stream(self.input(run)?, streaming);
        Ok(Box::new(TypedStream { graph: self.thread.graph.clone(), run }))
    }

    fn state(&self) -> Running<'_, JsonSnapshot> {
        Box::pin(async { self.thread.state().await.and_then(JsonSnapshot::new) })
    }

    fn subgraph(&self, path: Vec<String>) -> Running<'_, Option<SubgraphValues>> {
        Box::pin(self.thread.subgraph_values(path))
    }

    fn history(&self, range: History) -> Running<'_, Vec<JsonSnapshot>> {
        let states = async move {
            let states = self.thread.history().range(range).states().await?;
            states.into_iter().map(JsonSnapshot::new).collect()
        };
        Box::pin(states)
    }

    fn update(&self, node: AsNode, update: &Value) -> Result<Running<'_, CheckpointId>, InputError> {
        let update = self.read(update)?;
        Ok(Box::pin(self.thread.update_as(node, update)))
    }

    fn fork(&self, at: Option<CheckpointId>) -> Running<'_, CheckpointId> {
        Box::pin(self.thread.fork(at))
    }

    fn copy_to(&self, thread: ThreadId) -> Running<'_, ()> {
        Box::pin(async { self.thread.copy_to(thread).await.map(drop) })
    }

    fn prune(&self, keep: Retention) -> Running<'_, usize> {
        Box::pin(self.thread.prune(keep))
    }

    fn drawing(&self) -> Running<'_, Drawing> {
        Box::pin(self.thread.drawing())
    }

    fn check_owner(&self) -> Running<'_, ()> {
        Box::pin(async { self.thread.history().limit(1).checkpoints().await.map(drop) })
    }

    fn check(&self) -> Running<'_, ()> {
        Box::pin(self.thread.check())
    }

    fn check_states(&self) -> Running<'_, Option<StateMismatch>> {
        Box::pin(self.thread.check_states())
    }

    fn replay(&self, range: ReplayRange) -> BoxFuture<'static, Result<Replayed, ReplayError>> {
        let ReplayRange { from, to, live } = range;
        let mut replay = self.replayed().live(live);
        (replay.from, replay.to) = (from, to);
        Box::pin(replay.run())
    }

    fn rerecord(&self, target: Arc<dyn Checkpointer>) -> BoxFuture<'static, Result<(), ReplayError>> {
        Box::pin(self.replayed().rerecord(target))
    }
}

struct TypedStream<S: State> {
    graph: CompiledGraph<S>,
    run: RunStream<S>,
}

impl<S: State> Stream for TypedStream<S> {
    type Item = serde_json::Result<Value>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.run.poll_next_unpin(context).map(|event| event.map(serde_json::to_value))
    }
}

impl<S: State> JsonStream for TypedStream<S> {
    fn outcome(self: Box<Self>) -> Running<'static, JsonOutcome> {
        let Self { graph, run } = *self;
        Box::pin(async move { Ok(JsonOutcome::new(&graph, run.outcome().await?)) })
    }
}
