//! A compiled graph of any state, as a worker runs it.
//!
//! Start at [`AnyGraph`].

use futures::future::BoxFuture;
use superstep_graph::{
    CompiledGraph, RunError, RunOptions, State, Status, checkpoint::CheckpointError, error::chain,
};

use crate::payload::{Payload, Work};

/// A graph whose type of state only its methods know.
pub(crate) trait AnyGraph: Send + Sync {
    /// Does the work of a job. `is_first` is `false` if an earlier delivery of the job may have begun.
    fn work(
        &self,
        options: RunOptions,
        payload: Payload,
        is_first: bool,
    ) -> BoxFuture<'static, Result<Status, Failure>>;
}

/// The beginning of the failure of an answer that no run has accepted.
pub(crate) const UNKNOWN_INTERRUPT: &str = "no interrupt has the id";

/// The reason why a job is not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Another run has the thread, or has taken it over.
    Elsewhere,
    /// The error, with its causes.
    Failed(String),
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Checkpoint(CheckpointError::Busy { .. } | CheckpointError::LeaseLost { .. }) => {
                Self::Elsewhere
            }
            error => Self::Failed(chain(&error)),
        }
    }
}

impl<S: State> AnyGraph for CompiledGraph<S> {
    fn work(
        &self,
        options: RunOptions,
        payload: Payload,
        is_first: bool,
    ) -> BoxFuture<'static, Result<Status, Failure>> {
        let graph = self.clone();
        Box::pin(async move {
            let Payload { thread, id, work, .. } = payload;
            let thread = graph.configured(options.thread(thread));
            let outcome = match work {
                Work::Run { input } => {
                    let unfit = |reason: String| {
                        Failure::Failed(format!("the input does not fit the state: {reason}"))
                    };
                    let json = serde_json::to_vec(&input).map_err(|error| unfit(error.to_string()))?;
                    let input =
                        graph.initial().read_update(&json).map_err(|error| unfit(error.to_string()))?;
                    thread.input_id(id).run(input).await?
                }
                Work::Resume {} => thread.resume().await?,
                Work::Answer { interrupt, value } => {
                    // By its id only: the id of an interrupt is never that of a later one, as its key may be.
                    let tasks = thread.state().await?.tasks;
                    let is_waiting =
                        tasks.iter().flat_map(|task| &task.interrupts).any(|waiting| waiting.id == interrupt);
                    match (is_waiting, is_first) {
                        (true, _) => thread.answer(interrupt, value).resume().await?,
                        (false, true) => {
                            return Err(Failure::Failed(format!("{UNKNOWN_INTERRUPT} `{interrupt}`")));
                        }
                        // An earlier delivery has stored the answer.
                        (false, false) => thread.resume().await?,
                    }
                }
            };
            Ok(outcome.status)
        })
    }
}
