//! Reduction of a conversation that exceeds the context budget.

use serde::{Deserialize, Serialize};

use super::{keep::Keep, prompts, truncate::Truncate};

/// The size of requests, and the reduction of larger ones.
///
/// The stored conversation never changes: these settings affect requests only. Without layers, requests
/// contain everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextConfig {
    /// The context window in tokens, including the response; `None` for the smallest window of the models, where unknown ones have
    /// 128,000. The smaller window of a model that [knows](superstep_llm::ChatModel::info) it counts.
    pub window: Option<u64>,
    /// The token budget of a request.
    pub budget: ContextBudget,
    /// The reductions applied in this order until the request is within its budget.
    pub layers: Vec<ContextLayer>,
    /// The texts that requests keep of the messages that they leave out.
    #[serde(skip_serializing_if = "Keep::is_default")]
    pub keep: Keep,
    /// The condition for giving up summaries.
    pub breaker: Breaker,
    /// Reduces and resends a request that the provider rejected as too long, once.
    pub retry_overflow: bool,
}

/// The token budget of a request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextBudget {
    /// A share of the window.
    Ratio(f64),
    /// A number of tokens.
    Tokens(u64),
    /// The window minus this number of tokens, which are reserved for the response.
    Reserve(u64),
}

/// One reduction of requests. Each decision is made once and then persists, so that later requests have the
/// same prefix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ContextLayer {
    /// Truncates long tool results; those that the model has not read yet come last. Applied only if the
    /// request shrinks by [`Breaker::min_gain`].
    MicroCompact(Truncate),
    /// Replaces old tool results by their size and first line; the calls are unchanged.
    Prune {
        /// Number of tokens of the newest tool results to retain.
        protect: u64,
        /// Minimum number of tokens to save.
        min_gain: u64,
        /// Number of latest turns left unchanged, including the current one.
        #[serde(default)]
        protect_turns: u32,
        /// Also runs at the beginning of each turn, even if the request is within its budget.
        #[serde(default)]
        each_turn: bool,
    },
    /// Summarizes all but the newest messages with a model call. This is the node `compact`.
    Consolidate {
        /// Number of messages to retain, or fewer if these are too large. A call and its results stay
        /// together.
        keep_recent: usize,
        /// Maximum share of the budget for retained messages.
        #[serde(default = "target")]
        target: f64,
        /// The prompt of the model that writes the summary.
        #[serde(default = "prompt")]
        prompt: String,
    },
    /// Omits all but the newest messages.
    Snip {
        /// Number of messages to retain, or fewer if they are too large after all layers. A call and its results stay
        /// together.
        keep_last: usize,
    },
}

/// The condition that disables ineffective summaries for the rest of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Breaker {
    /// The minimum share by which a request must shrink.
    pub min_gain: f64,
    /// Number of consecutive summaries that failed or gained less. The next turn tries again.
    pub max_ineffective: u32,
}

fn target() -> f64 {
    0.75
}

fn prompt() -> String {
    prompts::CONSOLIDATE.into()
}

impl Default for ContextConfig {
    /// Returns a configuration that sends everything.
    fn default() -> Self {
        Self {
            window: None,
            budget: ContextBudget::Ratio(0.70),
            layers: Vec::new(),
            keep: Keep::default(),
            breaker: Breaker::default(),
            retry_overflow: true,
        }
    }
}

impl Default for Breaker {
    /// Returns a gain of a tenth and two attempts.
    fn default() -> Self {
        Self { min_gain: 0.10, max_ineffective: 2 }
    }
}

impl ContextConfig {
    /// The window of models of which none is known, in tokens.
    pub const USUAL_WINDOW: u64 = 128_000;

    /// Returns the token budget of a request.
    pub fn limit(&self) -> u64 {
        let window = self.window.unwrap_or(Self::USUAL_WINDOW);
        match self.budget {
            ContextBudget::Ratio(ratio) => share(window, ratio),
            ContextBudget::Tokens(tokens) => tokens,
            ContextBudget::Reserve(tokens) => window.saturating_sub(tokens),
        }
    }

    /// Returns a share of the window, in tokens.
    pub(crate) fn of_window(&self, part: f64) -> u64 {
        share(self.window.unwrap_or(Self::USUAL_WINDOW), part)
    }

    /// Returns whether a layer writes summaries.
    pub(crate) fn consolidates(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer, ContextLayer::Consolidate { .. }))
    }

    /// Returns whether a layer omits messages.
    pub(crate) fn snips(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer, ContextLayer::Snip { .. }))
    }

    /// Returns the truncation of long tool results, if configured.
    pub(crate) fn micro(&self) -> Option<&Truncate> {
        self.layers.iter().find_map(|layer| match layer {
            ContextLayer::MicroCompact(truncate) => Some(truncate),
            _ => None,
        })
    }
}

impl ContextLayer {
    /// Summarizes all but the newest `keep_recent` messages; other settings have recommended values.
    pub fn consolidate(keep_recent: usize) -> Self {
        Self::Consolidate { keep_recent, target: target(), prompt: prompt() }
    }
}

/// Returns a share of some tokens, clamped to none or all.
pub(crate) fn share(tokens: u64, share: f64) -> u64 {
    // Token counts are far below the exact range of f64, and the cast saturates.
    (tokens as f64 * share.clamp(0.0, 1.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_share_a_number_or_the_rest_of_a_reserve() {
        let limit =
            |budget| ContextConfig { window: Some(1_000), budget, ..ContextConfig::default() }.limit();
        assert_eq!(limit(ContextBudget::Ratio(0.7)), 700);
        assert_eq!(limit(ContextBudget::Ratio(7.0)), 1_000);
        assert_eq!(limit(ContextBudget::Ratio(f64::NAN)), 0);
        assert_eq!(limit(ContextBudget::Tokens(5_000)), 5_000);
        assert_eq!((limit(ContextBudget::Reserve(300)), limit(ContextBudget::Reserve(3_000))), (700, 0));
    }
}
