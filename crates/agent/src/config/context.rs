//! What a request may hold of a conversation that is too long for it.

use serde::{Deserialize, Serialize};

use super::Truncate;
use crate::texts;

/// How large requests may be, and what is done about those that are larger.
///
/// What is stored never changes: all of it is about what the model is sent. Without layers that is always everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextConfig {
    /// How many tokens the model takes at once, its answer included.
    pub window: u64,
    /// How many of them a request may have.
    pub budget: ContextBudget,
    /// What is done, in this order, until the request is within its budget.
    pub layers: Vec<ContextLayer>,
    /// When summaries are given up.
    pub breaker: Breaker,
    /// Whether a request that the provider finds too long is sent once more, with less in it.
    pub retry_overflow: bool,
}

/// How many tokens a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextBudget {
    /// This share of the window.
    Ratio(f64),
    /// As many.
    Tokens(u64),
    /// The window without as many, which are kept for the answer.
    Reserve(u64),
}

/// One way to make a request smaller. Each is decided once and then sticks, so that the next request begins like this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ContextLayer {
    /// Long tool results are cut; those that the model has not read yet come last. Done only if the request becomes smaller
    /// by [`Breaker::min_gain`].
    MicroCompact(Truncate),
    /// Of old tool results only their size and first line stay; the calls stay whole.
    Prune {
        /// Tokens of the newest tool results, which stay.
        protect: u64,
        /// Fewer tokens than this are not worth it.
        min_gain: u64,
        /// How many turns stay as they are, the current one being the first.
        #[serde(default)]
        protect_turns: u32,
        /// Whether it is done at the beginning of each turn, even if the request is within its budget.
        #[serde(default)]
        each_turn: bool,
    },
    /// A model sums up what is older than the newest messages. This is the node `compact`.
    Consolidate {
        /// How many messages stay, or fewer if these are too large. A call and its results stay together.
        keep_recent: usize,
        /// Which share of the budget what stays may take.
        #[serde(default = "target")]
        target: f64,
        /// What the model is told that writes the summary.
        #[serde(default = "prompt")]
        prompt: String,
    },
    /// What is older than the newest messages is left out.
    Snip {
        /// How many stay. A call and its results stay together.
        keep_last: usize,
    },
}

/// When summaries that gain nothing are given up for the rest of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Breaker {
    /// By which share of itself a request has to become smaller.
    pub min_gain: f64,
    /// After how many summaries in a row that failed or gained less. The next turn tries once more.
    pub max_ineffective: u32,
}

fn target() -> f64 {
    0.75
}

fn prompt() -> String {
    texts::CONSOLIDATE.into()
}

impl Default for ContextConfig {
    /// Everything is sent.
    fn default() -> Self {
        Self {
            window: 128_000,
            budget: ContextBudget::Ratio(0.70),
            layers: Vec::new(),
            breaker: Breaker::default(),
            retry_overflow: true,
        }
    }
}

impl Default for Breaker {
    /// A tenth, twice.
    fn default() -> Self {
        Self { min_gain: 0.10, max_ineffective: 2 }
    }
}

impl ContextConfig {
    /// How many tokens a request may have.
    pub fn limit(&self) -> u64 {
        match self.budget {
            ContextBudget::Ratio(ratio) => share(self.window, ratio),
            ContextBudget::Tokens(tokens) => tokens,
            ContextBudget::Reserve(tokens) => self.window.saturating_sub(tokens),
        }
    }

    /// Whether a model is to write summaries.
    pub(crate) fn consolidates(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer, ContextLayer::Consolidate { .. }))
    }

    /// How long tool results are cut.
    pub(crate) fn micro(&self) -> Option<&Truncate> {
        self.layers.iter().find_map(|layer| match layer {
            ContextLayer::MicroCompact(truncate) => Some(truncate),
            _ => None,
        })
    }
}

impl ContextLayer {
    /// Summaries of all but the newest `keep_recent` messages, with what is recommended otherwise.
    pub fn consolidate(keep_recent: usize) -> Self {
        Self::Consolidate { keep_recent, target: target(), prompt: prompt() }
    }
}

/// A share of some tokens. What is no share is none of them or all.
pub(crate) fn share(tokens: u64, share: f64) -> u64 {
    // Tokens are far fewer than an f64 counts exactly, and the cast saturates.
    (tokens as f64 * share.clamp(0.0, 1.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_share_a_number_or_what_a_reserve_leaves() {
        let limit = |budget| ContextConfig { window: 1_000, budget, ..ContextConfig::default() }.limit();
        assert_eq!(limit(ContextBudget::Ratio(0.7)), 700);
        assert_eq!(limit(ContextBudget::Ratio(7.0)), 1_000);
        assert_eq!(limit(ContextBudget::Ratio(f64::NAN)), 0);
        assert_eq!(limit(ContextBudget::Tokens(5_000)), 5_000);
        assert_eq!((limit(ContextBudget::Reserve(300)), limit(ContextBudget::Reserve(3_000))), (700, 0));
    }
}
