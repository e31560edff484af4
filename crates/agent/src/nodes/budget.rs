//! The time of a turn, and the warning before its end.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use superstep_graph::{Cx, NodeError};
use tokio::time::Instant;

use crate::{
    AgentEvent, AgentState, ReactConfig,
    config::Budget,
    events::emit,
    state::{BudgetLimit, spent::share},
};

/// Returns the configuration of this turn: the budget of a sub-agent is limited to its grant.
pub(super) fn of_turn(config: Arc<ReactConfig>, state: &AgentState) -> Arc<ReactConfig> {
    match &state.granted {
        None => config,
        Some(granted) => Arc::new(ReactConfig { budget: config.budget.within(granted), ..(*config).clone() }),
    }
}

/// Returns the time that the turn has left, if its budget limits it.
pub(super) fn time_left(config: &ReactConfig, state: &AgentState, cx: &Cx) -> Option<Duration> {
    Some(config.budget.wall?.saturating_sub(state.spent(cx.now_ms()).time))
}

/// Waits until this time is over; forever without one.
pub(super) async fn expired(patience: Option<Duration>) {
    match patience {
        Some(patience) => tokio::time::sleep(patience).await,
        None => pending().await,
    }
}

/// Waits until this time; forever without one.
pub(super) async fn until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => pending().await,
    }
}

/// Awaits the work of a node, and beside it warns when four fifths of the turn's time are used, `left` being the rest of it.
/// Returns whether the turn was warned, also by an earlier run of the node.
pub(super) async fn warned<T>(
    (budget, left): (&Budget, Option<Duration>),
    state: &AgentState,
    cx: &Cx,
    work: impl Future<Output = T>,
) -> (T, bool) {
    let is_warned = AtomicBool::new(false);
    let warning = async {
        let (Some(wall), Some(left)) = (budget.wall.filter(|_| !state.answer.budget_warned), left) else {
            return pending().await;
        };
        let due = wall / WARNED_SHARE;
        expired(Some(left.saturating_sub(due))).await;
        if !cx.has_result(WARNED) {
            let used = wall.saturating_sub(left.min(due)).as_secs_f64();
            let percent = (share(used, wall.as_secs_f64()) * 100.0).round() as u32;
            emit(cx, || AgentEvent::BudgetWarning { budget: BudgetLimit::Wall, percent });
        }
        is_warned.store(true, Ordering::Relaxed);
        // For a later run of the node. Without it the warning is repeated, which does no harm.
        let _ = cx.once(WARNED, async |_| Ok::<_, NodeError>(())).await;
        pending::<Infallible>().await
    };
    let done = tokio::select! {
        biased;
        done = work => done,
        never = warning, if cx.is_live() => match never {},
    };
    (done, is_warned.into_inner())
}

/// The share of a turn's time that is left when it is warned.
const WARNED_SHARE: u32 = 5;

/// The key that records the warning.
const WARNED: &str = "budget_warned";
