//! The work of jobs on graphs of any state.
//!
//! Start at [`work`].

use std::sync::Arc;

use futures::future::BoxFuture;
use superstep_graph::{
    RunError, RunOptions, Status, ThreadId,
    checkpoint::CheckpointError,
    erased::{InputError, JsonGraph, JsonRun},
    error::chain,
};

use crate::payload::{Payload, Work};

/// Does the work of a job. `is_first` is `false` if an earlier delivery of the job may have begun.
pub(crate) async fn work(
    graph: &dyn JsonGraph,
    options: RunOptions,
    payload: Payload,
    is_first: bool,
) -> Result<Status, Failure> {
    let Payload { thread, id, work, .. } = payload;
    let options = options.thread(thread).retry_failed_end(true);
    let thread = graph.thread(options.clone());
    let outcome = match work {
        Work::Run { input } => {
            let run = graph.thread(options.input_id(id)).run(JsonRun::Input(input))?;
            match run.await {
                Err(RunError::Unfinished { .. }) if thread.state().await?.interrupts().next().is_some() => {
                    return Err(Failure::Waiting);
                }
                ended => ended?,
            }
        }
        Work::Resume {} => thread.run(JsonRun::Resume)?.await?,
        Work::Answer { interrupt, value } => {
            // By its id only: the id of an interrupt is never that of a later one, as its key may be.
            let is_waiting = thread.state().await?.interrupts().any(|waiting| waiting.id == interrupt);
            let answered = match (is_waiting, is_first) {
                (true, _) => graph.thread(options.answer(interrupt, value)),
                (false, true) => return Err(Failure::Failed(format!("{UNKNOWN_INTERRUPT} `{interrupt}`"))),
                // An earlier delivery has stored the answer.
                (false, false) => thread,
            };
            answered.run(JsonRun::Resume)?.await?
        }
    };
    outcome.failed_end.map_or(Ok(outcome.status), |reason| Err(Failure::Failed(reason)))
}

/// The beginning of the failure of an answer that no run has accepted.
pub(crate) const UNKNOWN_INTERRUPT: &str = "no interrupt has the id";

/// The reason why a job is not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Another run has the thread, so that this one did not begin.
    Busy,
    /// Another run has taken the thread over from this one.
    TakenOver,
    /// The thread waits for an answer, so that its next input has to wait as well.
    Waiting,
    /// The error, with its causes.
    Failed(String),
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Checkpoint(CheckpointError::Busy { .. }) => Self::Busy,
            RunError::Checkpoint(CheckpointError::LeaseLost { .. }) => Self::TakenOver,
            error => Self::Failed(chain(&error)),
        }
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The beginning of the failure of a job whose thread was refused before any delivery ran.
pub(crate) const REFUSED: &str = "the thread may not run: ";

/// The beginning of the failure of a job whose thread was refused after a delivery that may have run.
pub(crate) const REFUSED_LATER: &str = "the thread may not run any more: ";

/// Decides whether a thread may run; the error is the reason why not.
pub(crate) type Admit = Arc<dyn Fn(ThreadId) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;
