//! One model call and the handling of its result.

use std::{collections::BTreeMap, time::Duration};

use superstep_graph::{Cx, State, checkpoint::CheckpointError, replay::ComparedTask};
use superstep_llm::{
    ChatModel, FinishReason, Message, Request, Response, Role, ToolCall, ToolRegistry, Usage,
    models::NanoDollars,
};

use super::{
    accept_response::{self, Accepted, BreakOff},
    attempts::{with_costs, with_usage},
    budget::{expired, time_left, warned},
    chunk::{emit_message, emit_text, message_id},
    fit_request::RequestSpace,
    memory_trigger,
    model_call::ModelCall,
    next_call::NextCall,
    offered, parts,
    progress::Progress,
    reasoning_hooks,
    recorded_response::{End, Print, RecordedResponse, StoredResponse, failure},
    request_changes::{HINTS, RequestChanges, own_hints, recorded_frame},
    steering_input::is_waiting,
};
use crate::{
    AgentEvent, AgentOutcome, AgentState,
    config::limit::MAX_STEERED,
    context::finish::{Finishing, meant},
    deps::AgentDeps,
    events::emit,
    guards::GuardAt,
    state::{
        AgentStateUpdate, BudgetLimit, Draft, Guarding, HookFailure, LastAnswer, ModelCost, RequestFrame,
        StopReason, TurnCost, cost::cost_of, spent::Spent,
    },
    trace,
};

// Without any time there would be no reply, and without a limit the time budget would limit nothing.
/// The fraction of a turn's time available to a reserved call after that time is over.
const RESERVED_SHARE: u32 = 4;

pub(super) struct PlannedCall<'a> {
    pub(super) deps: &'a AgentDeps,
    /// The tools without those of sources.
    pub(super) own: &'a ToolRegistry,
    pub(super) state: &'a AgentState,
    pub(super) cx: &'a Cx,
    pub(super) next: NextCall<'a>,
    pub(super) space: RequestSpace<'a>,
    /// The new messages of this request. They join the conversation after the response.
    pub(super) new: Vec<Message>,
    /// The number of the last steering message among them.
    pub(super) steered: u64,
    /// The warning about the turn's time was emitted during it.
    pub(super) warned: bool,
}

/// The streamed part of a response.
struct Streamed {
    /// The id of its message.
    message: String,
    /// Number of requests sent for it.
    requests: u32,
    /// Something was streamed.
    any: bool,
    /// Number of its tool calls.
    calls: usize,
}

/// The turn's tokens and costs.
struct Totals {
    usage: Usage,
    costs: BTreeMap<String, ModelCost>,
}

impl PlannedCall<'_> {
    /// Calls the model and returns the update.
    ///
    /// # Errors
    /// If the check for steering messages fails.
    pub(super) async fn run(self, sent: Request) -> Result<AgentStateUpdate, CheckpointError> {
        offered::compared(&sent, self.cx).await;
        let frame = self.compared(&sent).await;
        let update = self.call(sent).await?;
        Ok(match frame {
            Some(frame) => update.frame(frame),
            None => update,
        })
    }

    /// Compares the request with the recorded one. Returns its frame for the state, if it changed.
    async fn compared(&self, sent: &Request) -> Option<RequestFrame> {
        let (deps, state, cx) = (self.deps, self.state, self.cx);
        if !cx.is_recorded() {
            return None;
        }
        let model = &*deps.models.main;
        let mut frame = self.changed_frame(sent);
        cx.described(HINTS, &own_hints(sent, state));
        let (is_live, new) = (cx.is_live(), &mut frame);
        let changes = |task: ComparedTask<'_>| {
            let (written, known) = recorded_frame(task, state);
            // A replay writes what the thread has, also of a live model.
            *new = written;
            let model = (!is_live).then_some(model as &dyn ChatModel);
            RequestChanges { sent, state, frame: known.as_ref(), model, task }.list()
        };
        cx.compared_with("model", || Print::of(sent), changes).await;
        frame
    }

    /// Returns the frame of the request, if it is not that of the state.
    fn changed_frame(&self, sent: &Request) -> Option<RequestFrame> {
        let Self { deps, own, state, .. } = self;
        let is_sourced = |name: &str| deps.tools.get(name).is_some() && own.get(name).is_none();
        let has_sourced = deps.tools.names().count() > own.names().count();
        let is_sourced = has_sourced.then_some(&is_sourced as &dyn Fn(&str) -> bool);
        state.frame.changed(&*deps.models.main, sent, is_sourced)
    }

    async fn call(mut self, sent: Request) -> Result<AgentStateUpdate, CheckpointError> {
        let (deps, state, cx) = (self.deps, self.state, self.cx);
        let mut recorded: RecordedResponse = cx.recorded("model", || Box::pin(self.ask(sent))).await;
        self.warned = recorded.warned;
        if recorded.bare {
            self.space.without_reasoning();
        }
        let (requests, unreported) = (recorded.requests, recorded.unreported);
        let streamed = Streamed {
            message: message_id(state, cx),
            requests,
            any: recorded.streamed,
            calls: recorded.end.calls(),
        };
        let mut guess = match &recorded.end {
            End::Cancelled { partial } | End::OutOfTime { partial } if unreported => {
                let guess = self.space.estimate_stopped(&self.next, partial);
                Usage { output_tokens: recorded.withheld.unwrap_or(guess.output_tokens), ..guess }
            }
            _ => Usage::default(),
        };
        let flagged = LastAnswer {
            estimated: state.answer.estimated || unreported,
            budget_warned: state.answer.budget_warned || self.warned,
            ..state.answer
        };
        let stopped = |reason: StopReason| {
            if unreported { stop(reason).answer(flagged) } else { stop(reason) }
        };
        let update = match recorded.end.take() {
            End::NotSent(failure) => return Ok(hook_failed(failure)),
            End::Answered(answered) => {
                let response = answered.into_response(requests);
                guess = self.guess(&response);
                let calls = recorded.tokens.clone().by_model(deps.models.main.name(), guess);
                let usage = state.usage + recorded.tokens.total() + guess;
                let totals = Totals { usage, costs: with_costs(state, &calls) };
                self.on_response(response, streamed, recorded.tokens.model.as_deref(), totals).await?
            }
            End::Rejected { failure, .. } => self.on_failure(None, streamed, hook_failed(failure)),
            End::Failed { error, partial } => {
                let retained = self.retained(partial, BreakOff::Failed);
                let update = if retained.is_some() || !self.space.retries(&error) {
                    stop(AgentOutcome::LlmError).error(error)
                } else if self.warned {
                    AgentState::update().answer(flagged)
                } else {
                    AgentState::update()
                };
                self.on_failure(retained, streamed, update)
            }
            End::Cancelled { partial } => {
                let retained = self.retained(partial, BreakOff::Stopped);
                self.on_failure(retained, streamed, stopped(AgentOutcome::Cancelled.into()))
            }
            End::OutOfTime { .. }
                if deps.config.budget.reserve_final && !matches!(self.next.reason, StopReason::Budget(_)) =>
            {
                // The next call is the reserved one.
                let answer = LastAnswer { again: true, ..flagged };
                self.on_failure(None, streamed, AgentState::update().answer(answer))
            }
            End::OutOfTime { partial } => {
                let retained = self.retained(partial, BreakOff::Stopped);
                self.on_failure(retained, streamed, stopped(BudgetLimit::Wall.into()))
            }
        };
        let (main, usage) = (deps.models.main.name(), recorded.tokens.total() + guess);
        let update = self.space.write(update).model_requests(state.model_requests + requests);
        Ok(with_usage(update, state, main, usage, recorded.tokens.by_model(main, guess)))
    }

    /// Returns the stored message of a response that broke off.
    fn retained(&self, partial: Message, broke: BreakOff) -> Option<Message> {
        accept_response::partial_message(&self.deps.config, self.state, partial, broke, self.cx)
    }

    /// Calls the models, between the hooks.
    async fn ask(&self, sent: Request) -> RecordedResponse {
        let (deps, state, cx) = (self.deps, self.state, self.cx);
        let sent = match reasoning_hooks::before(deps, sent, cx).await {
            Ok(sent) => sent,
            Err(failure) => return RecordedResponse::not_sent(failure),
        };
        // Only post hooks read it again, and copies of long conversations are expensive.
        let has_post = deps.hooks.reasoning.has_post();
        let read_again = has_post.then(|| sent.clone());
        let (message, is_held) = (message_id(state, cx), deps.guards.hold(&state.active));
        let mut model_call = ModelCall::new(message.clone(), is_held);
        let mut progress = Progress::new(deps, state, self.next.tools);
        let mut out_of_time = false;
        let (left, patience) = self.patience();
        let asked = async {
            tokio::select! {
                biased;
                () = cx.cancel().cancelled() => None,
                ended = model_call.ask(deps, state, sent, &mut progress, cx) => Some(ended),
                () = expired(patience) => {
                    out_of_time = true;
                    None
                }
            }
        };
        let (ended, is_warned) = warned((&deps.config.budget, left), state, cx, asked).await;
        let requests = model_call.sent();
        let mut streamed = model_call.streamed || progress.has_emitted();
        // Text that the hooks or guards have not processed is not stored: it would contain what they remove, such as a secret, and be sent
        // with every later request.
        let is_checked = has_post || deps.guards.guard(&state.active);
        let partial = |model_call: &ModelCall| {
            if is_checked { Message::assistant("") } else { model_call.answer.partial() }
        };
        let mut withheld = is_checked.then(|| model_call.answer.partial());
        let ended = match ended {
            Some(Ok(())) if model_call.answer.is_finished() => {
                Some(std::mem::take(&mut model_call.answer).finish())
            }
            // A copy, because the text of a truncated response is stored like that of an interrupted one.
            Some(Ok(())) => Some(model_call.answer.clone().finish()),
            Some(Err(error)) => Some(Err(error)),
            None => None,
        };
        let end = match ended {
            Some(Ok(response)) => {
                let calls = response.message.tool_calls.len();
                let about = (&*message, requests, is_held);
                withheld = is_checked.then(|| response.message.clone());
                match reasoning_hooks::after(deps, read_again.as_ref(), response, about, &mut streamed, cx)
                    .await
                {
                    Ok(Some(response)) => End::Answered(StoredResponse::new(response, calls)),
                    Ok(None) => End::Cancelled { partial: partial(&model_call) },
                    Err(failure) => End::Rejected { failure, calls },
                }
            }
            Some(Err(error)) => End::Failed { error: failure(error, cx), partial: partial(&model_call) },
            None if out_of_time => End::OutOfTime { partial: partial(&model_call) },
            None => End::Cancelled { partial: partial(&model_call) },
        };
        let mut recorded = RecordedResponse::new(model_call, end, &*deps.models.main, streamed);
        recorded.warned = is_warned;
        if let Some(text) = withheld.filter(|_| recorded.unreported) {
            recorded.withheld = Some(self.space.output_tokens(&text));
        }
        let configured = deps.config.budget.cost.filter(|cost| cost.has_prices());
        let configured = configured.map(|prices| prices.of(recorded.tokens.total(), None));
        let cost = configured.or_else(|| recorded.tokens.cost().map(NanoDollars::dollars));
        trace::paid(deps.models.main.name(), cost);
        recorded
    }

    /// Returns the remaining time of the turn, and the time limit of the model, if the turn has one.
    fn patience(&self) -> (Option<Duration>, Option<Duration>) {
        let left = time_left(&self.deps.config, self.state, self.cx);
        let reserved = self.deps.config.budget.wall.map(|wall| wall / RESERVED_SHARE);
        (left, if left.is_some_and(|left| left.is_zero()) { reserved } else { left })
    }

    /// Returns whether tokens are estimated: none were reported in this turn, or the budget requires them.
    fn is_guessed(&self, response: &Response) -> bool {
        response.usage.is_none() && is_guessed(self.deps, self.state)
    }

    fn guess(&mut self, response: &Response) -> Usage {
        if self.is_guessed(response) {
            self.space.estimate(&self.next, &response.message)
        } else {
            Usage::default()
        }
    }

    /// Handles a response; `totals` include it.
    async fn on_response(
        &mut self,
        response: Response,
        streamed: Streamed,
        model: Option<&str>,
        totals: Totals,
    ) -> Result<AgentStateUpdate, CheckpointError> {
        let (deps, cx) = (self.deps, self.cx);
        let Streamed { message, requests, any, calls } = streamed;
        self.space.fitted(&self.next, response.usage);
        if response.finish == FinishReason::ContextFull {
            self.space.filled();
        }
        let Totals { usage, costs } = totals;
        let cost = cost_of(usage, &self.state.usage_by_model, &costs).and_then(TurnCost::whole);
        let spent = Spent { usage, cost, ..self.state.spent(cx.now_ms()) };
        let mut state = self.state.clone();
        state.answer.estimated |= self.is_guessed(&response);
        state.answer.budget_warned |= self.warned;
        if let Some((budget, percent)) = spent.nears(&deps.config.budget)
            && !std::mem::replace(&mut state.answer.budget_warned, true)
        {
            emit(cx, || AgentEvent::BudgetWarning { budget, percent });
        }
        let mut accepted = accept_response::accept(&deps.config, &state, response, &self.next, &spent, cx);
        let waits = self.waits(&accepted);
        if !waits {
            self.emit_accepted(&message, &accepted, calls);
        }
        if any && (accepted.message.is_none() || accepted.repeats) {
            emit(cx, || AgentEvent::AttemptDiscarded { attempt: requests });
        }
        if accepted.is_reply && accepted.answer.steered < MAX_STEERED && is_waiting(self.steered, cx).await? {
            (state.answer, state.llm_calls) = (accepted.answer, state.llm_calls + 1);
            (state.usage, state.estimated_cost) = (usage, costs);
            // At a limit or without a budget this reply stands, and the next turn reads the message.
            if NextCall::is_due(deps, &state, cx.now_ms()) {
                accepted.answer.again = true;
                accepted.answer.steered += 1;
                if Finishing::of(&deps.config, &state).has_schema() {
                    // The value of a reply that is not the last one.
                    accepted.update = accepted.update.output(None);
                }
            }
        }
        let mut update = accepted.update.answer(accepted.answer);
        if let Some(model) = model {
            // The main model has no name here, even if it replied again after a fallback.
            update = update.model(if model == deps.models.main.name() { "" } else { model });
        }
        if accepted.message.is_some() && !state.hints.is_empty() {
            update = update.clear_hints();
        }
        let messages: Vec<_> = accepted.message.into_iter().chain(accepted.reminder).collect();
        let cut_off = accepted.answer.cut_off;
        if !waits {
            return Ok(self.extend_conversation(update, messages, (cut_off, accepted.answer.continuing)));
        }
        let text = messages.first().and_then(|answer| self.answer_text(answer, accepted.answer.continuing));
        let rest = serde_json::to_value(&update).expect("an update has a JSON form");
        let (had_tools, streamed) = (self.next.tools, !deps.guards.hold(&state.active));
        Ok(self.store(Draft { messages, text, cut_off, had_tools, streamed, calls, rest }))
    }

    /// Returns whether a response waits for guards: of the input, or of the output, if it is an answer.
    fn waits(&self, accepted: &Accepted) -> bool {
        let Self { deps, state, new, .. } = self;
        let Some(message) = &accepted.message else { return false };
        let has = |at| deps.guards.check(at, &state.active);
        let is_new = |message: &Message| message.role == Role::User && !message.synthetic;
        let has_new_input = || has(GuardAt::Input) && new.iter().any(is_new);
        deps.guards.are_due(state)
            || has_new_input()
            || (has(GuardAt::Output) && self.answer_text(message, accepted.answer.continuing).is_some())
    }

    /// Returns the text of an answer: a text without calls, or the arguments of a call of the finish tool.
    fn answer_text(&self, message: &Message, is_begun: bool) -> Option<String> {
        let config = &self.deps.config;
        let finish = Finishing::of(config, self.state).tool().map(|tool| tool.name);
        let is_finish = |call: &&ToolCall| finish.as_deref() == Some(meant(config, &call.name));
        match message.tool_calls.iter().find(is_finish) {
            Some(call) => Some(call.arguments.clone()),
            None if is_begun || !message.tool_calls.is_empty() => None,
            None => Some(message.content.clone()),
        }
    }

    /// Emits a response that becomes a part of the conversation, with its text if that was held back. The beginning of an answer stays
    /// held back.
    fn emit_accepted(&self, id: &str, accepted: &Accepted, calls: usize) {
        let is_held = self.deps.guards.hold(&self.state.active);
        match &accepted.message {
            Some(_) if is_held && accepted.answer.continuing => {}
            Some(message) if is_held => {
                emit_text(self.cx, message);
                emit_message(self.cx, id, Some(message), 0, false);
            }
            message => emit_message(self.cx, id, message.as_ref(), calls, accepted.repeats),
        }
    }

    /// Stores a response until the guards have decided. The request's new messages join the conversation.
    fn store(&mut self, draft: Draft) -> AgentStateUpdate {
        let guarding = Guarding { draft: Some(draft), ..self.state.guarding.clone() };
        let update = self.read_steering(AgentState::update().guarding(guarding));
        let new = std::mem::take(&mut self.new);
        if new.is_empty() { update } else { update.messages(new) }
    }

    /// Marks the steering messages of the request as read.
    fn read_steering(&self, update: AgentStateUpdate) -> AgentStateUpdate {
        if self.steered <= self.state.steered {
            return update;
        }
        memory_trigger::steered(self.deps, self.state, &self.new, self.cx);
        update.steered(self.steered)
    }

    /// Handles a failed response, or the stored part of one.
    fn on_failure(
        &mut self,
        retained: Option<Message>,
        streamed: Streamed,
        update: AgentStateUpdate,
    ) -> AgentStateUpdate {
        let Streamed { message, requests, any, calls } = streamed;
        if any && retained.is_none() {
            // The streamed text is not a message, so subscribers must discard it.
            emit(self.cx, || AgentEvent::AttemptDiscarded { attempt: requests });
        }
        emit_message(self.cx, &message, retained.as_ref(), calls, false);
        let results = retained
            .as_ref()
            .map(|retained| accept_response::interrupted(retained, self.cx))
            .unwrap_or_default();
        for result in &results {
            self.cx.emit_full_message(&result.id, result);
        }
        let update = match &retained {
            Some(retained) if !results.is_empty() => {
                let records: Vec<_> = retained.tool_calls.iter().map(accept_response::record).collect();
                let results: Vec<_> = results.iter().map(|result| result.content.clone()).collect();
                update.tool_call_history(records).tool_result_history(results)
            }
            _ => update,
        };
        self.extend_conversation(update, retained.into_iter().chain(results).collect(), (true, false))
    }

    /// Adds the request's new messages and the response to the conversation; nothing without a response. An answer that has only begun
    /// has no parts yet, if guards check it.
    fn extend_conversation(
        &mut self,
        mut update: AgentStateUpdate,
        answer: Vec<Message>,
        (cut_off, is_begun): (bool, bool),
    ) -> AgentStateUpdate {
        if answer.is_empty() {
            return update;
        }
        update = self.read_steering(update);
        let is_whole = !is_begun || !self.deps.guards.check(GuardAt::Output, &self.state.active);
        if self.deps.config.parts && is_whole {
            let parts = answer.iter().flat_map(|message| parts::of_message(message, cut_off, self.cx));
            update = update.parts(
                parts.inspect(|part| emit(self.cx, || AgentEvent::Part(part.clone()))).collect::<Vec<_>>(),
            );
        }
        update.messages(std::mem::take(&mut self.new).into_iter().chain(answer).collect::<Vec<_>>())
    }
}

/// Returns whether unreported tokens are estimated: a provider that reported some of the turn is trusted,
/// unless there is a limit.
pub(super) fn is_guessed(deps: &AgentDeps, state: &AgentState) -> bool {
    let is_reported = state.usage != Usage::default() && !state.answer.estimated;
    !is_reported || !deps.config.budget.is_unbounded()
}

/// Ends the turn for this reason.
pub(super) fn stop(reason: impl Into<StopReason>) -> AgentStateUpdate {
    AgentState::update().stop(true).stop_reason(reason)
}

/// Ends the turn because a hook failed.
pub(super) fn hook_failed(failure: HookFailure) -> AgentStateUpdate {
    stop(AgentOutcome::HookFailed).hook_error(failure)
}
