//! What a turn has spent of its budget.

use std::time::Duration;

use superstep_llm::Usage;

use crate::{AgentState, Budget};

/// A turn so far.
pub(super) struct Spent {
    pub(super) usage: Usage,
    pub(super) tool_calls: usize,
    /// Since it began.
    pub(super) time: Duration,
}

impl Spent {
    pub(super) fn of(state: &AgentState, now_ms: i64) -> Self {
        let ms = u64::try_from(now_ms.saturating_sub(state.started_ms)).unwrap_or(0);
        Self { usage: state.usage, tool_calls: state.tools_used.len(), time: Duration::from_millis(ms) }
    }

    /// The stop reason if the budget is exhausted.
    pub(super) fn exhausts(&self, budget: &Budget) -> Option<&'static str> {
        self.shares(budget).find(|(_, share)| *share >= 1.0).map(|(reason, _)| reason)
    }

    /// What is nearly exhausted, and how much of it is spent, in hundredths.
    pub(super) fn nears(&self, budget: &Budget) -> Option<(&'static str, u32)> {
        let near = self.shares(budget).find(|(_, share)| *share >= 0.8);
        // Shares of more than a few times the budget do not come up, and the cast saturates.
        near.map(|(reason, share)| (reason, (share * 100.0) as u32))
    }

    fn shares(&self, budget: &Budget) -> impl Iterator<Item = (&'static str, f64)> {
        let tokens = self.usage.input_tokens.saturating_add(self.usage.output_tokens);
        let cost = budget.cost.map(|cost| {
            let price = |tokens: u64, per_million: Option<f64>| {
                tokens as f64 / 1e6 * per_million.unwrap_or(f64::INFINITY)
            };
            let spent = price(self.usage.input_tokens, cost.per_million_input)
                + price(self.usage.output_tokens, cost.per_million_output);
            ("budget_cost", share(spent, cost.max))
        });
        let shares = [
            budget.tokens.map(|most| ("budget_tokens", share(tokens as f64, most as f64))),
            budget
                .tool_calls
                .map(|most| ("budget_tool_calls", share(self.tool_calls as f64, f64::from(most)))),
            budget.wall.map(|most| ("budget_wall", share(self.time.as_secs_f64(), most.as_secs_f64()))),
            cost,
        ];
        shares.into_iter().flatten()
    }
}

/// A budget of nothing is spent from the beginning.
fn share(spent: f64, most: f64) -> f64 {
    if most > 0.0 { spent / most } else { 1.0 }
}
