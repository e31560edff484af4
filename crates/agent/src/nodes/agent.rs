//! The third node: one model call. It executes no tool.

use superstep_graph::{Cx, NodeError, State};
use superstep_llm::{Message, ModelError, Usage};

use super::{
    answer,
    asked::{Asked, by_model},
    budget::{Spent, of_turn},
    chunk::{message_id, tell_message},
    loops,
    make_room::{Room, summary_due},
    next_call::{NextCall, Plan},
    parts,
    progress::Progress,
    reasoning_hooks,
    request::{request, synthetic},
    steered::{self, Steered, is_waiting, steered},
};
use crate::{AgentDeps, AgentState, AgentStateUpdate, HookFailure, ModelFailure, events, texts};

/// Asks the model, unless the turn is over: the checks come first, then the call, streamed token by token.
///
/// # Errors
/// At a limit that is to fail the run.
pub(crate) async fn agent(deps: AgentDeps, state: AgentState, cx: Cx) -> Result<AgentStateUpdate, NodeError> {
    let deps = AgentDeps { config: of_turn(deps.config.clone(), &state), ..deps };
    if let Some(update) = summary_due(&deps, &state, &cx) {
        return Ok(update);
    }
    events::node_start(&cx);
    let update = step(&deps, &state, &cx).await;
    events::node_end(&cx);
    update.map(|update| update.unwrap_or_else(AgentState::update))
}

/// Nothing if another node has ended the turn already.
async fn step(deps: &AgentDeps, state: &AgentState, cx: &Cx) -> Result<Option<AgentStateUpdate>, NodeError> {
    if state.stop {
        return Ok(None);
    }
    if cx.cancel().is_cancelled() {
        return Ok(Some(stop("cancelled")));
    }
    let mut call = match NextCall::plan(&deps.config, state, cx.now_ms()) {
        Plan::Call(call) => call,
        Plan::Stop(reason) => return Ok(Some(stop(reason))),
        Plan::Fail => return Err(NodeError::new(OutOfSteps(deps.config.limit.max)).fatal()),
    };
    if call.tools
        && let Some(found) = loops::stops(deps, state)
    {
        events::loop_detected(cx, found.rule, &found.tool, found.n);
        return Ok(Some(stop("loop_detected")));
    }
    if let Some(found) = loops::warns(deps, state) {
        events::loop_detected(cx, found.rule, &found.tool, found.n);
        call.hints.push(texts::loop_warning(&found.tool, found.n).into());
    }
    let mut room = match Room::make(deps, state, cx) {
        Ok(room) => room,
        Err(failure) => return Ok(Some(stop("llm_error").error(failure))),
    };
    let Steered { messages, last } = steered(state, cx).await?;
    let new: Vec<Message> = synthetic(deps, state, cx).into_iter().chain(messages).collect();
    room.newest = new.last().map_or(room.newest, |newest| newest.id.clone());
    let sent = request(deps, state, &room.view, &call, &new);
    let sent = match reasoning_hooks::before(deps, sent, cx).await {
        Ok(sent) => sent,
        Err(failure) => return Ok(Some(hook_failed(failure))),
    };
    let message = message_id(state, cx);
    let mut asked = Asked::new(message.clone());
    let mut progress = Progress::new(deps, state);
    let ended = tokio::select! {
        biased;
        () = cx.cancel().cancelled() => None,
        ended = asked.ask(deps, state, sent.clone(), &mut progress, cx) => Some(ended),
    };
    let (requests, mut usage, mut guess) = (asked.sent(), asked.usage(), Usage::default());
    let (streamed, model) = (asked.streamed || progress.has_told(), asked.model.clone());
    let partial = asked.answer.partial();
    let response = ended.map(|ended| ended.and_then(|()| std::mem::take(&mut asked.answer).finish()));
    let mut calls = 0;
    let response = match response {
        Some(Ok(response)) => {
            calls = response.message.tool_calls.len();
            let hooked = reasoning_hooks::after(deps, &sent, response, (&message, requests), cx).await;
            Some(hooked.map_err(Unanswered::Hook))
        }
        other => other.map(|failed| failed.map_err(Unanswered::Model)),
    };
    let kept = match response {
        None | Some(Err(Unanswered::Model(_))) => {
            calls = partial.tool_calls.len();
            answer::kept(&deps.config, state, partial, cx)
        }
        _ => None,
    };
    if streamed && kept.is_none() && !matches!(response, Some(Ok(_))) {
        // What was streamed is no message, so whoever listens has to forget it.
        events::attempt_discarded(cx, requests);
    }
    // What is new in this request is part of the conversation once it was answered.
    let said = |mut update: AgentStateUpdate, answer: Vec<Message>, cut_off: bool| {
        if answer.is_empty() {
            return update;
        }
        if last > state.steered {
            update = update.steered(last);
        }
        if deps.config.parts {
            let parts = answer.iter().flat_map(|message| parts::of_message(message, cut_off, cx));
            update = update.parts(parts.inspect(|part| events::part(cx, part)).collect::<Vec<_>>());
        }
        update.messages(new.into_iter().chain(answer).collect::<Vec<_>>())
    };
    let update = match response {
        None => {
            tell_message(cx, &message, kept.as_ref(), calls);
            said(stop("cancelled"), kept.into_iter().collect(), true)
        }
        Some(Ok(response)) => {
            let estimated = response.usage.is_none() && !deps.config.budget.is_unbounded();
            if estimated {
                guess = room.estimate(&call, &response.message);
                usage = usage + guess;
            }
            room.fitted(&call, response.usage);
            let spent = Spent { usage: state.usage + usage, ..Spent::of(state, cx.now_ms()) };
            let mut state = state.clone();
            state.answer.estimated |= estimated;
            if let Some((budget, percent)) = spent.nears(&deps.config.budget)
                && !std::mem::replace(&mut state.answer.budget_warned, true)
            {
                events::budget_warning(cx, budget, percent);
            }
            let mut accepted = answer::accept(&deps.config, &state, response, &call, &spent, cx);
            tell_message(cx, &message, accepted.message.as_ref(), calls);
            if streamed && accepted.message.is_none() {
                events::attempt_discarded(cx, requests);
            }
            if accepted.is_reply && accepted.answer.steered < steered::MOST && is_waiting(last, cx).await? {
                accepted.answer.again = true;
                accepted.answer.steered += 1;
            }
            accepted.update = accepted.update.answer(accepted.answer);
            let update = match model {
                Some(model) => accepted.update.model(model),
                None => accepted.update,
            };
            let update = match &accepted.message {
                Some(_) if !state.hints.is_empty() => update.clear_hints(),
                _ => update,
            };
            said(update, accepted.message.into_iter().chain(accepted.told).collect(), accepted.answer.cut_off)
        }
        Some(Err(unanswered)) => {
            tell_message(cx, &message, kept.as_ref(), calls);
            let update = match unanswered {
                Unanswered::Model(error) if kept.is_none() && room.retries(&error) => AgentState::update(),
                Unanswered::Model(error) => stop("llm_error").error(failure(error)),
                Unanswered::Hook(failure) => hook_failed(failure),
            };
            said(update, kept.into_iter().collect(), true)
        }
    };
    let main = deps.models.main.name();
    let by_model = by_model(state, main, asked.usage_by_model(main, guess));
    let update = room.write(update);
    let update = update.usage(state.usage + usage).model_requests(state.model_requests + requests);
    Ok(Some(if by_model.is_empty() { update } else { update.usage_by_model(by_model) }))
}

fn stop(reason: &str) -> AgentStateUpdate {
    AgentState::update().stop(true).stop_reason(reason)
}

fn hook_failed(failure: HookFailure) -> AgentStateUpdate {
    stop("hook_error").hook_error(failure)
}

/// Why there is no answer.
enum Unanswered {
    Model(ModelError),
    Hook(HookFailure),
}

/// The step limit of a design that fails at it.
#[derive(Debug, thiserror::Error)]
#[error("the turn reached its limit of {0} without an answer")]
struct OutOfSteps(u32);

fn failure(error: ModelError) -> ModelFailure {
    let retry_after_ms = error.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    ModelFailure { kind: error.kind, status: error.status, message: error.message, retry_after_ms }
}
