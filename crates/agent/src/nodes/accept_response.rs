//! Handling of a response of the model.

use serde_json::{Map, Value};
use superstep_graph::{Cx, State};
use superstep_llm::{FinishReason, Message, MessageData, Response, ToolCall};

use super::{next_call::NextCall, parts};
use crate::{
    AgentEvent, AgentOutcome, AgentState, ReactConfig,
    config::{AfterEmpty, EmptyPolicy, LengthPolicy, prompts},
    context::finish::{Finishing, TextMeaning, meant},
    events::emit,
    state::{AgentStateUpdate, LastAnswer, Refusal, StopReason, ToolCallRecord, spent::Spent},
};

/// A response and its changes beside the conversation.
pub(super) struct Accepted {
    /// The message for the conversation; `None` if the response is discarded.
    pub(super) message: Option<Message>,
    /// The streamed text is discarded, because it repeated an earlier text.
    pub(super) repeats: bool,
    /// The message that asks the model to try again.
    pub(super) reminder: Option<Message>,
    pub(super) answer: LastAnswer,
    /// The response is the reply: the turn is over unless the user sent another message.
    pub(super) is_reply: bool,
    pub(super) update: AgentStateUpdate,
}

/// The form of a response, which decides what follows it.
enum Form {
    Calls,
    /// The provider withheld it, completely or partially.
    Withheld(AgentOutcome),
    /// The beginning of a text, whose continuation is requested.
    Begun,
    /// A text that broke off, and is not continued.
    BrokenOff,
    /// A text that only repeats the end of the one that it continues: no progress, even with new reasoning before it.
    Repetition,
    /// A text that is accepted as it is, even if it was truncated.
    Text,
}

impl Form {
    fn of(config: &ReactConfig, state: &AgentState, message: &MessageData, finish: &FinishReason) -> Self {
        let text = message.content.trim();
        let repeats = |begun: &Message| begun.content.trim_end().ends_with(text);
        let is_cut = is_too_long(finish) && !text.is_empty();
        match config.length {
            _ if !message.tool_calls.is_empty() => Self::Calls,
            _ if is_cut && state.continued_message().is_some_and(repeats) => Self::Repetition,
            LengthPolicy::Continue { max, .. } if is_cut && state.answer.continuations < max => Self::Begun,
            LengthPolicy::Continue { .. } if is_cut => Self::BrokenOff,
            _ => withheld(finish).map_or(Self::Text, Self::Withheld),
        }
    }
}

/// Accepts a response as a message, as a part of one, or rejects it.
pub(super) fn accept(
    config: &ReactConfig,
    state: &AgentState,
    response: Response,
    call: &NextCall<'_>,
    spent: &Spent,
    cx: &Cx,
) -> Accepted {
    let Response { message, finish, .. } = response;
    let mut message = message.into_data();
    let says_nothing = message.content.trim().is_empty();
    let is_empty = says_nothing && message.tool_calls.is_empty();
    let is_withheld = withheld(&finish).is_some();
    if let EmptyPolicy::Retry { max, then, .. } = config.empty
        && is_empty
        && state.continued_message().is_none()
        && !is_withheld
    {
        return discard(state, max, then, call);
    }
    let cut_off = is_too_long(&finish);
    let mut update = AgentState::update().llm_calls(state.llm_calls + 1);
    if !call.tools || is_withheld {
        // No tools were offered, or the response was withheld. Its calls must not lead to the tools, except the
        // one that gives the reply.
        let (replies, others) = std::mem::take(&mut message.tool_calls)
            .into_iter()
            .partition::<Vec<_>, _>(|call| !is_withheld && !cut_off && gives_reply(config, state, call));
        message.tool_calls = replies;
        update = update.ignored_tool_calls(others);
    }
    let form = Form::of(config, state, &message, &finish);
    if let Form::Repetition = form {
        message.content.clear();
        message.reasoning.clear();
    }
    let mut message = whole(message, state.continued_message(), cx);
    let reason = match form {
        Form::Withheld(outcome) => outcome.into(),
        Form::BrokenOff | Form::Repetition => AgentOutcome::Length.into(),
        Form::Calls | Form::Begun | Form::Text if call.completes && !says_nothing => StopReason::Done,
        Form::Calls | Form::Begun | Form::Text => call.reason.clone(),
    };
    let ends = !reason.is_done();
    if ends && !matches!(form, Form::Begun) {
        update = update.stop_reason(reason);
    }
    if is_too_long(&finish) && matches!(form, Form::Text) {
        emit(cx, || AgentEvent::TruncatedAnswer {});
    }
    let before = state.answer;
    let is_call = matches!(form, Form::Calls);
    let refused = match spent.exhausts(&config.budget) {
        Some(_) => Some(Refusal::Budget),
        // A reply by call in the call without tools is no step.
        None => (call.last || !call.tools && is_call).then_some(Refusal::StepLimit),
    };
    let answer = LastAnswer { cut_off, refused, continuing: false, again: false, empty: 0, ..before };
    let answer = match form {
        Form::Begun => LastAnswer {
            continuing: true,
            again: true,
            continuations: before.continuations + 1,
            empty: before.empty,
            ..answer
        },
        // The reason for a call without tools applies until its response is complete.
        Form::Calls if cut_off => LastAnswer { cut_rounds: before.cut_rounds + 1, ..answer },
        _ => LastAnswer { cut_rounds: 0, ..answer },
    };
    let mut parts = Parts { answer, update, calls: message.tool_calls, reminder: None, stopped: false };
    if let Form::Text | Form::BrokenOff | Form::Repetition = form {
        parts = parts.with_text(config, state, call, &message.content, cx);
    }
    let Parts { answer, update, calls, reminder, stopped } = parts;
    message.tool_calls = calls;
    let is_reply = message.tool_calls.is_empty() && !answer.again && !ends && !stopped;
    let repeats = matches!(form, Form::Repetition);
    Accepted { message: Some(message.into()), repeats, reminder, answer, is_reply, update }
}

/// Returns whether a response reached a limit of tokens.
fn is_too_long(finish: &FinishReason) -> bool {
    matches!(finish, FinishReason::Length | FinishReason::ContextFull)
}

/// The parts of a response that the meaning of its text changes.
struct Parts {
    answer: LastAnswer,
    update: AgentStateUpdate,
    calls: Vec<ToolCall>,
    reminder: Option<Message>,
    /// The reply was invalid too often: the turn ends.
    stopped: bool,
}

impl Parts {
    /// Applies the text of a response without calls: a reply, a call of the finish tool, or an invalid reply.
    fn with_text(
        mut self,
        config: &ReactConfig,
        state: &AgentState,
        call: &NextCall<'_>,
        text: &str,
        cx: &Cx,
    ) -> Self {
        match Finishing::of(config, state).meaning(text, call.tools) {
            TextMeaning::Reply(None) => {}
            TextMeaning::Reply(output) => {
                self.update = self.update.output(output);
                if !state.output_problem.is_empty() {
                    // That of an earlier attempt.
                    self.update = self.update.output_problem("");
                }
            }
            TextMeaning::Call(arguments) => {
                self.calls = vec![ToolCall::new(cx.id("finish"), &config.finish.tool, arguments)];
                // The call is complete, whatever its text is.
                self.answer.cut_off = false;
            }
            TextMeaning::Wrong { problem, reminder } => {
                self.answer.invalid += 1;
                self.answer.again = self.answer.invalid <= config.finish.retries;
                if self.answer.again {
                    self.reminder = Some(Message::synthetic(reminder).with_id(cx.id("told")));
                } else {
                    self.stopped = true;
                    self.update = self.update.stop(true).stop_reason(AgentOutcome::InvalidOutput);
                }
                self.update = self.update.output_problem(problem);
            }
        }
        self
    }
}

/// Returns whether a call gives a valid reply.
fn gives_reply(config: &ReactConfig, state: &AgentState, call: &ToolCall) -> bool {
    let name = meant(config, &call.name);
    matches!(Finishing::of(config, state).called(name, &call.arguments), Some(Ok(_)))
}

/// Joins the message with its earlier parts.
fn whole(mut message: MessageData, begun: Option<&Message>, cx: &Cx) -> MessageData {
    match begun {
        Some(begun) => {
            message.id = begun.id.clone();
            message.content.insert_str(0, &begun.content);
            message.reasoning.insert_str(0, &begun.reasoning);
        }
        None => message.id = cx.id("message"),
    }
    message
}

/// Returns the outcome of a response that was withheld completely or partially.
fn withheld(finish: &FinishReason) -> Option<AgentOutcome> {
    match finish {
        FinishReason::Refusal => Some(AgentOutcome::Refused),
        FinishReason::ContentFilter => Some(AgentOutcome::ContentFilter),
        _ => None,
    }
}

/// The reason why a response broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakOff {
    /// The model failed.
    Failed,
    /// The turn ended: it was cancelled, or its time was over.
    Stopped,
}

/// Returns the stored message of a response that broke off: its text and reasoning, and, if the turn was stopped, its
/// complete calls.
pub(super) fn partial_message(
    config: &ReactConfig,
    state: &AgentState,
    partial: Message,
    broke: BreakOff,
    cx: &Cx,
) -> Option<Message> {
    let keeps = config.keep_partial || (config.keep_interrupted && broke == BreakOff::Stopped);
    let is_whole = |call: &ToolCall| {
        !call.name.is_empty() && serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok()
    };
    let mut partial = partial.into_data();
    partial.tool_calls.retain(|call| broke == BreakOff::Stopped && is_whole(call));
    let says_nothing = [&partial.content, &partial.reasoning].iter().all(|text| text.trim().is_empty());
    if !keeps || (says_nothing && partial.tool_calls.is_empty()) {
        return None;
    }
    Some(whole(MessageData { interrupted: true, ..partial }, state.continued_message(), cx).into())
}

/// Converts a complete call to its record in the histories.
pub(super) fn record(call: &ToolCall) -> ToolCallRecord {
    ToolCallRecord { name: call.name.clone(), args: parts::arguments(call) }
}

/// Returns the results of a stopped response's calls: none of them is executed.
pub(super) fn interrupted(message: &Message, cx: &Cx) -> Vec<Message> {
    let calls = message.tool_calls.iter().enumerate();
    let results = calls.map(|(position, call)| {
        emit(cx, || AgentEvent::ToolSkipped {
            tool: call.name.clone(),
            id: call.id.clone(),
            reason: "cancelled".into(),
        });
        Message::tool(&call.id, prompts::INTERRUPTED)
            .with(|message| message.failed = true)
            .with_id(cx.id(format_args!("interrupted.{position}")))
    });
    results.collect()
}

/// Handles an empty response: the model is called again up to the limit.
fn discard(state: &AgentState, max: u32, then: AfterEmpty, call: &NextCall<'_>) -> Accepted {
    let before = state.answer;
    let again = before.empty < max || (then == AfterEmpty::NoToolsCall && call.tools);
    let update = AgentState::update();
    let update = if again { update } else { update.stop(true).stop_reason(AgentOutcome::Empty) };
    let answer = LastAnswer { empty: before.empty + 1, again, ..before };
    Accepted { message: None, repeats: false, reminder: None, answer, is_reply: false, update }
}
