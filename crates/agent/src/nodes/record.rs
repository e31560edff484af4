//! The node behind the last one: the turn becomes a line of its user's history. It is there only if a history is configured.

use superstep_graph::Cx;

use crate::{
    AgentDeps, AgentState, TurnRecord, events,
    memory::{NOBODY, owner},
};

/// Writes the turn down, once. The state stays as it is, and no failure reaches the run.
pub(crate) async fn record(deps: AgentDeps, state: AgentState, cx: Cx) {
    let (Some(history), Some(outcome)) = (&deps.history, state.outcome) else { return };
    let Some(user) = owner(&state, cx.thread()) else { return events::turn_not_recorded(&cx, NOBODY) };
    let turn = TurnRecord::new(outcome, &state, &cx);
    let id = turn.id.clone();
    match history.keep(&user, turn, deps.config.memory_timeout, &cx).await {
        Ok(()) => events::turn_recorded(&cx, &id),
        Err(error) => events::turn_not_recorded(&cx, &error.to_string()),
    }
}
