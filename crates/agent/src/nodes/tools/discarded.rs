//! The results retained of a round that a new user message discards.

use superstep_graph::{State, node::Discarded, state::Update};
use superstep_llm::{Message, Role, calls::ToolQuestion, snapshots::FileChanges};

use super::{
    answer::CallResult,
    keys::{asks, begun, result_of, told},
    permit::granting,
    snapshots, tool_updates,
};
use crate::{AgentState, HasAgent, config::prompts, nodes::parts, state::ToolEvent};

/// Returns the update of an unfinished round: stored results, updates and permanent grants are retained; all
/// other calls are answered as interrupted, in doubt if they had begun, or unanswered if their tools had questions. The next turn
/// begins with the comparison of the files that the round may have changed.
pub(crate) fn discarded<S: HasAgent>(outer: &S, task: &Discarded<'_>) -> S::Update {
    let state = outer.agent();
    let Some(message) = state.messages.last().filter(|last| last.role == Role::Assistant) else {
        return S::update();
    };
    let did = |mark: &str| task.did::<()>(mark).is_some();
    let done = |position: usize| {
        let asked = (0..).take_while(|nth| task.did::<ToolQuestion>(&asks(position, *nth)).is_some()).count();
        match task.did::<CallResult>(&result_of(position)) {
            Some(done) => done,
            None if did(&begun(position, asked)) || did(&told(position)) => {
                CallResult { executed: true, ..CallResult::not_executed(prompts::IN_DOUBT.to_owned()) }
            }
            None if asked > 0 => CallResult::unanswered(),
            None => CallResult::not_executed(prompts::INTERRUPTED.to_owned()),
        }
    };
    let mut written = S::update();
    let (mut messages, mut ended, mut permissions) = (Vec::new(), Vec::new(), Vec::new());
    let mut has_run = false;
    for (position, call) in message.tool_calls.iter().enumerate() {
        let CallResult { result, returned, rule, update, ran_with, media, executed, .. } = done(position);
        has_run |= executed;
        // Updates for another state type are lost.
        if let Some(update) = update.and_then(|update| tool_updates::read(outer, &update).ok()) {
            written = written.then(update);
        }
        permissions.extend(rule);
        messages.push(Message::tool(&call.id, &result).with(|message| message.media = media));
        let part = state.parts.get(&format!("{}.tool.{position}", message.id)).cloned();
        ended.extend(part.and_then(|mut part| {
            let end = if returned { ToolEvent::Returned(result) } else { ToolEvent::Failed(result) };
            part.state = Some(part.state.unwrap_or_default().after(end).ok()?);
            Some(parts::ran_with(part, ran_with))
        }));
    }
    let mut update = AgentState::update().messages(messages);
    update = granting(state, permissions, update);
    if !ended.is_empty() {
        update = update.parts(ended);
    }
    if let Some(before) = snapshots::taken(task).filter(|_| has_run) {
        update = update.files(FileChanges { before, ..FileChanges::default() });
    }
    written.then(S::agent_update(update))
}
