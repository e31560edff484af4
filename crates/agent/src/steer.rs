//! What users say while a turn runs.
//!
//! Start at [`steer`].

use superstep_graph::{CompiledGraph, History, RunConfig, RunError, State, ThreadId};

/// Says something to the agent that runs on `config`'s thread: it reads it before its next model call, as a message of the user
/// behind the results of the round it is in.
///
/// Whoever runs the thread may be another process. Once this returns, the message is stored: a crash, a cancelled turn or a model
/// that cannot be asked does not lose it. Several are read in the order in which they were accepted. One that comes too late for
/// the turn is read at the beginning of the next one.
///
/// Returns the message's number on its thread; its id in the conversation is `steered.` and that number. See also
/// [`Agent::steer`](crate::Agent::steer).
///
/// # Errors
/// [`SteerError::NotRunning`] if the thread has nothing to run: say it as a message then, which begins a turn.
pub async fn steer<S: State>(
    graph: &CompiledGraph<S>,
    text: &str,
    config: RunConfig,
) -> Result<u64, SteerError> {
    if let Some(thread) = &config.thread {
        let newest = History { limit: Some(1), ..History::default() };
        let head = graph.get_history(thread, newest).await?;
        if head.first().is_some_and(|head| head.control.is_finished()) {
            return Err(SteerError::NotRunning { thread: thread.clone() });
        }
    }
    Ok(graph.post(text, config).await?)
}

/// Why nothing was said to an agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// The thread has nothing to run.
    #[error("thread `{thread}` has nothing to run; say it as a message, which begins a turn")]
    NotRunning {
        /// The thread.
        thread: ThreadId,
    },
    /// There is no such thread, or it cannot be reached.
    #[error(transparent)]
    Run(#[from] RunError),
}
