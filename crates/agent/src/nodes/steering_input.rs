//! User messages sent since the last model call.

use superstep_graph::{
    Cx,
    checkpoint::CheckpointError,
    state::{Merge, Merges},
};
use superstep_llm::{Message, Role};

use crate::{
    AgentEvent, AgentState,
    events::emit,
    repair::steering::{STEERED, is_steered},
};

/// The new messages, and the number of the last one.
pub(super) struct Steered {
    pub(super) messages: Vec<Message>,
    pub(super) last: u64,
}

/// Reads the new messages. A response that the model still has to finish comes first.
pub(super) async fn steered(state: &AgentState, cx: &Cx) -> Result<Steered, CheckpointError> {
    if state.answer.continuing {
        return Ok(Steered { messages: Vec::new(), last: state.steered });
    }
    unread(state, cx).await
}

/// Reads the messages that no model call has answered.
pub(super) async fn unread(state: &AgentState, cx: &Cx) -> Result<Steered, CheckpointError> {
    let mut steered = Steered { messages: Vec::new(), last: state.steered };
    for posted in cx.inbox(state.steered).await? {
        let text = posted.item.as_str().unwrap_or_default();
        let id = format!("{STEERED}{}", posted.number);
        emit(cx, || AgentEvent::Steered { id: id.clone(), text: text.to_owned() });
        steered.messages.push(Message::user(text).with_id(id));
        steered.last = posted.number;
    }
    Ok(steered)
}

// At the beginning of the next turn, not at the end of their own: a message may arrive after its last node, and a resumed turn would read
// them twice.
/// Puts messages that were sent during an earlier turn before the message of the input, which was written after them.
pub(super) fn before_input(state: &AgentState, earlier: Vec<Message>) -> Merges<Message> {
    let is_prompt =
        |message: &&Message| message.role == Role::User && !message.synthetic && !is_steered(message);
    let mut input: Vec<Message> = state.messages.iter().rev().take_while(is_prompt).cloned().collect();
    if state.llm_calls == 0 {
        // Nothing follows the message of the last turn, so that it cannot be distinguished from those of the input.
        input.truncate(1);
    }
    input.reverse();
    let removed = input.iter().map(|message| Merge::remove(&message.id)).collect::<Vec<_>>();
    let added = earlier.into_iter().chain(input).map(Merge::Put);
    Merges(removed.into_iter().chain(added).collect())
}

/// Returns whether messages with a higher number exist.
pub(super) async fn is_waiting(last: u64, cx: &Cx) -> Result<bool, CheckpointError> {
    Ok(!cx.inbox(last).await?.is_empty())
}
