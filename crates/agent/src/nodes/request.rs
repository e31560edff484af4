//! What the model is asked.

use superstep_graph::Cx;
use superstep_llm::{Message, Request, Role, Usage};

use super::{budget, finish::Finishing, next_call::NextCall, repair::repaired};
use crate::{AgentDeps, AgentState, OutputMode, texts};

/// The conversation, then what only this request says.
pub(super) fn request(
    deps: &AgentDeps,
    state: &AgentState,
    call: &NextCall<'_>,
    synthetic: Option<&Message>,
) -> Request {
    let finishing = Finishing::of(&deps.config, state);
    let (schema, mode) = (finishing.of_text(), finishing.mode());
    let shape = schema.as_ref().map(texts::output_schema);
    let prompted = shape.as_deref().filter(|_| mode == OutputMode::Prompted);
    let system = [Some(deps.config.system_prompt.as_str()), prompted];
    let system: Vec<&str> = system.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    let system = Some(system.join("\n\n")).filter(|prompt| !prompt.is_empty()).map(Message::system);
    // Without tools there is no finish tool either, so the reply has to be a text.
    let instead = shape.as_deref().filter(|_| mode == OutputMode::Tool && !call.tools);
    let conversation = repaired(state.messages.iter().chain(synthetic));
    let hints = instead.into_iter().chain(call.hints.iter().map(AsRef::as_ref));
    let hints = hints.chain(state.hints.iter().map(String::as_str)).map(Message::synthetic);
    let tools = if call.tools { deps.tools.specs() } else { Vec::new() };
    Request {
        messages: system.into_iter().chain(conversation).chain(hints).collect(),
        tools: tools.into_iter().chain(finishing.tool().filter(|_| call.tools)).collect(),
        output_schema: schema.filter(|_| mode == OutputMode::Native),
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
