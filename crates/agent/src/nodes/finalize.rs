//! The last node: the reply.

use superstep_graph::{Cx, State};
use superstep_llm::{Message, Role};

use super::memory_trigger::make_sure;
use crate::{
    AgentOutcome, AgentState,
    config::{AtLimit, Exhausted, prompts},
    context::finish::{Finishing, response},
    deps::AgentDeps,
    state::{
        AgentStateUpdate, BudgetLimit, Metadata, StopReason,
        guarding::{GuardAt, Guarding, Verdict},
    },
};

/// Takes the reply from the model's last message in this turn, or from the configuration for other ends, and
/// makes the metadata.
pub(crate) async fn finalize(deps: AgentDeps, state: AgentState, cx: Cx) -> AgentStateUpdate {
    make_sure(&deps, &state, &cx);
    let deps = deps.active(&state);
    let config = &deps.config;
    let outcome = state.stop_reason.outcome();
    let halt = config.halt.as_ref().filter(|_| outcome == AgentOutcome::Cancelled);
    let at_limit = (!Finishing::of(config, &state).has_schema()).then_some(&config.limit.at);
    let reply = match (outcome, at_limit, halt) {
        (_, _, Some(halt)) => halt.clone(),
        (AgentOutcome::Limit, Some(AtLimit::Fixed(reply)), _) => reply.clone(),
        (AgentOutcome::Limit, Some(AtLimit::LastMessage), _) => {
            // Without any step the last message is the user's own.
            let last = state.messages.last().filter(|last| last.role != Role::User);
            last.map(|last| last.content.clone()).unwrap_or_default()
        }
        (AgentOutcome::Guarded, _, _) => {
            blocked(&state).map_or_else(String::new, |(reply, _)| reply.to_owned())
        }
        (AgentOutcome::LlmError, _, _) if config.exhausted == Exhausted::AsContent => {
            state.error.as_ref().map(|error| error.message.clone()).unwrap_or_default()
        }
        _ if state.answer.finished => state.final_reply.clone(),
        _ => last_text(deps, &state).unwrap_or_default(),
    };
    let reply = match outcome {
        // The intended reply is retained, whatever its shape.
        AgentOutcome::InvalidOutput if reply.is_empty() => {
            let called = state.messages.iter().rev().find(|message| message.role == Role::Assistant);
            called.and_then(|message| response(config, message)).unwrap_or_default()
        }
        _ => reply,
    };
    let reply = if reply.is_empty() && outcome != AgentOutcome::Completed {
        let hook = state.hook_error.as_ref().map(ToString::to_string);
        let error = match outcome {
            AgentOutcome::InvalidOutput => Some(state.output_problem.as_str()),
            AgentOutcome::ToolFailed => tool_failure(&state),
            AgentOutcome::Guarded => blocked(&state).and_then(|(_, failure)| failure),
            _ => state.error.as_ref().map(|error| error.message.as_str()),
        };
        explain(&state.stop_reason, error.or(hook.as_deref()))
    } else {
        reply
    };
    let metadata = Metadata { is_interrupted: outcome == AgentOutcome::Cancelled, ..state.summary() };
    let finished =
        (state.answer.finished && outcome == AgentOutcome::Completed && !is_in_conversation(&state, &reply))
            .then(|| Message::assistant(&reply).with_id(cx.id("reply")).with(|reply| reply.synthetic = true));
    // The next request has an answer to the message that was blocked, or led to the blocked answer.
    let guarded = (outcome == AgentOutcome::Guarded)
        .then(|| Message::assistant(&reply).with_id(cx.id("guarded")).with(|reply| reply.synthetic = true));
    let mut update = AgentState::update().final_reply(reply).metadata(metadata).outcome(outcome);
    if state.output_schema.is_some() {
        update = update.output_schema(None);
    }
    if state.compact {
        update = update.compact(false);
    }
    let halt = halt.map(|halt| Message::assistant(halt).with_id(cx.id("halt")));
    let last = halt.or(finished).or(guarded);
    let passed = |message: &Message| deps.guards.have_passed(&state, GuardAt::Input, message);
    if deps.guards.are_nodes() && (outcome == AgentOutcome::Guarded || state.inputs().all(passed)) {
        let last = last.as_ref().or(state.messages.last());
        let after = Some(last.map(|last| last.id.clone()).unwrap_or_default());
        update = update.guarding(Guarding { after, ..state.guarding.clone() });
    }
    match last {
        Some(last) => {
            cx.emit_full_message(&last.id, &last);
            update.messages([last])
        }
        None => update,
    }
}

// A reply in the arguments of a call is not repeated as text, which every later request would contain twice.
/// Returns whether the finish tool's reply is in the conversation already: as the text that was treated as a
/// call of it.
fn is_in_conversation(state: &AgentState, reply: &str) -> bool {
    let called = state.messages.iter().rev().find(|message| message.role == Role::Assistant);
    reply.is_empty() || called.is_some_and(|called| called.content == reply)
}

/// Returns the reply of the guard that blocked the turn, and the error if it failed.
fn blocked(state: &AgentState) -> Option<(&str, Option<&str>)> {
    let guard = state.stop_reason.blocked_by()?;
    state.verdicts.iter().rev().find_map(|made| match &made.verdict {
        Verdict::Block { reply } if made.guard == guard => Some((reply.as_str(), made.failure.as_deref())),
        _ => None,
    })
}

/// Returns the result of the failed tool, as the model would have received it.
fn tool_failure(state: &AgentState) -> Option<&str> {
    let first = |is_it: fn(&str) -> bool| {
        let results = state.messages.iter().rev().take_while(|message| message.role == Role::Tool);
        results.map(|result| result.content.as_str()).filter(|result| is_it(result)).last()
    };
    // A call beside it may have been skipped or denied.
    first(prompts::is_tool_failure).or_else(|| first(prompts::is_failure))
}

/// Returns the model's last text in this turn that guards have accepted; after tools that answer the user, their text.
fn last_text(deps: &AgentDeps, state: &AgentState) -> Option<String> {
    let last = state.messages.last().filter(|last| last.role == Role::Tool && state.stop);
    if let (Some(last), true) = (last, state.stop_reason.is_done()) {
        return Some(last.content.clone());
    }
    let of_the_user = |message: &&Message| message.role == Role::User && !message.synthetic;
    // The last message of an earlier turn would repeat its reply if the model was unavailable in this one.
    let mut this_turn = state.messages.iter().rev().take_while(|message| !of_the_user(message));
    // A message that was interrupted in its reasoning has nothing for the user.
    let answers = |message: &&Message| {
        message.role == Role::Assistant
            && !(message.interrupted && message.content.trim().is_empty())
            // Text beside tool calls is not checked.
            && deps.guards.have_passed(state, GuardAt::Output, message)
    };
    this_turn.find(answers).map(|message| message.content.clone())
}

/// The explanation of a turn that stopped for another reason.
const STOPPED: &str = "the run was stopped";

/// Returns the explanation in place of a missing reply. Names the reason as the metadata does.
fn explain(stop_reason: &StopReason, error: Option<&str>) -> String {
    let why = match stop_reason.outcome() {
        AgentOutcome::Limit => "the step limit was reached before the model gave an answer",
        AgentOutcome::LoopDetected => "the model repeated the same tool call with the same result",
        AgentOutcome::Cancelled => "the run was cancelled",
        AgentOutcome::LlmError => "the model call failed",
        AgentOutcome::HookFailed => "a hook of the program failed",
        AgentOutcome::ToolFailed => "a tool failed",
        AgentOutcome::Empty => "the model gave empty answers only",
        AgentOutcome::InvalidOutput => "no reply matches the schema",
        AgentOutcome::Guarded => "a guardrail blocked the turn",
        AgentOutcome::Denied => "a tool call was denied",
        AgentOutcome::Length => "the output limit cut every answer off",
        AgentOutcome::Refused => "the model refused to answer",
        AgentOutcome::ContentFilter => "the provider's content filter withheld the answer",
        AgentOutcome::Budget => match stop_reason {
            StopReason::Budget(BudgetLimit::Tokens) => {
                "the tokens of the turn were spent before the model gave an answer"
            }
            StopReason::Budget(BudgetLimit::ToolCalls) => {
                "the tool calls of the turn were used up before the model gave an answer"
            }
            StopReason::Budget(BudgetLimit::Wall) => {
                "the time of the turn was over before the model gave an answer"
            }
            StopReason::Budget(BudgetLimit::Cost) => {
                "the money of the turn was spent before the model gave an answer"
            }
            _ => STOPPED,
        },
        AgentOutcome::Completed
        | AgentOutcome::AwaitingApproval
        | AgentOutcome::AwaitingAnswer
        | AgentOutcome::Stopped => STOPPED,
    };
    match error {
        Some(error) => format!("No answer: {why} ({stop_reason}): {error}"),
        None => format!("No answer: {why} ({stop_reason})."),
    }
}
