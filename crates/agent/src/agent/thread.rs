//! One thread of an agent: its turns.
//!
//! Start at [`AgentThread`].

use std::{ops::Deref, time::Duration};

use futures::TryFutureExt;
use serde::Serialize;
use serde_json::Value;
use superstep_graph::{
    Answers, CheckpointId, Durability, OnExisting, OnUnfinished, Outcome, RunError, RunOptions, RunStream,
    StreamMode, Streaming, Thread, ThreadId, clock::Clock, convert::IntoShared, thread::Drain,
};
use tokio_util::sync::CancellationToken;

use super::{
    reply_stream::ReplyStream,
    steer::{SteerError, steer},
};
use crate::{Agent, AgentOutcome, AgentState, HasAgent, Reply};

/// One thread of an agent, together with the options of the turns that start from here.
///
/// Methods that set options return another handle with them. It dereferences to the [`Thread`] of the agent's graph, which has the
/// state, the history and changes to them.
///
/// ```no_run
/// # use superstep_agent::Agent;
/// # async fn example(agent: Agent) -> Result<(), Box<dyn std::error::Error>> {
/// let ada = agent.thread("ada");
/// println!("{}", ada.ask("What is 2 + 3?").await?.text);
/// println!("{} messages", ada.state().await?.values.messages.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AgentThread<S: HasAgent = AgentState> {
    agent: Agent<S>,
    thread: Thread<S>,
}

impl<S: HasAgent> Agent<S> {
    /// Returns a handle to the thread with this id, which need not exist yet. The agent requires a checkpointer.
    #[must_use = "a handle does nothing until one of its operations runs"]
    pub fn thread(&self, id: impl Into<ThreadId>) -> AgentThread<S> {
        self.configured(RunOptions::new().thread(id))
    }

    /// Returns a handle to turns that belong to no thread and are not stored, to set their options.
    #[must_use = "a handle does nothing until one of its operations runs"]
    pub fn without_thread(&self) -> AgentThread<S> {
        self.configured(RunOptions::new())
    }

    /// Returns a handle with these options, to the thread that they name, if any.
    #[must_use = "a handle does nothing until one of its operations runs"]
    pub fn configured(&self, options: RunOptions) -> AgentThread<S> {
        AgentThread { agent: self.clone(), thread: self.graph().configured(options) }
    }

    /// Runs a turn for a message, without a thread and with the default options.
    ///
    /// # Errors
    /// Those of [`AgentThread::ask`].
    pub fn ask(&self, text: &str) -> impl Future<Output = Result<Reply, RunError>> + Send + use<S> {
        self.without_thread().ask(text)
    }
}

/// Defines options of turns as those of the graph's thread.
macro_rules! options_of_thread {
    ($($name:ident $(<$generic:ident: $bound:path>)? ($($argument:ident: $type:ty),*);)*) => {
        $(
            #[doc = concat!("Does the same as [`Thread::", stringify!($name), "`].")]
            #[must_use = "a handle does nothing until one of its operations runs"]
            pub fn $name $(<$generic: $bound>)? (&self, $($argument: $type),*) -> Self {
                Self { thread: self.thread.$name($($argument),*), agent: self.agent.clone() }
            }
        )*
    };
}

impl<S: HasAgent> AgentThread<S> {
    options_of_thread! {
        at(checkpoint: impl Into<Option<CheckpointId>>);
        answer(interrupt: impl Into<String>, value: impl Serialize);
        answers(answers: Answers);
        step_limit(supersteps: u32);
        step_limit_at_least(supersteps: u32);
        depth_limit(graphs: usize);
        max_concurrency(tasks: impl Into<Option<usize>>);
        step_timeout(timeout: impl Into<Option<Duration>>);
        on_unfinished(what: OnUnfinished);
        on_existing(what: OnExisting);
        break_before<N: Into<String>>(nodes: impl IntoIterator<Item = N>);
        break_after<N: Into<String>>(nodes: impl IntoIterator<Item = N>);
        drain(drain: Drain);
        cancel(token: CancellationToken);
        clock(clock: impl IntoShared<dyn Clock>);
        context(context: impl Serialize);
        seed(seed: u64);
        snapshot_every(supersteps: impl Into<Option<usize>>);
        durability(durability: Durability);
        recording(on: bool);
        input_id(id: impl Into<String>);
        retry_failed_end(on: bool);
        metadata(name: impl Into<String>, value: impl Into<Value>);
    }

    /// Runs a turn for a message.
    ///
    /// # Errors
    /// [`RunError`] of the graph. An unavailable model is not an error: the reply explains it,
    /// see [`AgentOutcome::LlmError`].
    pub fn ask(&self, text: &str) -> impl Future<Output = Result<Reply, RunError>> + Send + use<S> {
        self.run(self.agent.input(text)).map_ok(Reply::from)
    }

    /// Does the same as [`ask`](Self::ask) and streams the agent's events.
    pub fn ask_stream(&self, text: &str) -> ReplyStream<S> {
        self.stream(self.agent.input(text), StreamMode::Custom).into()
    }

    /// Runs a turn for an input: messages, and writes of other channels. The returned outcome has the state,
    /// from which [`Reply`] is made.
    ///
    /// ```
    /// # use superstep_agent::{Agent, AgentState, Reply};
    /// # use superstep_graph::{RunError, State};
    /// #[derive(State, Clone, Debug, Default)]
    /// struct Support {
    ///     #[channel(flatten)]
    ///     agent: AgentState,
    ///     product: String,
    /// }
    ///
    /// async fn ask(agent: &Agent<Support>) -> Result<String, RunError> {
    ///     let input = agent.input("How do I clean it?").product("kettle");
    ///     let end = agent.thread("support-17").run(input).await?;
    ///     println!("about a {}", end.state.product);
    ///     Ok(Reply::from(end).text)
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`ask`](Self::ask).
    pub fn run<I: Into<S::Update>>(
        &self,
        input: I,
    ) -> impl Future<Output = Result<Outcome<S>, RunError>> + Send + use<S, I> {
        self.graph_thread().run(input)
    }

    /// Does the same as [`run`](Self::run) and streams events of any mode; [`AgentEvent::of`](crate::AgentEvent::of) reads the
    /// agent's from those of [`StreamMode::Custom`].
    pub fn stream(&self, input: impl Into<S::Update>, streaming: impl Into<Streaming>) -> RunStream<S> {
        self.graph_thread().stream(input, streaming)
    }

    /// Resumes a stopped turn from its last checkpoint, with the answers given by [`answer`](Self::answer). A turn that
    /// was cancelled, or whose model was unavailable, is resumed from its last model call. A completed turn is
    /// unchanged.
    ///
    /// # Errors
    /// [`RunError`] of the graph.
    pub fn resume(&self) -> impl Future<Output = Result<Reply, RunError>> + Send + use<S> {
        let stopped = self.clone();
        async move { stopped.resume_point().await?.resume().await.map(Reply::from) }
    }

    /// Does the same as [`resume`](Self::resume) and streams the agent's events.
    ///
    /// # Errors
    /// [`RunError`] if the thread cannot be read.
    pub async fn resume_stream(&self) -> Result<ReplyStream<S>, RunError> {
        Ok(self.resume_point().await?.resume_stream(StreamMode::Custom).into())
    }

    /// Sends a message to the turn that runs on the thread, in this or another process: see
    /// [`steer`](crate::steer()).
    ///
    /// # Errors
    /// [`SteerError`] if the thread has no pending tasks.
    pub async fn steer(&self, text: &str) -> Result<u64, SteerError> {
        steer(&self.thread, text).await
    }

    /// Returns the handle of the graph's thread, with enough supersteps for a turn, which ends at the agent's own limit.
    #[must_use = "a handle does nothing until one of its operations runs"]
    pub fn graph_thread(&self) -> Thread<S> {
        self.thread.step_limit_at_least(self.agent.most_supersteps)
    }

    // The graph of a turn that was cancelled or had no model is finished, yet the caller wants to try again: a fork from before the last
    // model call repeats the same request. Its partial response is dropped, so that the model reads no half sentence as its own; a user
    // who sends a new message instead has read that half, and the model receives it as well.
    /// Returns the handle of the graph's thread at the checkpoint from which [`resume`](Self::resume) continues.
    ///
    /// # Errors
    /// [`RunError`] if the thread cannot be read.
    pub async fn resume_point(&self) -> Result<Thread<S>, RunError> {
        let thread = self.graph_thread();
        if thread.id().is_none() || thread.start().is_some() {
            return Ok(thread);
        }
        let head = thread.state().await?;
        let unanswered = head.values.agent().outcome.is_some_and(AgentOutcome::is_unanswered);
        if !head.next.is_empty() || !unanswered {
            return Ok(thread);
        }
        let active = format!("agent_{}", head.values.agent().active);
        let has_node = self.agent.graph().topology().find(&active).is_some();
        let from = thread.last_pending(if has_node { active.as_str() } else { "agent" }).await?;
        Ok(thread.at(from))
    }
}

impl<S: HasAgent> Deref for AgentThread<S> {
    type Target = Thread<S>;

    fn deref(&self) -> &Thread<S> {
        &self.thread
    }
}
