//! Message chunks for stream subscribers.

use serde::Serialize;
use superstep_graph::Cx;
use superstep_llm::{Delta, Message, MessageData, Role};

use crate::{AgentEvent, AgentState, events::emit};

/// Returns the id of the message written in this task: a new one, or that of the continued message.
pub(super) fn message_id(state: &AgentState, cx: &Cx) -> String {
    state.continued_message().map_or_else(|| cx.id("message"), |begun| begun.id.clone())
}

/// Emits the final state of a streamed message with `calls` tool calls. Its pieces are void if `is_void`, or if calls were removed.
pub(super) fn emit_message(cx: &Cx, id: &str, message: Option<&Message>, calls: usize, is_void: bool) {
    if is_void || message.is_none_or(|message| message.tool_calls.len() < calls) {
        cx.discard_message(id);
    }
    if let Some(message) = message {
        cx.emit_full_message(id, message);
    }
}

/// Emits the text of a response that was held back.
pub(super) fn emit_text(cx: &Cx, message: &MessageData) {
    let MessageData { content, reasoning, .. } = message;
    for (token, reasoning_token) in [(&String::new(), reasoning), (content, &String::new())] {
        if !token.is_empty() || !reasoning_token.is_empty() {
            emit(cx, || AgentEvent::LlmToken {
                token: token.clone(),
                reasoning_token: reasoning_token.clone(),
            });
        }
    }
}

/// A piece of a message, with the fields of a [`Message`] that are present.
#[derive(Serialize)]
pub(super) struct Chunk<'a> {
    role: Role,
    content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[CallChunk<'a>; 1]>,
}

/// A piece of a tool call; see [`Delta::ToolCall`].
#[derive(Serialize)]
struct CallChunk<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

impl<'a> Chunk<'a> {
    pub(super) fn of(delta: &'a Delta) -> Option<Self> {
        let empty = Self { role: Role::Assistant, content: "", reasoning: "", tool_calls: None };
        match delta {
            Delta::Text(content) => Some(Self { content, ..empty }),
            Delta::Reasoning(reasoning) => Some(Self { reasoning, ..empty }),
            Delta::ToolCall { index, id, name, arguments } => {
                let (id, name) = (id.as_deref(), name.as_deref());
                Some(Self { tool_calls: Some([CallChunk { index: *index, id, name, arguments }]), ..empty })
            }
            _ => None,
        }
    }
}
