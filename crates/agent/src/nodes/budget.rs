//! The used part of a turn's budget.

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
use superstep_llm::{Usage, models::NanoDollars};
use tokio::time::Instant;

use crate::{
    AgentEvent, AgentState, ReactConfig,
    config::{Budget, Cost},
    events::emit,
    state::{BudgetLimit, TurnCost},
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
    Some(config.budget.wall?.saturating_sub(Spent::of(state, cx.now_ms()).time))
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

/// The resources used by a turn so far.
pub(super) struct Spent {
    pub(super) usage: Usage,
    /// The cost by known prices, if all are known.
    pub(super) cost: Option<NanoDollars>,
    pub(super) tool_calls: usize,
    /// The time since it began.
    pub(super) time: Duration,
}

impl Spent {
    pub(super) fn of(state: &AgentState, now_ms: i64) -> Self {
        let ms = u64::try_from(now_ms.saturating_sub(state.started_ms)).unwrap_or(0);
        let (usage, cost, tool_calls) =
            (state.usage, state.cost().and_then(TurnCost::whole), state.tools_used.len());
        Self { usage, cost, tool_calls, time: Duration::from_millis(ms) }
    }

    /// Returns the reached limit if the budget is used up.
    pub(super) fn exhausts(&self, budget: &Budget) -> Option<BudgetLimit> {
        self.shares(budget).find(|(_, share)| *share >= 1.0).map(|(limit, _)| limit)
    }

    /// Returns the limit that is nearly reached, and its used share in percent.
    pub(super) fn nears(&self, budget: &Budget) -> Option<(BudgetLimit, u32)> {
        let near = self.shares(budget).find(|(_, share)| *share >= 0.8);
        // Shares of more than a few times the budget do not occur, and the cast saturates.
        near.map(|(reason, share)| (reason, (share * 100.0) as u32))
    }

    /// Returns a share of the remaining budget.
    pub(super) fn grant(&self, budget: &Budget, share: f64) -> Budget {
        let tokens = self.usage.input_tokens.saturating_add(self.usage.output_tokens);
        // The casts saturate, and drop fractions.
        let of = |most: u64, spent: u64| (most.saturating_sub(spent) as f64 * share) as u64;
        let calls = |most: u32| of(most.into(), u64::try_from(self.tool_calls).unwrap_or(u64::MAX));
        Budget {
            tokens: budget.tokens.map(|most| of(most, tokens)),
            tool_calls: budget.tool_calls.map(|most| u32::try_from(calls(most)).unwrap_or(u32::MAX)),
            wall: budget.wall.map(|most| most.saturating_sub(self.time).mul_f64(share)),
            cost: budget.cost.map(|cost| Cost {
                max: (cost.max - cost.of(self.usage, self.cost)).max(0.0) * share,
                ..cost
            }),
            reserve_final: budget.reserve_final,
        }
    }

    fn shares(&self, budget: &Budget) -> impl Iterator<Item = (BudgetLimit, f64)> {
        let tokens = self.usage.input_tokens.saturating_add(self.usage.output_tokens);
        let cost =
            budget.cost.map(|cost| (BudgetLimit::Cost, share(cost.of(self.usage, self.cost), cost.max)));
        let shares = [
            budget.tokens.map(|most| (BudgetLimit::Tokens, share(tokens as f64, most as f64))),
            budget
                .tool_calls
                .map(|most| (BudgetLimit::ToolCalls, share(self.tool_calls as f64, f64::from(most)))),
            budget.wall.map(|most| (BudgetLimit::Wall, share(self.time.as_secs_f64(), most.as_secs_f64()))),
            cost,
        ];
        shares.into_iter().flatten()
    }
}

/// Returns the used share; a zero budget is used up from the beginning.
fn share(spent: f64, most: f64) -> f64 {
    if most > 0.0 { spent / most } else { 1.0 }
}
