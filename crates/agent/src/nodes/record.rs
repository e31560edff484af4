//! The node behind the last one: the turn becomes a line of its user's history. It is there only if a history is configured.

use superstep_graph::{Cx, NodeError};

use crate::{
    AgentDeps, AgentState, TurnHistory, TurnRecord, events,
    memory::{NOBODY, owner},
};

/// Writes the turn down, once. The state stays as it is, and no failure reaches the run.
pub(crate) async fn record(deps: AgentDeps, state: AgentState, cx: Cx) {
    let Some(history) = &deps.history else { return };
    let Some(user) = owner(&state, cx.thread()) else { return events::turn_not_recorded(&cx, NOBODY) };
    let write = async || {
        let written = written(&deps, history, &user, &state, &cx).await;
        written.map_err(|error| error.to_string())
    };
    let written: Result<Option<String>, String> = cx.recorded("history", write).await;
    match written {
        Ok(Some(id)) => events::turn_recorded(&cx, &id),
        Ok(None) => {
            events::turn_not_recorded(&cx, "the turn has no outcome; `finalize` comes before `record`")
        }
        Err(error) => events::turn_not_recorded(&cx, &error),
    }
}

/// The id of the line; `None` for a turn that has not ended.
async fn written(
    deps: &AgentDeps,
    history: &TurnHistory,
    user: &str,
    state: &AgentState,
    cx: &Cx,
) -> Result<Option<String>, NodeError> {
    let Some(outcome) = state.outcome else { return Ok(None) };
    let within = deps.config.memory_timeout;
    // Without a thread nobody goes on with the run, and others that began in the same millisecond have the same keys.
    let since = match cx.thread() {
        Some(_) => history.end(user, within, cx).await?,
        None => u64::MAX,
    };
    // By now the checkpoint is stored after which the task is named.
    let turn = TurnRecord::new(outcome, state, cx);
    let id = turn.id.clone();
    history.add(user, turn, since, within).await?;
    Ok(Some(id))
}
