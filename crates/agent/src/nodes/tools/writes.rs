//! What tools write beside their results.

use serde_json::Value;
use superstep_graph::{State, reduce};

use crate::{AgentState, AgentStateUpdate};

/// The agent's channels that tools may write. The others are its own business: a tool that wrote them could break what it
/// promises of every turn.
const WRITABLE: [&str; 3] = ["hints", "permissions", "user_id"];

/// Reads the update of a tool.
///
/// # Errors
/// Why it cannot be made, for the model to read.
pub(super) fn read(state: &AgentState, update: &Value) -> Result<AgentStateUpdate, String> {
    let read = state.read_update(update.to_string().as_bytes());
    let update = read.map_err(|error| format!("the tool writes what the state does not take: {error}"))?;
    let mut written = state.written(&update).iter().map(|channel| state.channels()[channel].name.as_ref());
    if let Some(channel) = written.find(|name| !WRITABLE.contains(name)) {
        return Err(format!("the tool writes channel `{channel}`, which is the agent's own"));
    }
    match reduce(state, [update.clone()]) {
        Ok(_) => Ok(update),
        Err(error) => Err(format!("the tool writes what the state does not take: {error}")),
    }
}
