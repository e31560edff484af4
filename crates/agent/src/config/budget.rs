//! What a turn may cost.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The budget of one turn. What is `None` is not bounded.
///
/// At four fifths of any of it there is an event; when it is exhausted, tools are not executed any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Tokens, sent and received.
    pub tokens: Option<u64>,
    /// Tool calls that are executed.
    pub tool_calls: Option<u32>,
    /// Time since the turn began, in milliseconds, waiting for approvals included. A tool or a model call that runs longer is
    /// stopped. A call that is [reserved](Self::reserve_final) may take a quarter of it more.
    #[serde(rename = "wall_ms", with = "super::optional_ms")]
    pub wall: Option<Duration>,
    /// Money.
    pub cost: Option<Cost>,
    /// Whether the model is asked once more when it is exhausted, without tools, so that there is an answer: on unless it is
    /// switched off.
    pub reserve_final: bool,
}

impl Default for Budget {
    /// Nothing is bounded.
    fn default() -> Self {
        Self { tokens: None, tool_calls: None, wall: None, cost: None, reserve_final: true }
    }
}

/// What may be spent on tokens, in any currency. All tokens of the turn count at these prices, whichever model took them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The most.
    pub max: f64,
    /// The price of a million tokens that are sent. Without it nothing can be counted: an agent with such a budget is
    /// refused.
    #[serde(default)]
    pub per_million_input: Option<f64>,
    /// The price of a million tokens that are received.
    #[serde(default)]
    pub per_million_output: Option<f64>,
}

impl Budget {
    /// Whether nothing is bounded.
    pub(crate) fn is_unbounded(&self) -> bool {
        let Self { tokens, tool_calls, wall, cost, .. } = self;
        tokens.is_none() && tool_calls.is_none() && wall.is_none() && cost.is_none()
    }

    /// This budget, and no more than the other one allows.
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

    /// Whether its cost can be counted.
    pub(crate) fn has_prices(&self) -> bool {
        self.cost.is_none_or(|cost| cost.per_million_input.is_some() && cost.per_million_output.is_some())
    }
}
