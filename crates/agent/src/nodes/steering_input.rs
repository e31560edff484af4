//! User messages sent since the last model call.

use superstep_graph::{Cx, checkpoint::CheckpointError};
use superstep_llm::Message;

use crate::{AgentEvent, AgentState, events::emit, transcript::steering::STEERED};

/// The new messages, and the number of the last one.
pub(super) struct Steered {
    pub(super) messages: Vec<Message>,
    pub(super) last: u64,
}

/// Reads the new messages. A response that the model still has to finish comes first.
pub(super) async fn steered(state: &AgentState, cx: &Cx) -> Result<Steered, CheckpointError> {
    let mut steered = Steered { messages: Vec::new(), last: state.steered };
    if state.answer.continuing {
        return Ok(steered);
    }
    for posted in cx.inbox(state.steered).await? {
        let text = posted.item.as_str().unwrap_or_default();
        let id = format!("{STEERED}{}", posted.number);
        emit(cx, || AgentEvent::Steered { id: id.clone(), text: text.to_owned() });
        steered.messages.push(Message::user(text).with_id(id));
        steered.last = posted.number;
    }
    Ok(steered)
}

/// Returns whether messages with a higher number exist.
pub(super) async fn is_waiting(last: u64, cx: &Cx) -> Result<bool, CheckpointError> {
    Ok(!cx.inbox(last).await?.is_empty())
}
