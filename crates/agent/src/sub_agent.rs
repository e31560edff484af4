//! Agents that other agents call.
//!
//! Start at [`SubAgent`].

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use superstep_graph::CompiledGraph;
use superstep_llm::{Behaviour, Tool, ToolCx, ToolError, ToolFuture, ToolSpec};

use crate::{Agent, AgentState};

/// An agent as a tool of another one.
///
/// A call of it is a turn of the agent, on a thread of its own beneath the caller's. The model of the caller reads its reply,
/// and nothing else of it. See [`AgentBuilder::sub_agent`](crate::AgentBuilder::sub_agent).
///
/// An agent has to be there before it can be one of another, so none can call itself, and how deep calls go is known before
/// anything runs.
#[derive(Clone)]
pub struct SubAgent {
    spec: ToolSpec,
    pub(crate) graph: CompiledGraph<AgentState>,
    pub(crate) share: f64,
    pub(crate) timeout: Option<Duration>,
}

/// What a sub-agent is asked.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used; the executor reads the text")]
struct Task {
    /// What it is to do, with everything that it has to know: it sees nothing of this conversation.
    task: String,
}

impl SubAgent {
    /// The agent under a name by which the model calls it; the description says what it is good for. A call may spend half of
    /// what is left of the caller's budget, see [`share`](Self::share).
    pub fn new(name: impl Into<String>, description: impl Into<String>, agent: &Agent) -> Self {
        let spec = ToolSpec::of::<Task>(name, description);
        Self { spec, graph: agent.graph().clone(), share: 0.5, timeout: None }
    }

    /// Sets how much of what is left of the caller's budget a call may spend, from 0 to 1; calls of one round have it
    /// together. The agent's own budget holds as well.
    #[must_use]
    pub fn share(self, share: f64) -> Self {
        Self { share: share.clamp(0.0, 1.0), ..self }
    }

    /// Sets how long a call may take, in place of the caller's [`ReactConfig::tool_timeout`](crate::ReactConfig::tool_timeout).
    /// It does not end one that waits for an answer from outside, and begins anew after the answer.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// The graph that a call runs.
    pub fn graph(&self) -> &CompiledGraph<AgentState> {
        &self.graph
    }
}

impl Tool for SubAgent {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// A call that is made again goes on where it was.
    fn behaviour(&self) -> Behaviour {
        Behaviour { idempotent: true, ..Behaviour::default() }
    }

    fn call(&self, _: Value, _: ToolCx) -> ToolFuture<'_> {
        let why = "a sub-agent runs in the `tools` node of its caller; add it with `AgentBuilder::sub_agent`";
        Box::pin(std::future::ready(Err(ToolError::failed(why))))
    }
}
