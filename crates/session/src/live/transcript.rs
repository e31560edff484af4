//! The stored conversation as events of a session.

use serde_json::Value;
use superstep::llm::{Message, Role};

use crate::live::{
    calls::{CallStatus, Calls, plan},
    event::SessionEvent,
    projection::view,
};

/// Returns the conversation: messages, and each call once, with its result. Calls without a result are pending. `calls` has them
/// afterwards, for the turns that follow.
pub(super) fn transcript<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    calls: &mut Calls,
) -> Vec<SessionEvent> {
    let mut events = Vec::new();
    let mut list = None;
    for message in messages {
        match message.role {
            Role::User if !message.synthetic => {
                events.push(SessionEvent::Message(view(message, &message.id)))
            }
            Role::Assistant => {
                if !message.content.is_empty() || !message.reasoning.is_empty() {
                    events.push(SessionEvent::Message(view(message, &message.id)));
                }
                for call in &message.tool_calls {
                    let args = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
                    list = plan(&call.name, &args).or(list);
                    let call = calls.change(&call.id, &call.name, &args, CallStatus::Pending);
                    events.push(SessionEvent::Call(call));
                }
            }
            Role::Tool => {
                let status = if message.failed { CallStatus::Failed } else { CallStatus::Done };
                let done = calls.end(&message.tool_call_id, "", &message.content, status);
                let begun = events.iter_mut().rev().find_map(|event| match event {
                    SessionEvent::Call(call) if call.key == done.key => Some(call),
                    _ => None,
                });
                match begun {
                    Some(begun) => *begun = done,
                    // The call is in an earlier part of the conversation.
                    None => events.push(SessionEvent::Call(done)),
                }
            }
            _ => {}
        }
    }
    events.extend(list.map(SessionEvent::Plan));
    events
}
