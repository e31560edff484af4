//! The model's request.

use std::borrow::Cow;

use superstep_graph::Cx;
use superstep_llm::{Accepts, Media, Message, Request};

use super::next_call::NextCall;
use crate::{
    AgentState,
    config::{MediaConfig, OutputMode, prompts},
    context::{
        finish::Finishing,
        frame::{Frame, synthetic_text},
        shown::{Shown, without_first_media},
    },
    deps::AgentDeps,
    state::ContextView,
    transcript::repair::repaired,
};

/// Creates a request: the view of the conversation, its `new` messages, and the messages of this request
/// only.
pub(super) fn request(
    deps: &AgentDeps,
    state: &AgentState,
    view: &ContextView,
    call: &NextCall<'_>,
    new: &[Message],
) -> Request {
    let finishing = Finishing::of(&deps.config, state);
    let (schema, mode) = (finishing.of_text(), finishing.mode());
    let Frame { system, tools } = Frame::of(deps, state);
    // Without tools there is no finish tool either, so the reply has to be a text.
    let instead =
        schema.as_ref().filter(|_| mode == OutputMode::Tool && !call.tools).map(prompts::output_schema);
    let shown = Shown::new(&state.messages, view, deps.config.context.micro());
    let order = deps.config.result_order;
    let mut conversation = repaired(shown.messages().chain(new.iter().map(Cow::Borrowed)), order);
    fit_media(&mut conversation, deps.models.main.accepts(), &deps.config.media);
    let hints = instead.as_deref().into_iter().chain(call.hints.iter().map(AsRef::as_ref));
    let hints = hints.chain(state.hints.iter().map(String::as_str)).map(Message::synthetic);
    Request {
        messages: system.into_iter().chain(conversation).chain(hints).collect(),
        tools: if call.tools { tools } else { Vec::new() },
        output_schema: schema.filter(|_| mode == OutputMode::Native),
        ..Request::default()
    }
}

/// Removes media that the model does not accept, or that exceed the request's limit.
fn fit_media(conversation: &mut [Message], accepts: Accepts, config: &MediaConfig) {
    for message in &mut *conversation {
        message.media.retain(|media| accepts.takes(media.mime));
    }
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
