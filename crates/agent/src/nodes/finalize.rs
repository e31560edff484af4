//! The last node: what the user gets.

use superstep_graph::{Cx, State};
use superstep_llm::Role;

use crate::{AgentOutcome, AgentState, AgentStateUpdate, Metadata, texts};

/// Takes the reply from the last thing the model said in this turn, and sums the turn up.
pub(crate) async fn finalize(state: AgentState, _: Cx) -> AgentStateUpdate {
    let this_turn = state.messages.iter().rev().take_while(|message| message.role != Role::User);
    let said =
        this_turn.filter(|message| message.role == Role::Assistant).map(|message| &message.content).next();
    let mut reply = said.cloned().unwrap_or_default();
    if reply.is_empty() && !state.stop_reason.is_empty() {
        reply = texts::explain(&state.stop_reason, state.error.as_ref().map(|error| error.message.as_str()));
    }
    let metadata = Metadata {
        steps_taken: state.current_step,
        tools_used: state.tools_used.iter().cloned().collect(),
        stop_reason: state.stop_reason.clone(),
        llm_calls: state.llm_calls,
    };
    AgentState::update().final_reply(reply).metadata(metadata).outcome(outcome(&state.stop_reason))
}

fn outcome(stop_reason: &str) -> AgentOutcome {
    match stop_reason {
        "max_steps" => AgentOutcome::Limit,
        "loop_detected" => AgentOutcome::LoopDetected,
        "cancelled" => AgentOutcome::Cancelled,
        "llm_error" => AgentOutcome::LlmError,
        _ => AgentOutcome::Completed,
    }
}
