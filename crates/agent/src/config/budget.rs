//! The budget of a turn.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use superstep_llm::{Usage, models::NanoDollars};

/// The budget of one turn. `None` means no limit.
///
/// An event is emitted when four fifths of any limit are used; when a limit is reached, no more tools are
/// executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Maximum number of tokens, input and output.
    pub tokens: Option<u64>,
    /// Maximum number of executed tool calls.
    pub tool_calls: Option<u32>,
    // Waits count: a stopped process, an open question and a night between two runs look alike to the next one.
    /// Maximum time since the turn began in milliseconds, including waits for approvals. Tool and model calls
    /// that exceed it are stopped. A [reserved](Self::reserve_final) call may take a quarter of it in
    /// addition.
    #[serde(rename = "wall_ms", with = "super::millis::optional")]
    pub wall: Option<Duration>,
    /// Maximum cost.
    pub cost: Option<Cost>,
    /// Calls the model once more without tools when the budget is used up, so that there is a reply. On by
    /// default.
    pub reserve_final: bool,
}

impl Default for Budget {
    /// Returns a budget without limits.
    fn default() -> Self {
        Self { tokens: None, tool_calls: None, wall: None, cost: None, reserve_final: true }
    }
}

/// The maximum cost of tokens. Given prices apply to all tokens of the turn, whichever model used them, and may be in any currency.
/// Without them the cost is that of [`AgentState::cost`](crate::AgentState::cost), in dollars, by the prices that each model
/// [knows](superstep_llm::ChatModel::info).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The maximum.
    pub max: f64,
    /// The price of a million input tokens; `None` for the known prices. Building an agent fails without both, and if one price
    /// only is given.
    #[serde(default)]
    pub per_million_input: Option<f64>,
    /// The price of a million output tokens; `None` for the known prices.
    #[serde(default)]
    pub per_million_output: Option<f64>,
}

impl Cost {
    /// Returns the cost of tokens, which is `known` unless there are prices; infinite if a price is unknown.
    pub(crate) fn of(self, usage: Usage, known: Option<NanoDollars>) -> f64 {
        if self.uses_known_prices() {
            return known.map_or(f64::INFINITY, NanoDollars::dollars);
        }
        let price = |tokens: u64, per_million: Option<f64>| {
            tokens as f64 / 1e6 * per_million.unwrap_or(f64::INFINITY)
        };
        price(usage.input_tokens, self.per_million_input)
            + price(usage.output_tokens, self.per_million_output)
    }

    /// Returns whether both prices are given.
    pub(crate) fn has_prices(self) -> bool {
        self.per_million_input.is_some() && self.per_million_output.is_some()
    }

    /// Returns whether the models' own prices apply.
    pub(crate) fn uses_known_prices(self) -> bool {
        self.per_million_input.is_none() && self.per_million_output.is_none()
    }
}

impl Budget {
    /// Returns whether there are no limits.
    pub(crate) fn is_unbounded(&self) -> bool {
        let Self { tokens, tool_calls, wall, cost, .. } = self;
        tokens.is_none() && tool_calls.is_none() && wall.is_none() && cost.is_none()
    }

    /// Returns this budget, limited to the other one.
    pub(crate) fn within(&self, other: &Self) -> Self {
        fn least<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(if other < one { other } else { one }),
                (one, other) => one.or(other),
            }
        }
        let cost = match (self.cost, other.cost) {
            // Its own prices: another agent may have another model.
            (Some(own), Some(other)) => Some(Cost { max: own.max.min(other.max), ..own }),
            (own, other) => own.or(other),
        };
        Self {
            tokens: least(self.tokens, other.tokens),
            tool_calls: least(self.tool_calls, other.tool_calls),
            wall: least(self.wall, other.wall),
            cost,
            reserve_final: self.reserve_final && other.reserve_final,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_prices_count_before_known_ones() {
        let cost = |input, output| Cost { max: 1.0, per_million_input: input, per_million_output: output };
        let usage = Usage::new(500_000, 100_000);
        let known = NanoDollars(250_000_000);
        assert_eq!(cost(Some(2.0), Some(10.0)).of(usage, Some(known)), 2.0);
        assert_eq!(cost(None, None).of(usage, Some(known)), 0.25);
        assert_eq!(cost(None, None).of(usage, None), f64::INFINITY);
        assert_eq!(cost(Some(2.0), None).of(usage, Some(known)), f64::INFINITY);
    }
}
