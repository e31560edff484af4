//! The events of a turn, and then its reply.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{Stream, StreamExt};
use superstep_graph::{RunError, RunStream};

use crate::{AgentEvent, AgentState, HasAgent, Reply};

/// The stream of a turn's [`AgentEvent`]s, which leads to its [`reply`](Self::reply).
///
/// The turn starts when the stream is polled first, and is cancelled if the stream is dropped before the reply.
/// [`AgentThread::stream`](crate::AgentThread::stream) has the other events, too: states, updates, those of sub-agents.
///
/// ```no_run
/// # use superstep_agent::{Agent, AgentEvent};
/// # async fn example(agent: Agent) -> Result<(), Box<dyn std::error::Error>> {
/// use futures::StreamExt;
///
/// let mut turn = agent.thread("ada").ask_stream("What is 2 + 3?");
/// while let Some(event) = turn.next().await {
///     match event {
///         AgentEvent::LlmToken { token, .. } => print!("{token}"),
///         AgentEvent::ToolStart { tool, args, .. } => println!("{tool} {args}"),
///         _ => {}
///     }
/// }
/// println!("{}", turn.reply().await?.outcome);
/// # Ok(())
/// # }
/// ```
#[must_use = "the turn begins when the stream is polled first: take its events, or its `reply`"]
pub struct ReplyStream<S: HasAgent = AgentState> {
    run: RunStream<S>,
}

impl<S: HasAgent> ReplyStream<S> {
    /// Runs the turn to its end, without the events that were not taken, and returns the reply.
    ///
    /// # Errors
    /// Those of [`AgentThread::ask`](crate::AgentThread::ask).
    pub async fn reply(self) -> Result<Reply, RunError> {
        self.run.outcome().await.map(Reply::from)
    }
}

impl<S: HasAgent> From<RunStream<S>> for ReplyStream<S> {
    /// Reads the stream of a turn with [`StreamMode::Custom`](superstep_graph::StreamMode::Custom); its other events are left out.
    fn from(run: RunStream<S>) -> Self {
        Self { run }
    }
}

impl<S: HasAgent> Stream for ReplyStream<S> {
    type Item = AgentEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AgentEvent>> {
        loop {
            let Some(event) = ready!(self.run.poll_next_unpin(cx)) else { return Poll::Ready(None) };
            // Nodes of your own emit events as well.
            if let Some(event) = AgentEvent::of(&event) {
                return Poll::Ready(Some(event));
            }
        }
    }
}

impl<S: HasAgent> fmt::Debug for ReplyStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyStream").field("run", &self.run).finish()
    }
}
