//! The agent's public interface: messages in, replies out.
//!
//! Start at [`Agent`].

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_graph::{
    CheckpointId, CompiledGraph, History, Interrupt, NodeName, Outcome, RunConfig, RunError, RunStream,
    State, Status, Streaming, ThreadId,
};
use superstep_llm::{Message, Usage};

use super::steer::{SteerError, steer};
use crate::{AgentOutcome, AgentState, ApprovalRequest, HasAgent, Metadata, ReactConfig};

/// A model with tools that replies to messages, thread by thread.
///
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::{Agent, ReactConfig};
/// # use superstep_graph::RunConfig;
/// # use superstep_llm::ChatModel;
/// # async fn example(model: Arc<dyn ChatModel>) -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(model).config(ReactConfig::graph(25)).build()?;
/// let reply = agent.process_message("What is 2 + 3?", RunConfig::default()).await?;
/// println!("{}", reply.final_reply);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Agent<S: HasAgent = AgentState> {
    graph: CompiledGraph<S>,
    /// An upper bound of a turn's supersteps; the turn ends by its own limit.
    most_supersteps: u32,
}

impl<S: HasAgent> fmt::Debug for Agent<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("graph", &self.graph).finish_non_exhaustive()
    }
}

/// The reply to a message. As JSON it has `final_reply`, `metadata`, and the other known fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reply {
    /// The text for the user; an explanation if there is no reply.
    pub final_reply: String,
    /// The summary of the turn.
    pub metadata: Metadata,
    /// The structured reply; `None` if there is no schema, or no matching reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The outcome of the turn; `None` if it was stopped before its end and can be resumed, or waits for an
    /// interrupt that is not an approval.
    pub outcome: Option<AgentOutcome>,
    /// Tokens of the turn, as reported by the provider.
    pub usage: Usage,
    /// The last checkpoint; `None` without a checkpointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointId>,
    /// The pending interrupts: calls that require approval, each with its [`ApprovalRequest`] as the
    /// question, and interrupts of your own nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<Interrupt>,
}

impl<S: HasAgent> Agent<S> {
    /// Creates an agent that runs a custom graph whose nodes use this configuration.
    pub fn of(graph: CompiledGraph<S>, config: &ReactConfig) -> Self {
        // A round of a graph with more nodes may take more supersteps; the number of nodes is an upper bound.
        let nodes = u32::try_from(graph.topology().len()).unwrap_or(u32::MAX);
        let most_supersteps = config.most_supersteps().saturating_mul(nodes);
        Self { graph, most_supersteps }
    }

    /// Returns the graph that it runs.
    pub fn graph(&self) -> &CompiledGraph<S> {
        &self.graph
    }

    /// Creates the input for a user message, to which writes of other channels can be added, for
    /// [`process_input`](Self::process_input). `user_id("ada")` selects the memory for this thread,
    /// `cwd(folder)` the tools' folder for this turn. On a custom state, use
    /// `agent(AgentState::update().user_id("ada"))`.
    pub fn input(&self, text: &str) -> S::Update {
        // An abandoned turn leaves its schema behind, and every turn its folder.
        let input = AgentState::update().messages([Message::user(text)]).output_schema(None).cwd(None);
        S::agent_update(input)
    }

    /// Runs a turn for a message.
    ///
    /// # Errors    [`RunError`] of the graph. An unavailable model is not an error: the reply explains it,
    /// see [`AgentOutcome::LlmError`].
    pub async fn process_message(&self, text: &str, config: RunConfig) -> Result<Reply, RunError> {
        self.process_input(self.input(text), config).await.map(Reply::from)
    }

    /// Runs a turn for an input: messages, and writes of other channels. The returned outcome has the state,
    /// from which [`Reply`] is made.
    ///
    /// ```
    /// # use superstep_agent::{Agent, AgentState, Reply};
    /// # use superstep_graph::{RunConfig, RunError, State};
    /// #[derive(State, Clone, Debug, Default)]
    /// struct Support {
    ///     #[channel(flatten)]
    ///     agent: AgentState,
    ///     product: String,
    /// }
    ///
    /// async fn ask(agent: &Agent<Support>) -> Result<String, RunError> {
    ///     let input = agent.input("How do I clean it?").product("kettle");
    ///     let end = agent.process_input(input, RunConfig::thread("support-17")).await?;
    ///     println!("about a {}", end.state.product);
    ///     Ok(Reply::from(end).final_reply)
    /// }
    /// ```
    ///
    /// # Errors    Those of [`process_message`](Self::process_message).
    pub async fn process_input(&self, input: S::Update, config: RunConfig) -> Result<Outcome<S>, RunError> {
        self.graph.invoke(input, self.with_room(config)).await
    }

    /// Runs a turn and streams its events; [`StreamMode::Custom`](superstep_graph::StreamMode::Custom) has
    /// the agent's events.
    pub fn process_message_stream(
        &self,
        text: &str,
        config: RunConfig,
        streaming: impl Into<Streaming>,
    ) -> RunStream<S> {
        self.process_input_stream(self.input(text), config, streaming)
    }

    /// Does the same as [`process_input`](Self::process_input) and streams events.
    pub fn process_input_stream(
        &self,
        input: S::Update,
        config: RunConfig,
        streaming: impl Into<Streaming>,
    ) -> RunStream<S> {
        self.graph.stream(input, self.with_room(config), streaming)
    }

    /// Resumes a stopped turn from its last checkpoint. A turn that was cancelled, or whose model was
    /// unavailable, is resumed from its last model call. A completed turn is unchanged.
    ///
    /// # Errors    [`RunError`] of the graph.
    pub async fn resume(&self, config: RunConfig) -> Result<Reply, RunError> {
        let config = self.resume_point(config).await?;
        self.graph.resume(config).await.map(Reply::from)
    }

    /// Does the same as [`resume`](Self::resume) and streams events.
    ///
    /// # Errors    [`RunError`] if the thread cannot be read.
    pub async fn resume_stream(
        &self,
        config: RunConfig,
        streaming: impl Into<Streaming>,
    ) -> Result<RunStream<S>, RunError> {
        let config = self.resume_point(config).await?;
        Ok(self.graph.stream_resume(config, streaming))
    }

    /// Sends a message to the turn that runs on `config`'s thread, in this or another process: see
    /// [`steer`](crate::steer()).
    ///
    /// # Errors    [`SteerError`](crate::SteerError) if the thread has no pending tasks.
    pub async fn steer(&self, text: &str, config: RunConfig) -> Result<u64, SteerError> {
        steer(&self.graph, text, config).await
    }

    async fn resume_point(&self, config: RunConfig) -> Result<RunConfig, RunError> {
        let mut config = self.with_room(config);
        if let (Some(thread), None) = (&config.thread, config.checkpoint) {
            let head = self.graph.get_state(thread, None).await?;
            let unanswered = head.values.agent().outcome.is_some_and(AgentOutcome::is_unanswered);
            if head.next.is_empty() && unanswered {
                config.checkpoint = self.last_model_call(thread, head.checkpoint.map(|meta| meta.id)).await?;
            }
        }
        Ok(config)
    }

    /// Finds the newest ancestor of `wanted` whose next node is the model call; other branches are ignored.
    async fn last_model_call(
        &self,
        thread: &ThreadId,
        mut wanted: Option<CheckpointId>,
    ) -> Result<Option<CheckpointId>, RunError> {
        let asks = |next: &[NodeName]| matches!(next, [node] if node.as_str() == "agent");
        let mut page = History { limit: Some(50), ..History::default() };
        while wanted.is_some() {
            let history = self.graph.get_history(thread, page.clone()).await?;
            let Some(oldest) = history.last() else { break };
            page.before = Some(oldest.id);
            for meta in &history {
                if wanted == Some(meta.id) && asks(&meta.control.next) {
                    return Ok(wanted);
                }
                if wanted == Some(meta.id) {
                    wanted = meta.parent;
                }
            }
        }
        Ok(None)
    }

    /// Raises the graph's superstep limit, so that the turn ends by its own limit.
    pub fn with_room(&self, config: RunConfig) -> RunConfig {
        RunConfig { step_limit: config.step_limit.max(self.most_supersteps), ..config }
    }
}

impl<S: HasAgent> From<Outcome<S>> for Reply {
    fn from(end: Outcome<S>) -> Self {
        let state = end.state.into_agent();
        // An unfinished turn has a summary, too.
        let metadata = if state.outcome.is_some() { state.metadata.clone() } else { state.taken() };
        let AgentState { final_reply, output, outcome, usage, .. } = state;
        let outcome = match end.status {
            Status::Completed => outcome,
            Status::Interrupted | Status::Cancelled if end.interrupts.iter().any(is_approval) => {
                Some(AgentOutcome::AwaitingApproval)
            }
            _ => None,
        };
        let (checkpoint, interrupts) = (end.checkpoint, end.interrupts);
        Self { final_reply, output, metadata, outcome, usage, checkpoint, interrupts }
    }
}

/// Returns whether the interrupt is a tool approval, and not that of a custom node.
fn is_approval(asked: &Interrupt) -> bool {
    ApprovalRequest::deserialize(&asked.question).is_ok()
}
