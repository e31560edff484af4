//! The estimated cost of a turn, as the program shows it.

use std::fmt;

use serde::Serialize;
use superstep::{
    agent::{AgentState, state::TurnCost},
    llm::models::NanoDollars,
};

/// The estimated cost of a turn, by the prices of a day.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct EstimatedCost {
    nano_dollars: NanoDollars,
    /// The price of some model is unknown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
    /// The day of the newest prices; empty if it is unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    as_of: String,
}

impl EstimatedCost {
    /// Returns the cost of the turn; `None` if no price is known.
    pub(crate) fn of(state: &AgentState) -> Option<Self> {
        let as_of = state.estimated_cost.values().map(|cost| cost.as_of.clone()).max()?;
        let TurnCost { nano_dollars, incomplete } = state.cost()?;
        Some(Self { nano_dollars, incomplete, as_of })
    }
}

impl fmt::Display for EstimatedCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nano_dollars, incomplete, as_of } = self;
        write!(f, "{} {nano_dollars}", if *incomplete { "more than about" } else { "about" })?;
        if as_of.is_empty() { Ok(()) } else { write!(f, " by prices of {as_of}") }
    }
}

#[cfg(test)]
mod tests {
    use superstep::{agent::state::ModelCost, llm::Usage};

    use super::*;

    #[test]
    fn an_estimate_is_shown_as_one() {
        let mut state = AgentState { usage: Usage::new(1, 1), ..AgentState::default() };
        assert_eq!(EstimatedCost::of(&state), None);
        let cost = ModelCost { nano_dollars: NanoDollars(12_000_000), as_of: "2026-11-28".into() };
        state.estimated_cost.insert("m".into(), cost);
        let shown = EstimatedCost::of(&state).unwrap();
        assert_eq!(shown.to_string(), "about $0.0120 by prices of 2026-11-28");
        let json = serde_json::to_string(&shown).unwrap();
        assert_eq!(json, r#"{"nano_dollars":12000000,"as_of":"2026-11-28"}"#);
        state.usage_by_model.insert("n".into(), Usage::new(1, 0));
        let shown = EstimatedCost::of(&state).unwrap().to_string();
        assert_eq!(shown, "more than about $0.0120 by prices of 2026-11-28");
    }
}
