//! The model's request.

use std::borrow::Cow;

use superstep_graph::Cx;
use superstep_llm::{
    Message, Request,
    media::{Accepts, Media},
    toolset::ToolSpecs,
};

use super::next_call::NextCall;
use crate::{
    AgentState,
    config::{MediaConfig, OutputMode, prompts},
    context::{
        finish::Finishing,
        frame::{Frame, SystemMessage, synthetic_text},
        shown::{Shown, without_first_media},
    },
    deps::AgentDeps,
    repair::conversation::repaired,
    state::ContextView,
};

/// The space for messages around the conversation.
const AROUND: usize = 8;

/// Creates a request: the view of the conversation, its `new` messages, and the messages of this request
/// only.
pub(super) fn request(
    deps: &AgentDeps,
    state: &AgentState,
    view: &ContextView,
    call: &NextCall<'_>,
    (last_system, new): (&SystemMessage, &[Message]),
) -> Request {
    let finishing = Finishing::of(&deps.config, state);
    let (schema, mode) = (finishing.of_text(), finishing.mode());
    let Frame { system, tools } = Frame::of(deps, state);
    let shown = Shown::new(&state.messages, view, deps.config.context.micro());
    let hints = hints(deps, state, call).into_iter().map(Message::synthetic);
    let conversation = shown.messages().chain(new.iter().cloned());
    let mut messages = Vec::with_capacity(state.messages.len() + new.len() + AROUND);
    // `extend` would ask each part of the chain for each message.
    let system = system.map(|text| last_system.of(&text));
    system.into_iter().chain(conversation).chain(hints).for_each(|message| messages.push(message));
    let mut messages = repaired(messages, deps.config.result_order);
    fit_media(&mut messages, deps.models.main.accepts(), &deps.config.media);
    Request {
        messages,
        earlier_tools: if call.tools { ToolSpecs::default() } else { tools.clone() },
        tools: if call.tools { tools } else { ToolSpecs::default() },
        json_text: schema.is_some() && mode != OutputMode::Tool,
        output_schema: schema.filter(|_| mode == OutputMode::Native),
        ..Request::default()
    }
}

/// Returns the texts at the end of this request only. A model that signs what precedes its answers has none: see [`kept_hints`].
pub(super) fn hints<'a>(
    deps: &AgentDeps,
    state: &'a AgentState,
    call: &'a NextCall<'_>,
) -> Vec<Cow<'a, str>> {
    if call.keeps_hints { Vec::new() } else { all_hints(deps, state, call) }
}

/// Returns the hints as messages that stay in the conversation, since the reasoning of the answer is valid behind them only.
pub(super) fn kept_hints(deps: &AgentDeps, state: &AgentState, call: &NextCall<'_>, cx: &Cx) -> Vec<Message> {
    if !call.keeps_hints {
        return Vec::new();
    }
    let hints = all_hints(deps, state, call).into_iter().enumerate();
    hints.map(|(n, hint)| Message::synthetic(hint).with_id(cx.id(format!("hint.{n}")))).collect()
}

fn all_hints<'a>(deps: &AgentDeps, state: &'a AgentState, call: &'a NextCall<'_>) -> Vec<Cow<'a, str>> {
    let finishing = Finishing::of(&deps.config, state);
    // Without tools there is no finish tool either, so the reply has to be a text.
    let is_instead = finishing.mode() == OutputMode::Tool && !call.tools;
    let schema = finishing.of_text().filter(|_| is_instead).map(|schema| prompts::output_schema(&schema));
    let hints = call.hints.iter().map(|hint| Cow::Borrowed(&**hint));
    let stored = state.hints.iter().map(|hint| Cow::Borrowed(&**hint));
    schema.map(Cow::Owned).into_iter().chain(hints).chain(stored).collect()
}

/// Removes media that the model does not accept, or that exceed the request's limit.
fn fit_media(conversation: &mut [Message], accepts: Accepts, config: &MediaConfig) {
    conversation.iter_mut().for_each(|message| message.fit_media(accepts));
    let sizes: Vec<usize> =
        conversation.iter().flat_map(|message| &message.media).map(Media::bytes).collect();
    let mut left_out = config.of_request(&sizes).start;
    for message in conversation.iter_mut().filter(|message| !message.media.is_empty()) {
        let n = left_out.min(message.media.len());
        left_out -= n;
        if n > 0 {
            *message = without_first_media(message.clone(), n);
        }
    }
}

/// Returns the configured message after a round of tools, if any. It joins the conversation.
pub(super) fn synthetic(deps: &AgentDeps, state: &AgentState, cx: &Cx) -> Option<Message> {
    Some(Message::synthetic(synthetic_text(deps, state)?).with_id(cx.id("synthetic")))
}
