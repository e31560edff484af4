//! The used part of a turn's budget.
//!
//! Start at [`Spent`].

use std::time::Duration;

use superstep_llm::{Usage, models::NanoDollars};

use super::outcome::BudgetLimit;
use crate::config::{Budget, Cost};

/// The resources used by a turn so far.
pub(crate) struct Spent {
    pub(crate) usage: Usage,
    /// The cost by known prices, if all are known.
    pub(crate) cost: Option<NanoDollars>,
    pub(crate) tool_calls: usize,
    /// The time since it began.
    pub(crate) time: Duration,
}

impl Spent {
    /// Returns the reached limit if the budget is used up.
    pub(crate) fn exhausts(&self, budget: &Budget) -> Option<BudgetLimit> {
        self.shares(budget).find(|(_, share)| *share >= 1.0).map(|(limit, _)| limit)
    }

    /// Returns the limit that is nearly reached, and its used share in percent.
    pub(crate) fn nears(&self, budget: &Budget) -> Option<(BudgetLimit, u32)> {
        let near = self.shares(budget).find(|(_, share)| *share >= 0.8);
        // Shares of more than a few times the budget do not occur, and the cast saturates.
        near.map(|(reason, share)| (reason, (share * 100.0) as u32))
    }

    /// Returns a share of the remaining budget.
    pub(crate) fn grant(&self, budget: &Budget, share: f64) -> Budget {
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

    pub(super) fn shares(&self, budget: &Budget) -> impl Iterator<Item = (BudgetLimit, f64)> {
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
pub(crate) fn share(spent: f64, most: f64) -> f64 {
    if most > 0.0 { spent / most } else { 1.0 }
}
