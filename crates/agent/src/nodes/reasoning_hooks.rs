//! The hooks around requests and responses.

use superstep_graph::Cx;
use superstep_llm::{MessageData, Request, Response};

use super::chunk::emit_text;
use crate::{AgentEvent, deps::AgentDeps, events::emit, repair::conversation::repaired, state::HookFailure};

/// Runs the hooks on the request and repairs the result. A cancellation leaves it unchanged.
pub(super) async fn before(deps: &AgentDeps, request: Request, cx: &Cx) -> Result<Request, HookFailure> {
    let hooks = &deps.hooks.reasoning;
    if hooks.is_empty() {
        return Ok(request);
    }
    let hooked = tokio::select! {
        biased;
        () = cx.cancel().cancelled() => return Ok(request),
        hooked = hooks.before("reasoning", request.clone()) => hooked?,
    };
    if hooked == request {
        return Ok(request);
    }
    Ok(Request { messages: repaired(hooked.messages, deps.config.result_order), ..hooked })
}

/// Runs the hooks on the response. If they change it, the streamed text is discarded and theirs is streamed, unless guards hold
/// the text back. `None` if a cancellation stopped them.
pub(super) async fn after(
    deps: &AgentDeps,
    request: Option<&Request>,
    mut response: Response,
    (id, attempt, is_held): (&str, u32, bool),
    streamed: &mut bool,
    cx: &Cx,
) -> Result<Option<Response>, HookFailure> {
    let (Some(request), hooks) = (request, &deps.hooks.reasoning) else { return Ok(Some(response)) };
    let hooked = tokio::select! {
        biased;
        () = cx.cancel().cancelled() => return Ok(None),
        hooked = hooks.after("reasoning", request, response.message.clone()) => hooked?,
    };
    if hooked == response.message {
        return Ok(Some(response));
    }
    if !is_held {
        emit(cx, || AgentEvent::AttemptDiscarded { attempt });
        cx.discard_message(id);
        *streamed = !(hooked.content.is_empty() && hooked.reasoning.is_empty());
        emit_text(cx, &hooked);
    }
    let MessageData { content, reasoning, tool_calls, .. } = hooked.into_data();
    let message = response.message.to_mut();
    (message.content, message.reasoning, message.tool_calls) = (content, reasoning, tool_calls);
    Ok(Some(response))
}
