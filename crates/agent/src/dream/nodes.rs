//! The nodes before and behind the agent: what a dream is about, and what becomes of it.

use std::{fs::File, future::Future, sync::Arc};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use superstep_graph::{Cx, NodeError, Route, State};
use superstep_llm::Message;

use super::{
    DreamConfig, DreamState, DreamStateUpdate, Due,
    cursor::{DreamFiles, LastDream},
    entries,
};
use crate::{
    AgentOutcome, AgentState, ContextView, HistoryPlace, MemoryFiles, RequestSize, TurnHistory, events,
    history::{blocking, patiently},
    memory::PATIENCE,
    workspace::EditJournal,
};

/// How a dream ended whose model said that it was done after a call that failed.
const LAST_CALL_FAILED: &str = "last_call_failed";

/// How a dream ended whose model said that it was done and had edited nothing.
const NOTHING_CHANGED: &str = "nothing_changed";

/// What the nodes work with, for one user.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) user: String,
    pub(super) history: TurnHistory,
    pub(super) files: DreamFiles,
    pub(super) memory: MemoryFiles,
    pub(super) journal: EditJournal,
    pub(super) config: DreamConfig,
    /// What makes it the only one; held by all that goes on with the files, also if nobody waits for that any more.
    pub(super) alone: Option<Arc<File>>,
}

/// Where a dream goes from `gather`.
#[derive(Route, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    /// There is something to dream of.
    Dream,
    /// It is not time yet.
    Nothing,
}

pub(super) fn gathered(state: &DreamState) -> Gathered {
    if state.due.is_some() { Gathered::Dream } else { Gathered::Nothing }
}

/// What a dream is about, as it was found.
#[derive(Serialize, Deserialize)]
struct Found {
    from: HistoryPlace,
    to: HistoryPlace,
    due: Option<Due>,
    /// The ids of the turns; none if it is not time.
    turns: Vec<String>,
    /// The turns as the model reads them.
    told: String,
}

/// Reads the turns behind the cursor, and says whether it is time to dream of them. If so, the agent's conversation is what
/// was said in them, and the memory is there.
pub(super) async fn gather(desk: Desk, state: DreamState, cx: Cx) -> Result<DreamStateUpdate, NodeError> {
    let Found { from, to, due, turns, told } = effect(&cx, "gather", find(desk, &state, &cx)).await?;
    let update = DreamState::update().due(due).settled(false).from(from);
    let Some(due) = due else {
        return Ok(update.entries(turns));
    };
    events::dream_begun(&cx, due, turns.len());
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

/// Does something with files that a replay is not to do again; what fails is not recorded, for then the node fails as well.
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

async fn find(desk: Desk, state: &DreamState, cx: &Cx) -> Result<Found, NodeError> {
    let files = desk.files.clone();
    let cursor = blocking(move || files.cursor()).await?;
    let DreamConfig { most_bytes, .. } = desk.config;
    let most = desk.config.most_turns();
    let unread = desk.history.read(&desk.user, cursor.read.clone(), most, most_bytes).await?;
    let asked = state.asked.then_some(Due::Asked).filter(|_| !unread.turns.is_empty());
    let due = asked.or_else(|| desk.config.due(&unread, &cursor, cx.now_ms()));
    let (from, to) = (cursor.read, unread.to);
    if due.is_none() {
        return Ok(Found { from, to, due, turns: Vec::new(), told: String::new() });
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
    let told = entries::told(&unread.turns);
    let turns = unread.turns.into_iter().map(|turn| turn.id).collect();
    Ok(Found { from, to, due, turns, told })
}

/// Moves the cursor behind the turns of a dream that was completed, and notes how any other one ended.
///
/// A dream that edited nothing leaves its turns to the next one, which may have a better model or more to go by. Only if that
/// edits nothing either do they count as read, for otherwise they would be read again for ever.
pub(super) async fn settle(desk: Desk, state: DreamState, cx: Cx) -> Result<DreamStateUpdate, NodeError> {
    let outcome = state.agent.outcome;
    let results = &state.agent.tool_result_history;
    // A model that gives up has remembered nothing, however it says that it is done.
    let gave_up = results.iter().next_back().is_some_and(|result| result.starts_with("Error"));
    let calls = state.agent.tool_call_history.iter().zip(results.iter());
    let mut edits = calls.filter(|(call, result)| call.name == "edit_file" && !result.starts_with("Error"));
    let edited = edits.next().is_some();
    let end = move |again: bool| match outcome {
        Some(AgentOutcome::Completed) if gave_up => LAST_CALL_FAILED,
        Some(AgentOutcome::Completed) if !edited && !again => NOTHING_CHANGED,
        Some(outcome) => outcome.as_str(),
        None => "unfinished",
    };
    let at_ms = cx.now_ms();
    let (from, to) = (state.from.clone(), state.to.clone());
    let (files, alone) = (desk.files, desk.alone);
    let settled = blocking(move || {
        let _alone = alone;
        let mut cursor = files.cursor()?;
        let is_same = cursor.read == from;
        let again = is_same && cursor.last.is_some_and(|last| last.end == NOTHING_CHANGED);
        let is_completed = end(again) == AgentOutcome::Completed.as_str();
        if is_completed && is_same {
            cursor.read.clone_from(&to);
        }
        cursor.last = Some(LastDream { at_ms, end: end(again).to_owned() });
        files.set(&cursor)?;
        // Another one may have been here, with another store of threads.
        Ok(is_completed && cursor.read == to)
    });
    let settled = effect(&cx, "settle", async { Ok(settled.await?) }).await?;
    events::dream_ended(&cx, end(settled), state.entries.len(), settled);
    Ok(DreamState::update().settled(settled))
}
