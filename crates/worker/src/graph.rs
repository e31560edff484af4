//! A compiled graph of any state, as a worker runs it.
//!
//! Start at [`AnyGraph`].

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;
use superstep_graph::{
    CompiledGraph, RunError, RunOptions, State, Status, Thread, ThreadId, checkpoint::CheckpointError,
    error::chain,
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

/// The beginning of the failure of a job whose thread was refused before any delivery ran.
pub(crate) const REFUSED: &str = "the thread may not run: ";

/// The beginning of the failure of a job whose thread was refused after a delivery that may have run.
pub(crate) const REFUSED_LATER: &str = "the thread may not run any more: ";

/// Decides whether a thread may run; the error is the reason why not.
pub(crate) type Admit = Arc<dyn Fn(ThreadId) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// A graph, and the conversion of a job's input.
pub(crate) struct Typed<S: State> {
    graph: CompiledGraph<S>,
    read: ReadInput<S>,
}

type ReadInput<S> = Arc<dyn Fn(Value) -> Result<<S as State>::Update, String> + Send + Sync>;

impl<S: State> Typed<S> {
    /// Reads inputs as updates of the state.
    pub(crate) fn of_updates(graph: CompiledGraph<S>) -> Self {
        let initial = graph.clone();
        let read = move |input: Value| {
            let json = serde_json::to_vec(&input).map_err(|error| error.to_string())?;
            initial.initial().read_update(&json).map_err(|error| without_value(&error.to_string()))
        };
        Self { graph, read: Arc::new(read) }
    }

    /// Reads inputs as `I`, and converts them.
    pub(crate) fn of_inputs<I: DeserializeOwned>(
        graph: CompiledGraph<S>,
        convert: impl Fn(I) -> S::Update + Send + Sync + 'static,
    ) -> Self {
        let read = move |input: Value| {
            serde_json::from_value(input).map(&convert).map_err(|error| without_value(&error.to_string()))
        };
        Self { graph, read: Arc::new(read) }
    }
}

/// Returns the text of an error of serde without the value of the input, which is for no log.
fn without_value(error: &str) -> String {
    for begin in ["invalid type: ", "invalid value: ", "unknown variant "] {
        let Some((before, rest)) = error.split_once(begin) else { continue };
        // The value may have the words too, but what was expected comes last.
        let (found, expected) = rest.rsplit_once(", expected ").unwrap_or((rest, "another one"));
        let kind = found.split(['`', '"']).next().unwrap_or_default();
        return format!("{before}{}, expected {expected}", format!("{begin}{kind}").trim_end());
    }
    error.to_owned()
}

impl<S: State> AnyGraph for Typed<S> {
    fn work(
        &self,
        options: RunOptions,
        payload: Payload,
        is_first: bool,
    ) -> BoxFuture<'static, Result<Status, Failure>> {
        let (graph, read) = (self.graph.clone(), self.read.clone());
        Box::pin(async move {
            let Payload { thread, id, work, .. } = payload;
            let thread = graph.configured(options.thread(thread)).retry_failed_end(true);
            let outcome = match work {
                Work::Run { input } => {
                    let input = read(input).map_err(|reason| {
                        Failure::Failed(format!("the input does not fit the state: {reason}"))
                    })?;
                    match thread.input_id(id).run(input).await {
                        Err(RunError::Unfinished { .. }) if is_waiting(&thread).await? => {
                            return Err(Failure::Waiting);
                        }
                        ended => ended?,
                    }
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
            match graph.failed_end(&outcome.state).filter(|_| outcome.status == Status::Completed) {
                Some(reason) => Err(Failure::Failed(reason)),
                None => Ok(outcome.status),
            }
        })
    }
}

/// Returns whether a task of the thread waits for an answer.
async fn is_waiting<S: State>(thread: &Thread<S>) -> Result<bool, RunError> {
    Ok(thread.state().await?.tasks.iter().any(|task| !task.interrupts.is_empty()))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    enum Size {
        Small,
    }

    #[test]
    fn an_error_of_an_input_has_no_value() {
        fn error<T: DeserializeOwned + std::fmt::Debug>(input: Value) -> String {
            without_value(&serde_json::from_value::<T>(input).unwrap_err().to_string())
        }
        assert_eq!(error::<i64>(json!("a, expected b")), "invalid type: string, expected i64");
        assert_eq!(error::<u8>(json!(4711)), "invalid value: integer, expected u8");
        assert_eq!(error::<String>(json!({"a": 1})), "invalid type: map, expected a string");
        assert_eq!(error::<Size>(json!("secret")), "unknown variant, expected `Small`");
        assert!(matches!(serde_json::from_value(json!("Small")), Ok(Size::Small)));
        let text = serde_json::from_slice::<i64>(b"\"secret\"").unwrap_err().to_string();
        assert_eq!(without_value(&text), "invalid type: string, expected i64 at line 1 column 8");
        assert_eq!(without_value("unknown field `a`, expected `b`"), "unknown field `a`, expected `b`");
    }
}
