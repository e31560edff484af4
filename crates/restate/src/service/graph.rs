//! A compiled graph of any state, as the service runs it.
//!
//! Start at [`Runs`].

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use superstep_checkpoint::{CheckpointId, Checkpointer, ThreadId};
use superstep_graph::{
    CompiledGraph, Outcome, RunError, State, Status, Thread,
    error::chain,
    thread::{AsNode, Drain},
};
use tokio_util::sync::CancellationToken;

use crate::journaled::End;

/// A graph whose type of state only its methods know.
pub(crate) trait Runs: Send + Sync {
    /// Does some work on a thread. `None` if it was drained.
    fn work(
        &self,
        threads: Arc<dyn Checkpointer>,
        thread: ThreadId,
        attempt: Attempt,
    ) -> BoxFuture<'static, Option<End>>;
}

/// An attempt at some work.
pub(crate) struct Attempt {
    pub(crate) work: Work,
    /// An earlier attempt, or this one, has sent a request.
    pub(crate) has_begun: bool,
    /// An earlier attempt has stored a checkpoint.
    pub(crate) is_stored: bool,
    pub(crate) stop: Stop,
}

/// The work of one run.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    Run { input: Value, id: Option<String> },
    Resume {},
    Answer { interrupt: String, value: Value },
    Update { update: Value, as_node: Option<String> },
    Fork { at: Option<CheckpointId> },
}

impl Work {
    /// Sets the id of an input that has none.
    pub(crate) fn of_input(mut self, default: &str) -> Self {
        if let Self::Run { id, .. } = &mut self {
            id.get_or_insert_with(|| default.to_owned());
        }
        self
    }
}

/// The requests to end a run.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    pub(crate) cancel: CancellationToken,
    pub(crate) drain: Drain,
}

type ReadInput<S> = Arc<dyn Fn(Value) -> Result<<S as State>::Update, String> + Send + Sync>;

/// A graph, and the conversion of an input.
pub(crate) struct Typed<S: State> {
    graph: CompiledGraph<S>,
    read_input: ReadInput<S>,
}

impl<S: State> Typed<S> {
    /// Reads inputs as updates of the state.
    pub(crate) fn of_updates(graph: CompiledGraph<S>) -> Self {
        let initial = graph.clone();
        Self { graph, read_input: Arc::new(move |input| read_update(&initial, &input)) }
    }

    /// Reads inputs as `I`, and converts them.
    pub(crate) fn of_inputs<I: DeserializeOwned>(
        graph: CompiledGraph<S>,
        convert: impl Fn(I) -> S::Update + Send + Sync + 'static,
    ) -> Self {
        let read = move |input: Value| {
            serde_json::from_value(input).map(&convert).map_err(|error| error.to_string())
        };
        Self { graph, read_input: Arc::new(read) }
    }
}

fn read_update<S: State>(graph: &CompiledGraph<S>, update: &Value) -> Result<S::Update, String> {
    graph.initial().read_update(update.to_string().as_bytes()).map_err(|error| error.to_string())
}

impl<S: State> Runs for Typed<S> {
    fn work(
        &self,
        threads: Arc<dyn Checkpointer>,
        thread: ThreadId,
        attempt: Attempt,
    ) -> BoxFuture<'static, Option<End>> {
        let graph = self.graph.clone().with_checkpointer(threads);
        let read_input = self.read_input.clone();
        Box::pin(async move {
            let Attempt { work, has_begun, is_stored, stop } = attempt;
            let thread = graph.thread(thread).cancel(stop.cancel).drain(stop.drain);
            let unfit = |reason: String| Some(Err(format!("the input does not fit the state: {reason}")));
            let outcome = match work {
                Work::Run { input, id } => {
                    let input = match read_input(input) {
                        Ok(input) => input,
                        Err(reason) => return unfit(reason),
                    };
                    match id {
                        Some(id) => thread.input_id(id).run(input).await,
                        None => thread.run(input).await,
                    }
                }
                Work::Resume {} => thread.resume().await,
                // An earlier attempt may have stored the answer.
                Work::Answer { interrupt, value } => match is_waiting(&thread, &interrupt).await {
                    Ok(false) if has_begun => thread.resume().await,
                    Ok(_) => thread.answer(interrupt, value).resume().await,
                    Err(error) => Err(error),
                },
                Work::Update { .. } | Work::Fork { .. } if is_stored => return Some(head(&thread).await),
                Work::Update { update, as_node } => {
                    let update = match read_update(&graph, &update) {
                        Ok(update) => update,
                        Err(reason) => return unfit(reason),
                    };
                    let node = as_node.map_or(AsNode::LastRun, AsNode::from);
                    return Some(stored(thread.update_as(node, update).await));
                }
                Work::Fork { at } => return Some(stored(thread.fork(at).await)),
            };
            match outcome {
                Ok(outcome) if outcome.status == Status::Drained => None,
                Ok(outcome) => Some(ended(&outcome)),
                Err(error) => Some(Err(chain(&error))),
            }
        })
    }
}

/// Returns whether a task of the thread waits for the answer to an interrupt.
async fn is_waiting<S: State>(thread: &Thread<S>, interrupt: &str) -> Result<bool, RunError> {
    let tasks = thread.state().await?.tasks;
    Ok(tasks.iter().flat_map(|task| &task.interrupts).any(|waiting| waiting.id == interrupt))
}

/// Returns the head of a thread, which an earlier attempt stored.
async fn head<S: State>(thread: &Thread<S>) -> End {
    let found = thread.history().limit(1).checkpoints().await.map_err(|error| chain(&error))?;
    Ok(json!({"checkpoint": found.first().map(|head| head.id)}))
}

fn stored(checkpoint: Result<CheckpointId, RunError>) -> End {
    checkpoint.map(|checkpoint| json!({"checkpoint": checkpoint})).map_err(|error| chain(&error))
}

/// Returns an outcome as JSON.
fn ended<S: State>(outcome: &Outcome<S>) -> End {
    let channels = outcome.state.channels().iter().enumerate().filter(|(_, channel)| !channel.untracked);
    let value = |(position, channel): (usize, &superstep_graph::state::Channel)| {
        let json = serde_json::from_slice(&outcome.state.encode(position)?)?;
        Ok((channel.name.to_string(), json))
    };
    let values: Result<Map<String, Value>, serde_json::Error> = channels.map(value).collect();
    let values = values.map_err(|error| format!("the state is not JSON: {error}"))?;
    Ok(json!({
        "status": outcome.status.as_str(),
        "checkpoint": outcome.checkpoint,
        "values": values,
        "interrupts": outcome.interrupts,
    }))
}
