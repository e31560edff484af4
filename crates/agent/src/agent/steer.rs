//! Steering: user messages to a running turn.
//!
//! Start at [`steer`].

use superstep_graph::{RunError, State, Thread, ThreadId};

// The message would wait for a turn that has not been started. A turn that ends at that moment may still leave one behind; the next turn
// reads it first.
/// Sends a message to the agent that runs on the thread. It reads the message before its next model
/// call, as a user message after the results of the current round.
///
/// The thread may run in another process. Once this returns, the message is stored: a crash, a cancelled turn
/// or an unavailable model does not lose it. Several are read in the order in which they were accepted. A
/// message that is too late for the turn is read at the beginning of the next one.
///
/// Returns the message's number on its thread; its id in the conversation is `steered.` and that number. See also
/// [`AgentThread::steer`](crate::AgentThread::steer).
///
/// # Errors
/// [`SteerError::NotRunning`] if the thread has no pending tasks: start a turn with the message
/// instead.
pub async fn steer<S: State>(thread: &Thread<S>, text: &str) -> Result<u64, SteerError> {
    if let Some(id) = thread.id() {
        let head = thread.history().limit(1).checkpoints().await?;
        if head.first().is_some_and(|head| head.control.is_finished()) {
            return Err(SteerError::NotRunning { thread: id.clone() });
        }
    }
    Ok(thread.post(text).await?)
}

/// The reason why a message was not sent.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// The thread has no pending tasks.
    #[error("thread `{thread}` has no turn in progress; send the text as a message, which begins a turn")]
    NotRunning {
        /// The thread.
        thread: ThreadId,
    },
    /// The thread does not exist or cannot be read.
    #[error(transparent)]
    Run(#[from] RunError),
}

superstep_graph::__private::debug_by_chain!(SteerError);
