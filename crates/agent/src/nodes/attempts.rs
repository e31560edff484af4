//! The requests of a call of the models, and their tokens.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use superstep_graph::Cx;
use superstep_llm::{
    ChatModel, Delta, Usage,
    models::{NanoDollars, Prices},
};

use crate::{
    AgentEvent, AgentState,
    events::emit,
    state::{AgentStateUpdate, ModelCost},
};

/// The attempts of a call so far.
#[derive(Default)]
pub(super) struct Attempts {
    /// Number of failed attempts that were retried.
    pub(super) retries: u32,
    /// The called model; `None` for the configured one.
    pub(super) model: Option<String>,
    /// The tokens of the current attempt, if it has reported them.
    pub(super) current: Option<Usage>,
    /// Tokens of earlier attempts with the same model, and of other models.
    spent: Usage,
    others: BTreeMap<String, Usage>,
    /// The tokens of each earlier attempt, since a price may depend on the length of its input.
    ended: Vec<(Option<String>, Usage)>,
}

/// The tokens of a call, by model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ModelTokens {
    /// The last called model; `None` for the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    /// Tokens of that model, in all its attempts.
    usage: Usage,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    others: BTreeMap<String, Usage>,
    /// The cost of reported tokens.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    costs: BTreeMap<String, ModelCost>,
    /// The prices of the last model, if its tokens are unknown, and their day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prices: Option<(Prices, String)>,
}

/// Tokens of a model, and their cost if its prices are known.
pub(super) struct Spending {
    pub(super) model: String,
    pub(super) usage: Usage,
    pub(super) cost: Option<ModelCost>,
}

impl Attempts {
    /// Adds a part of the response, and emits the events of failed attempts.
    pub(super) fn push(&mut self, delta: &Delta, cx: &Cx) {
        match delta {
            Delta::Retry { attempt, delay_ms, status, reason } => {
                self.retries += 1;
                let (attempt, delay_ms, status) = (*attempt, *delay_ms, *status);
                emit(cx, || AgentEvent::Retry { attempt, delay_ms, status, reason: reason.clone() });
            }
            Delta::Fallback { from, to, status, reason } => {
                self.retries += 1;
                self.others.insert(from.clone(), std::mem::take(&mut self.spent));
                self.model = Some(to.clone());
                emit(cx, || AgentEvent::ModelFallback {
                    from: from.clone(),
                    to: to.clone(),
                    status: *status,
                    reason: reason.clone(),
                });
            }
            Delta::AttemptDiscarded { .. } => {
                if let Some(usage) = self.current.take() {
                    self.spent = self.spent + usage;
                    self.ended.push((self.model.clone(), usage));
                }
            }
            Delta::ReasoningDropped { path, reason, all: _ } => {
                emit(cx, || AgentEvent::ReasoningDropped { path: path.clone(), reason: reason.clone() });
            }
            Delta::Usage(usage) => self.current = Some(*usage),
            Delta::Text(_)
            | Delta::Reasoning(_)
            | Delta::ToolCall { .. }
            | Delta::TextCalls { .. }
            | Delta::Origin { .. }
            | Delta::Extra { .. }
            | Delta::Item { .. }
            | Delta::Finish(_) => {}
        }
    }

    /// Returns the tokens of all attempts, and their cost by the prices that `called` knows.
    pub(super) fn into_tokens(self, called: &dyn ChatModel) -> ModelTokens {
        let Self { model, current, spent, others, ended, .. } = self;
        let name = |model: &Option<String>| model.clone().unwrap_or_else(|| called.name().to_owned());
        let prices = |name: &str| {
            let info = called.info(name)?;
            Some((info.price.clone()?, info.as_of.clone()))
        };
        let mut costs: BTreeMap<String, ModelCost> = BTreeMap::new();
        for (model, usage) in ended.into_iter().chain(current.map(|usage| (model.clone(), usage))) {
            let name = name(&model);
            if let Some((prices, as_of)) = prices(&name) {
                let cost = ModelCost { nano_dollars: prices.cost(usage), as_of };
                let sum = costs.entry(name).or_default();
                *sum = sum.plus(&cost);
            }
        }
        let prices = if current.is_none() { prices(&name(&model)) } else { None };
        ModelTokens { model, usage: spent + current.unwrap_or_default(), others, costs, prices }
    }
}

impl ModelTokens {
    /// Returns the tokens of all models.
    pub(super) fn total(&self) -> Usage {
        self.others.values().fold(self.usage, |sum, usage| sum + *usage)
    }

    /// Returns the cost of the reported tokens; `None` if a price is unknown.
    pub(super) fn cost(&self) -> Option<NanoDollars> {
        let all = self.others.iter().filter(|(_, usage)| **usage != Usage::default()).count();
        let others = self.others.keys().filter(|model| self.costs.contains_key(*model)).count();
        let own = self.costs.len() - others;
        let is_known = !self.costs.is_empty() && others >= all && (own > 0 || self.usage == Usage::default());
        is_known.then(|| self.costs.values().map(|cost| cost.nano_dollars).sum())
    }

    /// Returns the tokens by model, including `estimated` ones of the last one; `configured` is the configured model.
    pub(super) fn by_model(self, configured: &str, estimated: Usage) -> Vec<Spending> {
        let Self { model, usage, others, mut costs, prices } = self;
        let model = model.unwrap_or_else(|| configured.to_owned());
        if let (Some((prices, as_of)), true) = (prices, estimated != Usage::default()) {
            let cost = ModelCost { nano_dollars: prices.cost(estimated), as_of };
            let sum = costs.entry(model.clone()).or_default();
            *sum = sum.plus(&cost);
        }
        let all = others.into_iter().chain([(model, usage + estimated)]);
        all.map(|(model, usage)| Spending { cost: costs.remove(&model), model, usage }).collect()
    }
}

/// Adds tokens and costs to those of the turn, in total and by model; `main` is the model of the agent. Tokens by model are empty
/// as long as only the main model was called, except for a sub-agent, whose caller cannot know that model.
pub(super) fn with_usage(
    update: AgentStateUpdate,
    state: &AgentState,
    main: &str,
    usage: Usage,
    by_model: Vec<Spending>,
) -> AgentStateUpdate {
    let mut update = update.usage(state.usage + usage);
    let costs = with_costs(state, &by_model);
    if costs != state.estimated_cost {
        update = update.estimated_cost(costs);
    }
    let mut sum = state.usage_by_model.clone();
    if sum.is_empty() {
        if state.granted.is_none() && by_model.iter().all(|spending| spending.model == main) {
            return update;
        }
        sum.insert(main.to_owned(), state.usage);
    }
    for Spending { model, usage, .. } in by_model {
        let of_model = sum.entry(model).or_default();
        *of_model = *of_model + usage;
    }
    update.usage_by_model(sum)
}

/// Returns the costs of the turn with those of further calls.
pub(super) fn with_costs(state: &AgentState, by_model: &[Spending]) -> BTreeMap<String, ModelCost> {
    let mut sum = state.estimated_cost.clone();
    for Spending { model, cost, .. } in by_model {
        if let Some(cost) = cost {
            let of_model = sum.entry(model.clone()).or_default();
            *of_model = of_model.plus(cost);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use superstep_llm::retries::Retrying;

    use super::*;
    use crate::deps::models::tests::Known;

    const PRICE: &str = "as_of = \"2026-11-28\"\nprice = { input = \"1\", output = \"10\", above = [{ tokens = 100, input = \"2\" }] }";

    fn attempts(usages: &[Usage]) -> Attempts {
        let (current, ended) =
            usages.split_last().map(|(last, ended)| (Some(*last), ended)).unwrap_or_default();
        let mut attempts = Attempts { current, ..Attempts::default() };
        attempts.ended = ended.iter().map(|usage| (None, *usage)).collect();
        attempts.spent = ended.iter().fold(Usage::default(), |sum, usage| sum + *usage);
        attempts
    }

    fn nanos(spending: &Spending) -> Option<u64> {
        spending.cost.as_ref().map(|cost| cost.nano_dollars.0)
    }

    #[test]
    fn each_attempt_has_the_price_of_its_length() {
        let model = Known::new("m", PRICE);
        // 60 + 80 tokens at the lower price, and 101 at the higher one.
        let tokens =
            attempts(&[Usage::new(60, 0), Usage::new(80, 1), Usage::new(101, 0)]).into_tokens(&model);
        assert_eq!(tokens.cost(), Some(NanoDollars(140_000 + 10_000 + 202_000)));
        let stored: ModelTokens = serde_json::from_value(serde_json::to_value(&tokens).unwrap()).unwrap();
        let spent = stored.by_model("m", Usage::default());
        assert_eq!((spent[0].usage, nanos(&spent[0])), (Usage::new(241, 1), Some(352_000)));
        assert_eq!(spent[0].cost.as_ref().unwrap().as_of, "2026-11-28");
    }

    #[test]
    fn estimated_tokens_have_the_recorded_prices() {
        let tokens = attempts(&[]).into_tokens(&Known::new("m", PRICE));
        let stored: ModelTokens = serde_json::from_value(serde_json::to_value(&tokens).unwrap()).unwrap();
        let spent = stored.by_model("m", Usage::new(10, 1));
        assert_eq!(nanos(&spent[0]), Some(20_000));
    }

    #[test]
    fn a_model_without_prices_has_no_cost() {
        let priced = Retrying::new(Known::new("m", PRICE), Default::default());
        let models = priced.with_fallbacks([Known::new("n", "")]);
        let mut attempts = attempts(&[Usage::new(5, 1)]);
        attempts.others.insert("m".to_owned(), Usage::new(10, 0));
        attempts.ended.push((Some("m".to_owned()), Usage::new(10, 0)));
        attempts.model = Some("n".to_owned());
        let tokens = attempts.into_tokens(&models);
        assert_eq!(tokens.cost(), None, "the cost of `n` is unknown");
        let spent = tokens.by_model("m", Usage::default());
        assert_eq!(spent.iter().map(nanos).collect::<Vec<_>>(), [Some(10_000), None]);
        let costs = with_costs(&AgentState::default(), &spent);
        let costs: Vec<_> = costs.keys().collect();
        assert_eq!(costs, ["m"]);
    }
}
