//! The third node: one model call. It executes no tool.

use futures::StreamExt;
use superstep_graph::{Cx, State};
use superstep_llm::{Assembler, Delta, FinishReason, Message, ModelError, Request, Response};

use super::loops;
use crate::{AgentDeps, AgentState, AgentStateUpdate, ModelFailure, events};

/// Asks the model, unless the turn is over: the checks come first, then the call, streamed token by token.
pub(crate) async fn agent(deps: AgentDeps, state: AgentState, cx: Cx) -> AgentStateUpdate {
    events::node_start(&cx);
    let update = step(&deps, &state, &cx).await;
    events::node_end(&cx);
    update
}

async fn step(deps: &AgentDeps, state: &AgentState, cx: &Cx) -> AgentStateUpdate {
    if cx.cancel().is_cancelled() {
        return stop("cancelled");
    }
    let out_of_steps = state.current_step >= state.max_steps;
    if !out_of_steps && let Some(found) = loops::find(&deps.config.loops, state) {
        events::loop_detected(cx, found.rule, &found.tool, found.n);
        return stop("loop_detected");
    }
    let mut answer = Assembler::new();
    let mut requests = 1;
    let asked = tokio::select! {
        biased;
        () = cx.cancel().cancelled() => None,
        asked = ask(deps, request(deps, state, out_of_steps), cx, &mut answer, &mut requests) => Some(asked),
    };
    let model_requests = state.model_requests + requests;
    match asked.map(|asked| asked.and_then(|()| answer.finish())) {
        None => stop("cancelled").model_requests(model_requests),
        Some(Ok(response)) => accept(state, response, out_of_steps, cx).model_requests(model_requests),
        Some(Err(error)) => stop("llm_error").model_requests(model_requests).error(failure(error)),
    }
}

fn stop(reason: &str) -> AgentStateUpdate {
    AgentState::update().stop(true).stop_reason(reason)
}

fn request(deps: &AgentDeps, state: &AgentState, out_of_steps: bool) -> Request {
    let system = Some(&deps.config.system_prompt).filter(|prompt| !prompt.is_empty()).map(Message::system);
    Request {
        messages: system.into_iter().chain(state.messages.iter().cloned()).collect(),
        tools: if out_of_steps { Vec::new() } else { deps.tools.specs() },
        ..Request::default()
    }
}

/// Streams the answer into `answer`, counting requests.
async fn ask(
    deps: &AgentDeps,
    request: Request,
    cx: &Cx,
    answer: &mut Assembler,
    requests: &mut u32,
) -> Result<(), ModelError> {
    let mut stream = deps.model.stream(request);
    while let Some(delta) = stream.next().await {
        let delta = delta?;
        match &delta {
            Delta::Text(token) => events::llm_token(cx, token, ""),
            Delta::Reasoning(token) => events::llm_token(cx, "", token),
            Delta::Retry { attempt, delay_ms, status, reason } => {
                *requests += 1;
                events::retry(cx, *attempt, *delay_ms, *status, reason);
            }
            Delta::AttemptDiscarded { attempt } => events::attempt_discarded(cx, *attempt),
            Delta::ToolCall { .. } | Delta::Usage(_) | Delta::Finish(_) => {}
        }
        answer.push(&delta);
    }
    Ok(())
}

fn accept(state: &AgentState, response: Response, out_of_steps: bool, cx: &Cx) -> AgentStateUpdate {
    let Response { mut message, finish, usage, .. } = response;
    let cut_off = matches!(finish, FinishReason::Length | FinishReason::ContentFilter);
    message.id = cx.id("message");
    let mut update =
        AgentState::update().llm_calls(state.llm_calls + 1).usage(state.usage + usage.unwrap_or_default());
    if out_of_steps {
        // It was offered no tools. What it calls all the same must not lead back to them.
        update = update.stop_reason("max_steps").ignored_tool_calls(std::mem::take(&mut message.tool_calls));
    }
    if cut_off && message.tool_calls.is_empty() {
        events::truncated_answer(cx);
    }
    update.cut_off(cut_off).messages([message])
}

fn failure(error: ModelError) -> ModelFailure {
    let retry_after_ms = error.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    ModelFailure { kind: error.kind, status: error.status, message: error.message, retry_after_ms }
}
