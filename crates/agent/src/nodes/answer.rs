//! What becomes of an answer of the model.

use superstep_graph::{Cx, State};
use superstep_llm::{FinishReason, Message, Response, ToolCall};

use super::{
    budget::Spent,
    finish::{Finishing, INVALID, Said},
    next_call::NextCall,
};
use crate::{
    AfterEmpty, AgentState, AgentStateUpdate, EmptyPolicy, LastAnswer, LengthPolicy, ReactConfig, Refusal,
    events,
};

/// An answer, and what it changes beside the conversation.
pub(super) struct Accepted {
    /// What the conversation gets; nothing if the answer is discarded.
    pub(super) message: Option<Message>,
    /// What the model is told of it, in the conversation, if it is to try again.
    pub(super) told: Option<Message>,
    /// What is known of it.
    pub(super) answer: LastAnswer,
    /// Whether it is the reply, so that the turn is over unless something else is to be said.
    pub(super) is_reply: bool,
    pub(super) update: AgentStateUpdate,
}

/// Takes an answer as a message, as a part of one, or not at all.
pub(super) fn accept(
    config: &ReactConfig,
    state: &AgentState,
    response: Response,
    call: &NextCall<'_>,
    spent: &Spent,
    cx: &Cx,
) -> Accepted {
    let Response { mut message, finish, .. } = response;
    let cut_off = matches!(finish, FinishReason::Length | FinishReason::ContentFilter);
    let says_nothing = message.content.trim().is_empty();
    let is_empty = says_nothing && message.tool_calls.is_empty();
    let begun = state.messages.last().filter(|_| state.answer.continuing);
    if let (EmptyPolicy::Retry { max, then, .. }, true, None) = (&config.empty, is_empty, begun) {
        return discard(state, *max, *then, call);
    }
    let mut update = AgentState::update().llm_calls(state.llm_calls + 1);
    if !call.tools {
        // It was offered no tools. What it calls all the same must not lead back to them.
        update = update.ignored_tool_calls(std::mem::take(&mut message.tool_calls));
    }
    let has_calls = !message.tool_calls.is_empty();
    let mut message = whole(message, begun, cx);
    let before = state.answer;
    let mut reason = call.reason;
    let mut continuing = false;
    if cut_off && !has_calls {
        match config.length {
            LengthPolicy::Continue { max, .. } if finish == FinishReason::Length && !says_nothing => {
                continuing = before.continuations < max;
                if !continuing {
                    reason = "length_limit";
                }
            }
            _ => events::truncated_answer(cx),
        }
    }
    if !continuing && !reason.is_empty() {
        update = update.stop_reason(reason);
    }
    let mut answer = LastAnswer {
        cut_off,
        // What led to a call without tools holds until its answer is whole.
        cut_rounds: match (cut_off && has_calls, continuing) {
            (true, _) => before.cut_rounds + 1,
            (false, true) => before.cut_rounds,
            (false, false) => 0,
        },
        continuing,
        continuations: before.continuations + u32::from(continuing),
        empty: if continuing { before.empty } else { 0 },
        again: continuing,
        refused: match spent.exhausts(&config.budget) {
            Some(_) => Some(Refusal::Budget),
            None => call.last.then_some(Refusal::StepLimit),
        },
        ..before
    };
    let (mut told, mut stopped) = (None, false);
    if !continuing && !has_calls {
        match Finishing::of(config, state).said(&message.content, call.tools) {
            Said::Reply(None) => {}
            Said::Reply(output) => update = update.output(output),
            Said::Call(arguments) => {
                message.tool_calls = vec![ToolCall::new(cx.id("finish"), &config.finish.tool, arguments)];
                // The call is whole, whatever its text is.
                answer.cut_off = false;
            }
            Said::Wrong { problem, told: text } => {
                answer.invalid += 1;
                answer.again = answer.invalid <= config.finish.retries;
                if answer.again {
                    told = Some(Message::synthetic(text).with_id(cx.id("told")));
                } else {
                    stopped = true;
                    update = update.stop(true).stop_reason(INVALID);
                }
                update = update.output_problem(problem);
            }
        }
    }
    let is_reply = message.tool_calls.is_empty() && !answer.again && reason.is_empty() && !stopped;
    Accepted { message: Some(message), told, answer, is_reply, update }
}

/// The message with what was said of it before, if it is the rest of one.
fn whole(mut message: Message, begun: Option<&Message>, cx: &Cx) -> Message {
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

/// What is kept of an answer that broke off: its text, if there is any and it is to be kept.
pub(super) fn kept(config: &ReactConfig, state: &AgentState, partial: Message, cx: &Cx) -> Option<Message> {
    if !config.keep_partial || partial.content.trim().is_empty() {
        return None;
    }
    let begun = state.messages.last().filter(|_| state.answer.continuing);
    let text = Message { tool_calls: Vec::new(), interrupted: true, ..partial };
    Some(whole(text, begun, cx))
}

/// An answer of nothing: the model is asked again, as long as it may be.
fn discard(state: &AgentState, max: u32, then: AfterEmpty, call: &NextCall<'_>) -> Accepted {
    let before = state.answer;
    let again = before.empty < max || (then == AfterEmpty::NoToolsCall && call.tools);
    let update = AgentState::update();
    let update = if again { update } else { update.stop(true).stop_reason("empty_response") };
    let answer = LastAnswer { empty: before.empty + 1, again, ..before };
    Accepted { message: None, told: None, answer, is_reply: false, update }
}
