//! An agent as a tool of another one.
//!
//! Start at [`SubAgent::new`].

use schemars::JsonSchema;
use serde::Deserialize;
use superstep_llm::ToolSpec;

use super::handle::Agent;
use crate::deps::SubAgent;

impl SubAgent {
    /// Creates the tool of an agent; the description is for the model. A call may use half of the
    /// caller's remaining budget, see [`share`](Self::share).
    pub fn new(name: impl Into<String>, description: impl Into<String>, agent: &Agent) -> Self {
        let spec = ToolSpec::of::<Task>(name, description);
        Self { spec, graph: agent.graph().clone(), share: 0.5, timeout: None }
    }
}

/// The arguments of a call of a sub-agent.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used; the executor reads the text")]
struct Task {
    /// What it is to do, with everything that it has to know: it sees nothing of this conversation.
    task: String,
}
