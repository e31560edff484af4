//! State updates of tools.

use std::sync::Arc;

use serde_json::Value;
use superstep_graph::{State, state::reduce};
use superstep_llm::ToolCx;

use crate::{AgentState, HasAgent, config::Pin};

/// The agent's channels that tools may write. The guarantees of a turn depend on the others: a tool that appended to `messages` could
/// leave a call without a result, one that wrote `stop` could end a turn without an outcome.
const WRITABLE: [&str; 4] = ["hints", "permissions", "pins", "user_id"];

/// The state of the graph, independent of its type.
pub(super) trait OuterState: Send + Sync {
    /// Passes the state to a tool.
    fn give(self: Arc<Self>, cx: ToolCx) -> ToolCx;

    /// Checks a tool's update.
    ///
    /// # Errors
    /// The problem, for the model.
    fn check(&self, update: &Value) -> Result<(), String>;
}

impl<S: HasAgent> OuterState for S {
    fn give(self: Arc<Self>, cx: ToolCx) -> ToolCx {
        cx.with_shared(self)
    }

    fn check(&self, update: &Value) -> Result<(), String> {
        read(self, update).map(drop)
    }
}

// JSON, because tools do not know graphs, and the result of a call is stored before the round ends. It is parsed when the tool returns,
// so that the model learns of a mismatch at once.
/// Parses the update of a tool.
///
/// # Errors
/// The problem, for the model.
pub(super) fn read<S: HasAgent>(state: &S, update: &Value) -> Result<S::Update, String> {
    let read = state.read_update(update.to_string().as_bytes());
    let update = read.map_err(|error| format!("the tool's state update is invalid: {error}"))?;
    let mut written = state.written(&update).iter().map(|channel| state.channels()[channel].name.as_ref());
    let agent = AgentState::default();
    let is_agents = |name: &str| agent.channels().iter().any(|channel| channel.name == name);
    if let Some(channel) = written.find(|name| is_agents(name) && !WRITABLE.contains(name)) {
        return Err(format!("the tool writes channel `{channel}`, which is the agent's own"));
    }
    match reduce(state, [update.clone()]) {
        Ok(after) => {
            let (before, after) = (&state.agent().pins, &after.agent().pins);
            let is_changed = |pin: &&Pin| before.get(&pin.id) != Some(pin);
            if let Some(pin) = after.iter().filter(is_changed).find(|pin| !pin.is_of_model()) {
                return Err(format!("the tool pins `{}`, which only the user may", pin.id));
            }
            if before.iter().any(|pin| after.get(&pin.id).is_none() && !pin.is_of_model()) {
                return Err("the tool removes a pin of the user".to_owned());
            }
            Ok(update)
        }
        Err(error) => Err(format!("the tool's state update is invalid: {error}")),
    }
}
