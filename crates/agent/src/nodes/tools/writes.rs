//! What tools write beside their results.

use serde_json::Value;
use superstep_graph::{State, reduce};
use superstep_llm::ToolCx;

use crate::{AgentState, HasAgent};

/// The agent's channels that tools may write. The others are its own business: a tool that wrote them could break what it
/// promises of every turn.
const WRITABLE: [&str; 3] = ["hints", "permissions", "user_id"];

/// The state of the graph, whatever its type.
pub(super) trait Outer: Send + Sync {
    /// Gives it to a tool: as it is, and the agent's part of it.
    fn give(&self, cx: ToolCx) -> ToolCx;

    /// Whether it takes what a tool writes.
    ///
    /// # Errors
    /// Why not, for the model to read.
    fn check(&self, update: &Value) -> Result<(), String>;
}

impl<S: HasAgent> Outer for S {
    fn give(&self, cx: ToolCx) -> ToolCx {
        cx.with_given(self.clone()).with_given(self.agent().clone())
    }

    fn check(&self, update: &Value) -> Result<(), String> {
        read(self, update).map(drop)
    }
}

/// Reads the update of a tool.
///
/// # Errors
/// Why it cannot be made, for the model to read.
pub(super) fn read<S: HasAgent>(state: &S, update: &Value) -> Result<S::Update, String> {
    let read = state.read_update(update.to_string().as_bytes());
    let update = read.map_err(|error| format!("the tool writes what the state does not take: {error}"))?;
    let mut written = state.written(&update).iter().map(|channel| state.channels()[channel].name.as_ref());
    let agent = AgentState::default();
    let is_agents = |name: &str| agent.channels().iter().any(|channel| channel.name == name);
    if let Some(channel) = written.find(|name| is_agents(name) && !WRITABLE.contains(name)) {
        return Err(format!("the tool writes channel `{channel}`, which is the agent's own"));
    }
    match reduce(state, [update.clone()]) {
        Ok(_) => Ok(update),
        Err(error) => Err(format!("the tool writes what the state does not take: {error}")),
    }
}
