//! The agent's public interface: messages in, replies out.
//!
//! Start at [`Agent`].

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_graph::{CheckpointId, CompiledGraph, Interrupt, Outcome, State, Status};
use superstep_llm::{Message, Usage};

use crate::{
    AgentOutcome, AgentState, HasAgent, ReactConfig,
    approval::ApprovalRequest,
    deps::AgentDeps,
    state::{Metadata, TurnCost},
};

/// A model with tools that replies to messages, thread by thread.
///
/// ```
/// # use std::sync::Arc;
/// # use superstep_agent::{Agent, ReactConfig};
/// # use superstep_llm::ChatModel;
/// # async fn example(model: Arc<dyn ChatModel>) -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(model).config(ReactConfig::graph(25)).build()?;
/// let reply = agent.ask("What is 2 + 3?").await?;
/// println!("{}", reply.text);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Agent<S: HasAgent = AgentState> {
    graph: CompiledGraph<S>,
    /// The dependencies of its nodes; `None` for a custom graph.
    pub(super) deps: Option<AgentDeps>,
    /// An upper bound of a turn's supersteps; the turn ends by its own limit.
    pub(super) most_supersteps: u32,
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
    #[serde(rename = "final_reply")]
    pub text: String,
    /// The summary of the turn.
    pub metadata: Metadata,
    /// The structured reply; `None` if there is no schema, or no matching reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The outcome of the turn. [`Stopped`](AgentOutcome::Stopped), [`AwaitingApproval`](AgentOutcome::AwaitingApproval) and
    /// [`AwaitingAnswer`](AgentOutcome::AwaitingAnswer) are those of a turn that can be resumed.
    pub outcome: AgentOutcome,
    /// Tokens of the turn, as reported by the provider.
    pub usage: Usage,
    /// The estimated cost of the turn; `None` if no price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_cost: Option<TurnCost>,
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
        Self { graph, deps: None, most_supersteps }
    }

    /// Sets the dependencies of the graph's nodes.
    pub(super) fn with_deps(self, deps: AgentDeps) -> Self {
        Self { deps: Some(deps), ..self }
    }

    /// Returns the graph that it runs.
    pub fn graph(&self) -> &CompiledGraph<S> {
        &self.graph
    }

    /// Creates the input for a user message, to which writes of other channels can be added, for
    /// [`AgentThread::run`](crate::AgentThread::run). `user_id("ada")` selects the memory for this thread,
    /// `cwd(folder)` the tools' folder for this turn. On a custom state, use
    /// `agent(AgentState::update().user_id("ada"))`.
    pub fn input(&self, text: &str) -> S::Update {
        self.input_of(Message::user(text))
    }

    /// Creates the input for a message of the user, which may have images and files.
    pub fn input_of(&self, message: Message) -> S::Update {
        // An abandoned turn leaves its schema behind, and every turn its folder.
        let input = AgentState::update().messages([message]).output_schema(None).cwd(None);
        S::agent_update(input)
    }
}

impl<S: HasAgent> From<Outcome<S>> for Reply {
    fn from(end: Outcome<S>) -> Self {
        let state = end.state.into_agent();
        // An unfinished turn has a summary, too.
        let metadata = if state.outcome.is_some() { state.metadata.clone() } else { state.summary() };
        let estimated_cost = state.cost().filter(|_| !state.estimated_cost.is_empty());
        let AgentState { final_reply: text, output, outcome, usage, .. } = state;
        let (checkpoint, interrupts) = (end.checkpoint, end.interrupts);
        let outcome = match (end.status, outcome) {
            // A graph of your own may end a turn without one.
            (Status::Completed, outcome) => outcome.unwrap_or(AgentOutcome::Completed),
            _ if interrupts.iter().any(is_approval) => AgentOutcome::AwaitingApproval,
            _ if !interrupts.is_empty() => AgentOutcome::AwaitingAnswer,
            _ => AgentOutcome::Stopped,
        };
        Self { text, output, metadata, outcome, usage, estimated_cost, checkpoint, interrupts }
    }
}

/// Returns whether the interrupt is a tool approval, and not that of a custom node.
fn is_approval(asked: &Interrupt) -> bool {
    ApprovalRequest::deserialize(&asked.question).is_ok()
}
