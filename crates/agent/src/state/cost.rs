//! The estimated cost of a turn.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use superstep_llm::{Usage, models::NanoDollars};

/// The cost of a model in a turn. An estimate by the prices that were known when its responses were accepted; later prices do not
/// change it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCost {
    /// The amount.
    pub nano_dollars: NanoDollars,
    /// The day of the prices, as `2026-11-28`; empty if it is unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub as_of: String,
}

/// The cost of a turn. An estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCost {
    /// The amount, as far as prices are known.
    pub nano_dollars: NanoDollars,
    /// The prices of some model are unknown, so that the turn costs more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
}

impl TurnCost {
    /// Returns the amount, if all prices are known.
    pub(crate) fn whole(self) -> Option<NanoDollars> {
        (!self.incomplete).then_some(self.nano_dollars)
    }
}

impl ModelCost {
    /// Returns the sum, as of the newest prices.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let as_of = self.as_of.clone().max(other.as_of.clone());
        Self { nano_dollars: self.nano_dollars + other.nano_dollars, as_of }
    }
}

/// Returns the cost of a turn with these tokens, in total and by model.
pub(crate) fn cost_of(
    usage: Usage,
    usage_by_model: &BTreeMap<String, Usage>,
    estimated_cost: &BTreeMap<String, ModelCost>,
) -> Option<TurnCost> {
    let nano_dollars = estimated_cost.values().map(|cost| cost.nano_dollars).sum();
    let is_unknown =
        |(model, usage): (&String, &Usage)| *usage != Usage::default() && !estimated_cost.contains_key(model);
    if estimated_cost.is_empty() {
        return (usage == Usage::default()).then(TurnCost::default);
    }
    Some(TurnCost { nano_dollars, incomplete: usage_by_model.iter().any(is_unknown) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AgentState;

    #[test]
    fn a_model_without_a_price_makes_the_cost_incomplete() {
        let cost = |nanos| ModelCost { nano_dollars: NanoDollars(nanos), as_of: String::new() };
        let mut state = AgentState { usage: Usage::new(2, 1), ..AgentState::default() };
        assert_eq!(state.cost(), None);
        state.estimated_cost.insert("a".into(), cost(5));
        assert_eq!(state.cost(), Some(TurnCost { nano_dollars: NanoDollars(5), incomplete: false }));
        state.usage_by_model = [("a", Usage::new(1, 1)), ("b", Usage::default())]
            .map(|(model, usage)| (model.to_owned(), usage))
            .into();
        assert_eq!(state.cost().map(|cost| cost.incomplete), Some(false));
        state.usage_by_model.insert("c".into(), Usage::new(1, 0));
        assert_eq!(state.cost().map(|cost| cost.incomplete), Some(true));
        assert_eq!(AgentState::default().cost(), Some(TurnCost::default()), "nothing costs nothing");
    }

    #[test]
    fn a_sum_has_the_day_of_the_newest_prices() {
        let one = ModelCost { nano_dollars: NanoDollars(1), as_of: "2026-11-28".into() };
        let other = ModelCost { nano_dollars: NanoDollars(2), as_of: "2026-12-01".into() };
        assert_eq!(one.plus(&other), ModelCost { nano_dollars: NanoDollars(3), as_of: "2026-12-01".into() });
    }
}
