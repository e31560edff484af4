//! Sub-agents: agents that other agents call.
//!
//! Start at [`SubAgent`].

use std::{fmt, time::Duration};

use serde_json::Value;
use superstep_graph::CompiledGraph;
use superstep_llm::{Behaviour, Tool, ToolCx, ToolError, ToolFuture, ToolSpec};

use crate::AgentState;

/// An agent as a tool of another one.
///
/// A call is a turn of the agent, on its own thread below the caller's. The caller's model receives only its
/// reply. See [`AgentBuilder::sub_agent`](crate::AgentBuilder::sub_agent).
///
/// An agent must exist before it can be a sub-agent, so none can call itself, and the depth of calls is known
/// before anything runs.
#[derive(Clone)]
pub struct SubAgent {
    pub(crate) spec: ToolSpec,
    pub(crate) graph: CompiledGraph<AgentState>,
    pub(crate) share: f64,
    pub(crate) timeout: Option<Duration>,
}

impl fmt::Debug for SubAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubAgent")
            .field("name", &self.spec.name)
            .field("share", &self.share)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl SubAgent {
    // A number, the sub-agent's own budget, cannot express that a call late in an expensive turn gets less, and that three parallel
    // calls do not use three times as much as one. The grant is stored in the sub-agent's state, so it is the same after a resume.
    /// Sets the share of the caller's remaining budget that the calls of one round may use together, from 0
    /// to 1. The agent's own budget applies as well.
    #[must_use]
    pub fn share(self, share: f64) -> Self {
        Self { share: share.clamp(0.0, 1.0), ..self }
    }

    /// Sets the time limit of a call, overriding the caller's
    /// [`ReactConfig::tool_timeout`](crate::ReactConfig::tool_timeout). It pauses while the call waits for an
    /// external answer, and restarts after the answer.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Returns the graph that a call runs.
    pub fn graph(&self) -> &CompiledGraph<AgentState> {
        &self.graph
    }
}

impl Tool for SubAgent {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Returns the behaviour: a repeated call resumes from its checkpoint.
    fn behaviour(&self) -> Behaviour {
        Behaviour { idempotent: true, ..Behaviour::default() }
    }

    fn call(&self, _: Value, _: ToolCx) -> ToolFuture<'_> {
        let why = "a sub-agent runs in the `tools` node of its caller; add it with `AgentBuilder::sub_agent`";
        Box::pin(std::future::ready(Err(ToolError::failed(why))))
    }
}
