//! The third node: one model call. It executes no tool.

use std::time::Duration;

use futures::StreamExt;
use superstep_graph::{Cx, State};
use superstep_llm::{Assembler, Delta, FinishReason, Message, ModelError, Request, Response, Usage};
use tokio::time::Instant;

use super::{loops, repair::repaired};
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
    let mut asked = Asked::default();
    let ended = tokio::select! {
        biased;
        () = cx.cancel().cancelled() => None,
        ended = asked.ask(deps, request(deps, state, out_of_steps), cx) => Some(ended),
    };
    let (requests, usage) = (asked.sent(), asked.usage());
    let streamed = asked.streamed;
    let response = ended.map(|ended| ended.and_then(|()| asked.answer.finish()));
    if streamed && !matches!(response, Some(Ok(_))) {
        // What was streamed is no message, so whoever listens has to forget it.
        events::attempt_discarded(cx, requests);
    }
    let update = match response {
        None => stop("cancelled"),
        Some(Ok(response)) => accept(state, response, out_of_steps, cx),
        Some(Err(error)) => stop("llm_error").error(failure(error)),
    };
    update.model_requests(state.model_requests + requests).usage(state.usage + usage)
}

fn stop(reason: &str) -> AgentStateUpdate {
    AgentState::update().stop(true).stop_reason(reason)
}

fn request(deps: &AgentDeps, state: &AgentState, out_of_steps: bool) -> Request {
    let system = Some(&deps.config.system_prompt).filter(|prompt| !prompt.is_empty()).map(Message::system);
    Request {
        messages: system.into_iter().chain(repaired(state.messages.iter())).collect(),
        tools: if out_of_steps { Vec::new() } else { deps.tools.specs() },
        ..Request::default()
    }
}

/// One question to the model, and what has come of it so far.
#[derive(Default)]
struct Asked {
    answer: Assembler,
    /// Failed attempts that are to be followed by another one.
    retries: u32,
    /// Until when the last of them waits.
    waits: Option<Instant>,
    /// Whether the current attempt has said anything.
    streamed: bool,
    /// Tokens of the current attempt, and of those before it.
    current: Usage,
    spent: Usage,
}

impl Asked {
    async fn ask(&mut self, deps: &AgentDeps, request: Request, cx: &Cx) -> Result<(), ModelError> {
        let mut stream = deps.model.stream(request);
        while let Some(delta) = stream.next().await {
            let delta = delta?;
            self.waits = None;
            match &delta {
                Delta::Text(token) => events::llm_token(cx, token, ""),
                Delta::Reasoning(token) => events::llm_token(cx, "", token),
                Delta::Retry { attempt, delay_ms, status, reason } => {
                    self.retries += 1;
                    self.waits = Some(Instant::now() + Duration::from_millis(*delay_ms));
                    events::retry(cx, *attempt, *delay_ms, *status, reason);
                }
                Delta::AttemptDiscarded { attempt } => {
                    self.spent = self.usage();
                    self.current = Usage::default();
                    events::attempt_discarded(cx, *attempt);
                }
                Delta::Usage(usage) => self.current = *usage,
                Delta::ToolCall { .. } | Delta::Finish(_) => {}
            }
            self.streamed = match delta {
                Delta::Text(_) | Delta::Reasoning(_) => true,
                Delta::AttemptDiscarded { .. } => false,
                _ => self.streamed,
            };
            self.answer.push(&delta);
        }
        Ok(())
    }

    /// How many requests were sent. One that still waits for its turn was not.
    fn sent(&self) -> u32 {
        let waits = self.waits.is_some_and(|until| Instant::now() < until);
        1 + self.retries - u32::from(waits)
    }

    fn usage(&self) -> Usage {
        self.spent + self.current
    }
}

fn accept(state: &AgentState, response: Response, out_of_steps: bool, cx: &Cx) -> AgentStateUpdate {
    let Response { mut message, finish, .. } = response;
    let cut_off = matches!(finish, FinishReason::Length | FinishReason::ContentFilter);
    message.id = cx.id("message");
    let mut update = AgentState::update().llm_calls(state.llm_calls + 1);
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
