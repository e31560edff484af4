//! The stored parts of responses.

use serde_json::Value;
use superstep_graph::Cx;
use superstep_llm::{Message, Role, ToolCall};

use crate::{
    AgentState,
    config::prompts,
    state::{IllegalTransition, Part, PartKind, ToolEvent, ToolState},
};

/// Returns the parts of a model's message in order. Calls that were `cut_off` stay pending, because their
/// arguments are incomplete. Those of an interrupted message are complete, and have failed.
pub(super) fn of_message(message: &Message, cut_off: bool, cx: &Cx) -> Vec<Part> {
    let text = |kind, name: &str, text: &str| {
        let part = part(&message.id, name, kind, cx);
        (!text.is_empty()).then_some(part)
    };
    let mut parts: Vec<Part> = Vec::new();
    if message.role != Role::Assistant {
        return parts;
    }
    parts.extend(text(PartKind::Reasoning, "reasoning", &message.reasoning));
    parts.extend(text(PartKind::Text, "text", &message.content));
    parts.extend(message.tool_calls.iter().enumerate().map(|(position, call)| {
        let pending = pending(&message.id, position, &call.name, cx);
        let state = match (message.interrupted, cut_off) {
            (true, _) => failed(called(call)),
            (false, true) => return pending,
            (false, false) => called(call),
        };
        Part { state: Some(state), ..pending }
    }));
    parts
}

/// Returns the part of a tool call that the model has begun.
pub(super) fn pending(message: &str, position: usize, tool: &str, cx: &Cx) -> Part {
    let part = part(message, &format!("tool.{position}"), PartKind::Tool, cx);
    Part { tool: Some(tool.to_owned()), state: Some(ToolState::default()), ..part }
}

/// Returns the part of the call at `position` of a message, with its result.
///
/// # Errors
/// If the call has ended according to the state.
pub(super) fn ended(
    state: &AgentState,
    message: &Message,
    position: usize,
    end: ToolEvent,
    cx: &Cx,
) -> Result<Part, IllegalTransition> {
    let call = &message.tool_calls[position];
    let fresh = pending(&message.id, position, &call.name, cx);
    let stored = state.parts.get(&fresh.id).cloned();
    // The state may be older than this feature.
    let part = stored.unwrap_or_else(|| Part { state: Some(called(call)), ..fresh });
    let before = part.state.clone().unwrap_or_default();
    Ok(Part { state: Some(before.after(end)?), ..part })
}

/// Returns the part with the arguments of a call that ran with others than the model wrote.
pub(super) fn ran_with(mut part: Part, args: Option<Value>) -> Part {
    if let (Some(state), Some(args)) = (&mut part.state, args) {
        state.input = Some(args);
    }
    part
}

/// Returns the arguments as the model wrote them; a text if they are not valid JSON.
pub(super) fn arguments(call: &ToolCall) -> Value {
    serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::String(call.arguments.clone()))
}

fn failed(call: ToolState) -> ToolState {
    let end = ToolEvent::Failed(prompts::INTERRUPTED.to_owned());
    call.after(end).expect("a running call may fail")
}

fn called(call: &ToolCall) -> ToolState {
    ToolState::default().after(ToolEvent::Called(arguments(call))).expect("a pending call may be called")
}

fn part(message: &str, name: &str, kind: PartKind, cx: &Cx) -> Part {
    Part {
        id: format!("{message}.{name}"),
        session_id: cx.thread().map(ToString::to_string).unwrap_or_default(),
        message_id: message.to_owned(),
        kind,
        tool: None,
        state: None,
    }
}
