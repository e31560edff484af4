//! The requests of a call of the models, and their tokens.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use superstep_graph::Cx;
use superstep_llm::{Delta, Usage};

use crate::{AgentEvent, AgentState, events::emit, state::AgentStateUpdate};

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
                self.spent = self.spent + self.current.take().unwrap_or_default();
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

    /// Returns the tokens of all attempts.
    pub(super) fn into_tokens(self) -> ModelTokens {
        let Self { model, current, spent, others, .. } = self;
        ModelTokens { model, usage: spent + current.unwrap_or_default(), others }
    }
}

impl ModelTokens {
    /// Returns the tokens of all models.
    pub(super) fn total(&self) -> Usage {
        self.others.values().fold(self.usage, |sum, usage| sum + *usage)
    }

    /// Returns the tokens by model, including `estimated` ones of the last one; `configured` is the configured model.
    pub(super) fn by_model(self, configured: &str, estimated: Usage) -> Vec<(String, Usage)> {
        let model = self.model.unwrap_or_else(|| configured.to_owned());
        self.others.into_iter().chain([(model, self.usage + estimated)]).collect()
    }
}

/// Adds tokens to those of the turn, in total and by model; `main` is the model of the agent. Those by model are empty as
/// long as only the main model was called, except for a sub-agent, whose caller cannot know that model.
pub(super) fn with_usage(
    update: AgentStateUpdate,
    state: &AgentState,
    main: &str,
    usage: Usage,
    by_model: Vec<(String, Usage)>,
) -> AgentStateUpdate {
    let update = update.usage(state.usage + usage);
    let mut sum = state.usage_by_model.clone();
    if sum.is_empty() {
        if state.granted.is_none() && by_model.iter().all(|(model, _)| model == main) {
            return update;
        }
        sum.insert(main.to_owned(), state.usage);
    }
    for (model, usage) in by_model {
        let of_model = sum.entry(model).or_default();
        *of_model = *of_model + usage;
    }
    update.usage_by_model(sum)
}
