//! The first node: the start of a turn.

use std::collections::BTreeMap;

use superstep_graph::{Cx, NodeError, State, error::chain};
use superstep_llm::{Message, Role};

use super::{
    budget::of_turn,
    instructions,
    steering_input::{Steered, before_input, unread},
    tools::of_discarded,
};
use crate::{
    AgentState,
    config::{Breaker, pins},
    context::finish::problem,
    deps::{AgentDeps, folder},
    state::{AgentStateUpdate, ContextView, Guarding, LastAnswer, Metadata, StopReason},
};

/// Resets the channels of one turn; the conversation stays, with the messages that were sent during the last turn and that no
/// model call has read. Compares the files that a discarded round may have changed.
///
/// # Errors
/// If the input's schema is not valid, because no reply could match it, its folder is not usable, or the messages
/// cannot be read.
pub(crate) async fn init_state(
    deps: AgentDeps,
    state: AgentState,
    cx: Cx,
) -> Result<AgentStateUpdate, NodeError> {
    if let Some(problem) = state.output_schema.as_ref().and_then(problem) {
        return Err(NodeError::new(NoSchema(problem)).fatal());
    }
    let mut update = AgentState::update();
    let mut cwd = None;
    if let Some(folder) = &state.cwd {
        let real = cx.recorded("cwd", async || folder::real(folder).map_err(|error| chain(&error))).await;
        let real = real.map_err(|problem| NodeError::new(NoFolder(problem)).fatal())?;
        if real != *folder {
            update = update.cwd(real.clone());
        }
        cwd = Some(real);
    }
    let guidance = Box::pin(instructions::at_start(&deps, &state, cwd.as_deref(), &cx)).await;
    if guidance != state.guidance {
        update = update.guidance(guidance);
    }
    if let Some(files) = state.files.as_ref().filter(|files| files.is_unfinished()) {
        let changes = Box::pin(of_discarded(&deps, cwd.as_deref(), &files.before, &cx)).await;
        update = update.files(changes);
    }
    let Steered { messages: mut earlier, last } = unread(&state, &cx).await?;
    if !earlier.is_empty() {
        update = update.steered(last);
    }
    let missing = state.missing_pins(&deps.config.context.keep.pins);
    if !missing.is_empty() {
        earlier.insert(0, pins::pinned(&missing).with_id(cx.id("pins")));
        update = update.pins(missing);
    }
    if !earlier.is_empty() {
        update = update.messages(before_input(&state, earlier));
    }
    let config = of_turn(deps.config.clone(), &state);
    if state.output.is_some() || !state.output_problem.is_empty() {
        update = update.output(None).output_problem("");
    }
    if !state.estimated_cost.is_empty() {
        update = update.estimated_cost(BTreeMap::new());
    }
    if deps.guards.are_nodes() {
        update =
            update.guarding(Guarding { after: Some(checked_until(&state)), draft: None }).clear_verdicts();
    } else if state.guarding != Guarding::default() {
        update = update.guarding(Guarding::default()).clear_verdicts();
    }
    let context = view_for_turn(&state, &config.context.breaker);
    if context != state.context {
        update = update.context(context);
    }
    Ok(update
        .current_step(0)
        .max_steps(config.limit.max)
        .llm_calls(0)
        .model_requests(0)
        .usage(superstep_llm::Usage::default())
        .usage_by_model(BTreeMap::new())
        .model("")
        .clear_tool_call_history()
        .clear_tool_result_history()
        .clear_tools_used()
        .clear_ignored_tool_calls()
        .answer(LastAnswer::default())
        .started_ms(config.budget.wall.map_or(0, |_| cx.now_ms()))
        .stop(false)
        .stop_reason(StopReason::Done)
        .outcome(None)
        .error(None)
        .hook_error(None)
        .final_reply("")
        .metadata(Metadata::default()))
}

/// Returns the id of the message up to which guards have checked the conversation: in a thread that was begun without guards, that of
/// the last response or result; empty at the start of the conversation.
fn checked_until(state: &AgentState) -> String {
    if let Some(after) = &state.guarding.after {
        return after.clone();
    }
    if state.outcome.is_none() {
        return String::new();
    }
    let is_answer = |message: &&Message| matches!(message.role, Role::Assistant | Role::Tool);
    let last = state.messages.iter().rev().find(is_answer);
    last.map(|message| message.id.clone()).unwrap_or_default()
}

/// The input's schema is not valid.
#[derive(Debug, thiserror::Error)]
#[error("invalid schema in `output_schema`: it {0}; begin the turn again with another one, or without")]
struct NoSchema(String);

/// The input's folder is not usable.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoFolder(String);

/// Returns the view at the start of a turn. It equals the last turn's final view, unless the conversation
/// was replaced since.
fn view_for_turn(state: &AgentState, breaker: &Breaker) -> ContextView {
    let view = &state.context;
    let is_gone = |id: &String| !id.is_empty() && state.messages.position(id).is_none();
    if [
        &view.start,
        &view.bare_until,
        &view.shortened,
        &view.pruned,
        &view.without_media,
        &view.without_rounds,
    ]
    .into_iter()
    .any(is_gone)
    {
        return ContextView::default();
    }
    let mut view = ContextView {
        due: false,
        overflows: 0,
        refused: None,
        refusal: String::new(),
        over: 0,
        ..view.clone()
    };
    if std::mem::take(&mut view.paused) {
        // One more attempt; its failure disables summaries again.
        view.ineffective = breaker.max_ineffective.saturating_sub(1);
    }
    view
}
