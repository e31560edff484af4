//! The node after the last one: stores the turn in its user's history. It exists only if a history is
//! configured.

use superstep_graph::{Cx, NodeError};

use crate::{
    AgentEvent, AgentState,
    deps::{AgentDeps, TurnHistory, TurnRecord, memory::NO_OWNER},
    events::emit,
};

// A node of its own, because it has a side effect, which may fail or wait for another process; `finalize` is a function of the state.
/// Stores the turn once. The state is unchanged, and no failure reaches the run.
pub(crate) async fn record(deps: AgentDeps, state: AgentState, cx: Cx) {
    let Some(history) = &deps.history else { return };
    let not_recorded = |reason: &str| emit(&cx, || AgentEvent::TurnNotRecorded { reason: reason.into() });
    let Some(user) = state.memory_owner(cx.thread()) else { return not_recorded(NO_OWNER) };
    let write = async || {
        let written = written(&deps, &**history, &user, &state, &cx).await;
        written.map_err(|error| error.to_string())
    };
    let written: Result<Option<String>, String> = cx.recorded("history", write).await;
    match written {
        Ok(Some(id)) => emit(&cx, || AgentEvent::TurnRecorded { id }),
        Ok(None) => not_recorded("the turn has no outcome; `finalize` comes before `record`"),
        Err(error) => not_recorded(&error),
    }
}

/// Returns the id of the line; `None` for a turn that has not ended.
async fn written(
    deps: &AgentDeps,
    history: &dyn TurnHistory,
    user: &str,
    state: &AgentState,
    cx: &Cx,
) -> Result<Option<String>, NodeError> {
    let Some(outcome) = state.outcome else { return Ok(None) };
    let within = deps.config.memory_timeout;
    // The turn searches for its own line only behind the end of the history at its first attempt: a thread may be resumed after days in
    // which others wrote, so checking the last lines would not suffice.
    // Without a thread the run cannot be resumed, and runs that began in the same millisecond have the same
    // keys.
    let since = match cx.thread() {
        Some(_) => cx.once("history", async |_| history.end(user, within).await).await?,
        None => u64::MAX,
    };
    // By now the checkpoint that names the task is stored.
    let turn = TurnRecord::new(outcome, state, cx);
    let id = turn.id.clone();
    history.add(user, turn, since, within).await?;
    Ok(Some(id))
}
