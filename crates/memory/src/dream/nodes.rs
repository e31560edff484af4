//! The nodes before and after the agent: input and completion of a dream.

use std::{future::Future, sync::Arc};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use superstep_agent::{
    AgentOutcome, AgentState,
    internal::repaired_name,
    state::{ContextView, RequestSize},
};
use superstep_graph::{Cx, NodeError, Route, State};
use superstep_llm::Message;
use superstep_tools::internal::{EditJournal, LockedFile, PATIENCE, blocking, patiently};

use super::{
    config::{DreamConfig, Due},
    cursor::{DreamFiles, LastDream},
    entries,
    events::{DreamEnd, DreamEvent},
    state::{DreamState, DreamStateUpdate},
};
use crate::{HistoryFiles, HistoryPlace, MemoryFiles};

/// The dependencies of the nodes, for one user.
#[derive(Clone)]
pub(super) struct DreamDeps {
    pub(super) user: String,
    pub(super) history: HistoryFiles,
    pub(super) files: DreamFiles,
    pub(super) memory: MemoryFiles,
    pub(super) journal: EditJournal,
    pub(super) config: DreamConfig,
    /// The lock; shared with every task that works with the files, which may outlive its caller.
    pub(super) alone: Option<Arc<LockedFile>>,
}

/// The route after `gather`.
#[derive(Route, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    /// There are turns to consolidate.
    Dream,
    /// No dream is due.
    Nothing,
}

pub(super) fn gathered(state: &DreamState) -> Gathered {
    if state.due.is_some() { Gathered::Dream } else { Gathered::Nothing }
}

/// The recorded input of a dream.
#[derive(Serialize, Deserialize)]
struct DreamInput {
    from: HistoryPlace,
    to: HistoryPlace,
    /// The dream before it changed nothing.
    #[serde(default)]
    again: bool,
    due: Option<Due>,
    /// The ids of the turns; empty if no dream is due.
    turns: Vec<String>,
    /// The turns as formatted for the model.
    told: String,
}

/// Reads the turns after the cursor and decides whether a dream is due. If so, sets them as the agent's
/// conversation and creates the memory if absent.
pub(super) async fn gather(
    desk: DreamDeps,
    state: DreamState,
    cx: Cx,
) -> Result<DreamStateUpdate, NodeError> {
    let input = effect(&cx, "gather", find(desk, &state, &cx)).await?;
    let DreamInput { from, to, again, due, turns, told } = input;
    let update = DreamState::update().due(due).again(again).settled(false).end(None).from(from);
    let Some(due) = due else {
        return Ok(update.entries(turns));
    };
    DreamEvent::DreamBegun { why: due, turns: turns.len() }.emit(&cx);
    let told = Message::user(told).with_id(cx.id("entries"));
    let agent = AgentState::update()
        .set_messages([told])
        .clear_hints()
        .clear_permissions()
        .clear_parts()
        .context(ContextView::default())
        .request_size(RequestSize::default());
    Ok(update.entries(turns).to(to).agent(agent))
}

/// Runs a file operation that a replay must not repeat. A failure is not recorded, because then the node
/// fails as well.
async fn effect<T: Serialize + DeserializeOwned>(
    cx: &Cx,
    name: &str,
    does: impl Future<Output = Result<T, NodeError>>,
) -> Result<T, NodeError> {
    let mut failed = None;
    let done = cx.recorded(name, async || match does.await {
        Ok(done) => Some(done),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    let done: Option<T> = done.await;
    done.ok_or_else(|| failed.unwrap_or_else(|| NodeError::new(format!("`{name}` failed"))))
}

async fn find(desk: DreamDeps, state: &DreamState, cx: &Cx) -> Result<DreamInput, NodeError> {
    let files = desk.files.clone();
    let cursor = blocking(move || files.cursor()).await?;
    let DreamConfig { most_bytes, .. } = desk.config;
    let most = desk.config.most_turns();
    let unread = desk.history.read(&desk.user, cursor.read.clone(), most, most_bytes).await?;
    let asked = state.asked.then_some(Due::Asked).filter(|_| !unread.turns.is_empty());
    let due = asked.or_else(|| desk.config.due(&unread, &cursor, cx.now_ms()));
    // Read at the beginning: the file has the end of a dream before its thread has it, so that a dream resumed after
    // a crash would take its own end for that of the dream before.
    let again = cursor.last.is_some_and(|last| last.end == DreamEnd::NothingChanged.as_str());
    let (from, to) = (cursor.read, unread.to);
    if due.is_none() {
        return Ok(DreamInput { from, to, again, due, turns: Vec::new(), told: String::new() });
    }
    let (user, memory, journal, alone) = (desk.user, desk.memory, desk.journal, desk.alone);
    let held = alone.clone();
    let begin = move || {
        let _alone = &held;
        memory.begin(&user)
    };
    patiently(PATIENCE, begin).await?;
    blocking(move || {
        let _alone = alone;
        journal.clear()
    })
    .await?;
    let told = entries::format_turns(&unread.turns);
    let turns = unread.turns.into_iter().map(|turn| turn.id).collect();
    Ok(DreamInput { from, to, again, due, turns, told })
}

/// Moves the cursor after the turns of a completed dream, and records the end of any other one.
///
/// A dream without edits leaves its turns to the next one, which may have a better model or more input. If
/// that edits nothing either, the turns count as read; otherwise they would be read again forever.
pub(super) async fn settle(
    desk: DreamDeps,
    state: DreamState,
    cx: Cx,
) -> Result<DreamStateUpdate, NodeError> {
    let outcome = state.agent.outcome;
    let results = &state.agent.tool_result_history;
    // A model that gives up has stored nothing, whatever its outcome.
    let gave_up = results.iter().next_back().is_some_and(|result| result.starts_with("Error"));
    let calls = state.agent.tool_call_history.iter().zip(results.iter());
    // The model may have written the name differently.
    let is_edit = |name: &str| repaired_name(["edit_file"], name).is_some();
    let mut edits = calls.filter(|(call, result)| is_edit(&call.name) && !result.starts_with("Error"));
    let edited = edits.next().is_some();
    let end = match outcome {
        Some(AgentOutcome::Completed) if gave_up => DreamEnd::LastCallFailed,
        Some(AgentOutcome::Completed) if !edited && !state.again => DreamEnd::NothingChanged,
        Some(outcome) => DreamEnd::Outcome(outcome),
        None => DreamEnd::Unfinished,
    };
    let is_completed = end == DreamEnd::Outcome(AgentOutcome::Completed);
    let at_ms = cx.now_ms();
    let (from, to) = (state.from.clone(), state.to.clone());
    let (files, alone) = (desk.files, desk.alone);
    let settled = blocking(move || {
        let _alone = alone;
        let mut cursor = files.cursor()?;
        // Otherwise this dream before a crash, or one with another store of threads, has moved it.
        if cursor.read == from {
            if is_completed {
                cursor.read.clone_from(&to);
            }
            cursor.last = Some(LastDream { at_ms, end: end.as_str().to_owned() });
            files.set(&cursor)?;
        }
        Ok(is_completed && cursor.read == to)
    });
    let settled = effect(&cx, "settle", async { Ok(settled.await?) }).await?;
    DreamEvent::DreamEnded { outcome: end, turns: state.entries.len(), settled }.emit(&cx);
    Ok(DreamState::update().settled(settled).end(end))
}
