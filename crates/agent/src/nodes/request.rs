//! What the model is asked.

use superstep_graph::Cx;
use superstep_llm::{Message, Request, Role, Usage};

use super::{budget, next_call::NextCall, repair::repaired};
use crate::{AgentDeps, AgentState};

/// The conversation, then what only this request says.
pub(super) fn request(
    deps: &AgentDeps,
    state: &AgentState,
    call: &NextCall<'_>,
    synthetic: Option<&Message>,
) -> Request {
    let system = Some(&deps.config.system_prompt).filter(|prompt| !prompt.is_empty()).map(Message::system);
    let conversation = repaired(state.messages.iter().chain(synthetic));
    let hints = call.hints.iter().map(|hint| Message::user(hint.as_ref()));
    Request {
        messages: system.into_iter().chain(conversation).chain(hints).collect(),
        tools: if call.tools { deps.tools.specs() } else { Vec::new() },
        ..Request::default()
    }
}

/// What the agent says after a round of tools, if it is to say anything. It becomes part of the conversation.
pub(super) fn synthetic(deps: &AgentDeps, state: &AgentState, cx: &Cx) -> Option<Message> {
    let text = deps.config.synthetic_after_tools.as_ref()?;
    // A model that is still to finish an answer has been told already.
    state.messages.last().filter(|last| last.role == Role::Tool)?;
    Some(Message::synthetic(text).with_id(cx.id("synthetic")))
}

/// Roughly the tokens of a request and its answer.
pub(super) fn estimate(request: &Request, answer: &Message) -> Usage {
    let text = |message: &Message| -> Vec<String> {
        let calls = message.tool_calls.iter().map(|call| format!("{}{}", call.name, call.arguments));
        calls.chain([message.content.clone(), message.reasoning.clone()]).collect()
    };
    let tools =
        request.tools.iter().map(|tool| format!("{}{}{}", tool.name, tool.description, tool.parameters));
    let input: Vec<String> = request.messages.iter().flat_map(text).chain(tools).collect();
    Usage {
        input_tokens: budget::estimate(input.iter().map(String::as_str)),
        output_tokens: budget::estimate(text(answer).iter().map(String::as_str)),
    }
}
