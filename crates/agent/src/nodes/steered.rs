//! What users said since the last model call.

use superstep_graph::{CheckpointError, Cx};
use superstep_llm::Message;

use crate::{AgentState, events};

/// How often a turn goes on because of what was said during its last model call. What is said after that is read in the next
/// turn.
pub(crate) const MOST: u32 = 100;

/// What the ids of such messages begin with.
const STEERED: &str = "steered.";

/// The messages that are new, and the number of the last one.
pub(super) struct Steered {
    pub(super) messages: Vec<Message>,
    pub(super) last: u64,
}

/// Reads what is new. A message that the model is still to finish comes first.
pub(super) async fn steered(state: &AgentState, cx: &Cx) -> Result<Steered, CheckpointError> {
    let mut steered = Steered { messages: Vec::new(), last: state.steered };
    if state.answer.continuing {
        return Ok(steered);
    }
    for posted in cx.inbox(state.steered).await? {
        let text = posted.item.as_str().unwrap_or_default();
        let id = format!("{STEERED}{}", posted.number);
        events::steered(cx, &id, text);
        steered.messages.push(Message::user(text).with_id(id));
        steered.last = posted.number;
    }
    Ok(steered)
}

/// Whether it was said while a turn ran.
pub(crate) fn is_steered(message: &Message) -> bool {
    message.id.starts_with(STEERED)
}

/// Whether something was said after the message with this number.
pub(super) async fn is_waiting(last: u64, cx: &Cx) -> Result<bool, CheckpointError> {
    Ok(!cx.inbox(last).await?.is_empty())
}
