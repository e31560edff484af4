//! The third node: one model call. It executes no tools.

use std::ops::ControlFlow::{self, Break, Continue};

use superstep_graph::{
    Cx, NodeError, State,
    state::{Update, reduce},
};
use superstep_llm::{Message, ToolRegistry};

use super::{
    fit_request::{RequestSpace, summary_due},
    instructions::add_skills,
    loops,
    model_turn::{PlannedCall, stop},
    next_call::{NextCall, Plan},
    offered::refresh,
    request::{kept_hints, request, synthetic},
    steering_input::{Steered, steered},
};
use crate::{
    AgentEvent, AgentOutcome, AgentState, config::prompts, context::frame::SystemMessage, deps::AgentDeps,
    events::emit, state::AgentStateUpdate,
};

/// Calls the model, unless the turn is over: the checks come first, then the call, streamed token by token.
///
/// # Errors
/// At a limit that fails the run.
pub(crate) async fn agent(
    (mut deps, system): (AgentDeps, SystemMessage),
    state: AgentState,
    cx: Cx,
) -> Result<AgentStateUpdate, NodeError> {
    // A round that ends the turn leaves the summary that it may need to the next turn.
    let taken = (!state.stop).then(|| state.taken_over(&deps.group.member, deps.group.view)).flatten();
    // Boxed, because a transfer is rare, and the future of each node has room for it.
    match taken.map(Box::new) {
        None => own_step(&mut deps, &system, &state, false, &cx).await,
        Some(taken) => {
            let state = Box::new(reduce(&state, [AgentStateUpdate::clone(&taken)])?);
            let update = own_step(&mut deps, &system, &state, true, &cx).await?;
            Ok(taken.then(update))
        }
    }
}

/// Returns the update of an agent that has the conversation.
async fn own_step(
    deps: &mut AgentDeps,
    system: &SystemMessage,
    state: &AgentState,
    takes_over: bool,
    cx: &Cx,
) -> Result<AgentStateUpdate, NodeError> {
    add_skills(deps, state);
    let own = deps.tools.clone();
    let offered = refresh(deps, state, takes_over, cx).await;
    let due = summary_due(deps, state, cx);
    let update = if let Some(update) = due {
        update
    } else {
        emit(cx, || AgentEvent::NodeStart { node: cx.node().to_string() });
        let update = step(deps, &own, system, state, cx).await;
        emit(cx, || AgentEvent::NodeEnd { node: cx.node().to_string() });
        update?
    };
    Ok(match offered {
        Some(offered) => update.offered(offered),
        None => update,
    })
}

async fn step(
    deps: &AgentDeps,
    own: &ToolRegistry,
    system: &SystemMessage,
    state: &AgentState,
    cx: &Cx,
) -> Result<AgentStateUpdate, NodeError> {
    let mut next = match check(deps, state, cx)? {
        Continue(next) => next,
        Break(update) => return Ok(update),
    };
    let Steered { messages, last } = steered(state, cx).await?;
    // A continued answer is one message, so that nothing can be kept within it. Recorded, because a replay may know the model by name only.
    let keeps_hints = deps.models.main.signs_prefix() && !state.answer.continuing;
    next.keeps_hints = cx.noted("keeps_hints", keeps_hints);
    let hints = kept_hints(deps, state, &next, cx);
    let guidance = state.guidance.unsent(|id| state.answer.continuing || state.messages.get(id).is_some());
    let new = synthetic(deps, state, cx).into_iter().chain(guidance).chain(messages).chain(hints);
    let new: Vec<Message> = new.collect();
    let space = match RequestSpace::make(deps, state, &new, cx) {
        Ok(space) => space,
        Err(failure) => return Ok(stop(AgentOutcome::LlmError).error(failure)),
    };
    let sent = request(deps, state, &space.view, &next, (system, &new));
    let call = PlannedCall { deps, own, state, cx, next, space, new, steered: last, warned: false };
    // Boxed, because the future of a node is moved several times before it starts.
    Ok(Box::pin(call.run(sent)).await?)
}

/// Returns the next call, or the end of the turn; an empty update if another node has ended it already.
fn check<'a>(
    deps: &'a AgentDeps,
    state: &AgentState,
    cx: &Cx,
) -> Result<ControlFlow<AgentStateUpdate, NextCall<'a>>, NodeError> {
    if state.stop {
        return Ok(Break(AgentState::update()));
    }
    if cx.noted("cancelled", cx.cancel().is_cancelled()) {
        return Ok(Break(stop(AgentOutcome::Cancelled)));
    }
    let mut call = match NextCall::plan(&deps.config, state, cx.now_ms()) {
        Plan::Call(call) => call,
        Plan::Stop(reason) => return Ok(Break(stop(reason))),
        Plan::Fail => return Err(NodeError::new(OutOfSteps(deps.config.limit.max)).fatal()),
    };
    if call.tools
        && let Some((found, answers)) = loops::ends(deps, state)
    {
        emit(cx, || found.event());
        if !answers {
            return Ok(Break(stop(AgentOutcome::LoopDetected)));
        }
        (call.tools, call.reason) = (false, AgentOutcome::LoopDetected.into());
        call.hint(state, Some(prompts::loop_end(&found.tool, found.n, found.same).into()));
        return Ok(Continue(call));
    }
    if let Some(found) = loops::warns(deps, state) {
        emit(cx, || found.event());
        // The text at the limit stays the last message.
        call.hints.insert(0, prompts::loop_warning(&found.tool, found.n, found.same).into());
    }
    Ok(Continue(call))
}

/// The step limit was reached, and the configuration fails the run.
#[derive(Debug, thiserror::Error)]
#[error("the turn reached its limit of {0} without an answer")]
struct OutOfSteps(u32);
