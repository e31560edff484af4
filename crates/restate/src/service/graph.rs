//! The work of runs on graphs of any state.
//!
//! Start at [`work`].

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use superstep_checkpoint::{CheckpointId, Checkpointer, History, ThreadId};
use superstep_graph::{
    RunError, RunOptions, Status,
    erased::{JsonGraph, JsonOutcome, JsonRun, Running},
    error::chain,
    thread::{AsNode, Drain},
};
use tokio_util::sync::CancellationToken;

use crate::journaled::End;

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

/// Does some work on a thread. `None` if it was drained.
pub(crate) async fn work(
    graph: &dyn JsonGraph,
    options: RunOptions,
    threads: Arc<dyn Checkpointer>,
    thread: ThreadId,
    attempt: Attempt,
) -> Option<End> {
    let ended = try_work(graph, options, threads, thread, attempt).await;
    ended.unwrap_or_else(|error| Some(Err(error)))
}

/// The error is that of the run, with its causes.
async fn try_work(
    graph: &dyn JsonGraph,
    options: RunOptions,
    threads: Arc<dyn Checkpointer>,
    thread: ThreadId,
    attempt: Attempt,
) -> Result<Option<End>, String> {
    let Attempt { work, has_begun, is_stored, stop } = attempt;
    let graph = graph.with_checkpointer(threads.clone());
    let options = options.thread(thread.clone()).cancel(stop.cancel).drain(stop.drain);
    let handle = graph.thread(options.clone());
    let run = match work {
        Work::Run { input, id } => {
            let options = id.into_iter().fold(options, |options, id| options.input_id(id));
            graph.thread(options).run(JsonRun::Input(input))
        }
        Work::Resume {} => handle.run(JsonRun::Resume),
        // An earlier attempt may have stored the answer.
        Work::Answer { interrupt, value } => {
            let state = handle.state().await.map_err(|error| chain(&error))?;
            if has_begun && !state.interrupts().any(|waiting| waiting.id == interrupt) {
                handle.run(JsonRun::Resume)
            } else {
                graph.thread(options.answer(interrupt, value)).run(JsonRun::Resume)
            }
        }
        Work::Update { .. } | Work::Fork { .. } if is_stored => {
            let newest = threads.history(&thread, History { limit: Some(1), ..History::default() }).await;
            let head = newest.map_err(|error| chain(&error))?.first().map(|head| head.id);
            return Ok(Some(Ok(json!({"checkpoint": head}))));
        }
        Work::Update { update, as_node } => {
            let node = as_node.map_or(AsNode::LastRun, AsNode::from);
            let update = handle.update(node, &update).map_err(|error| error.to_string())?;
            return stored(update).await;
        }
        Work::Fork { at } => return stored(handle.fork(at)).await,
    };
    let outcome = run.map_err(|error| error.to_string())?.await.map_err(|error| chain(&error))?;
    Ok(if outcome.status == Status::Drained { None } else { Some(ended(&outcome)) })
}

async fn stored(checkpoint: Running<'_, CheckpointId>) -> Result<Option<End>, String> {
    let checkpoint = checkpoint.await.map_err(|error| chain(&error))?;
    Ok(Some(Ok(json!({"checkpoint": checkpoint}))))
}

/// Returns an outcome as JSON. A completed state that is a failure is the error of the run.
fn ended(outcome: &JsonOutcome) -> End {
    if let Some(reason) = &outcome.failed_end {
        return Err(reason.clone());
    }
    let values = outcome.state.values().map_err(|error: RunError| chain(&error))?;
    Ok(json!({
        "status": outcome.status.as_str(),
        "checkpoint": outcome.checkpoint,
        "values": values,
        "interrupts": outcome.interrupts,
    }))
}
