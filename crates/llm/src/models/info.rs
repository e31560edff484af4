//! The facts about one model.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::prices::Prices;

/// The known facts about a model. Anything that is absent is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelInfo {
    /// The name at the provider.
    pub id: String,
    /// Other names of the same model.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub alias: BTreeSet<String>,
    /// The beginning of further names, such as those with a date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The provider's own protocol, such as `anthropic`, `responses` or `chat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<String>,
    /// The context window in tokens; the maximum input of a provider that limits it separately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The maximum output in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// The prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Prices>,
    /// Abilities; see [`ModelInfo::can`].
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub can: BTreeSet<String>,
    /// Requests that the provider rejects; see [`ModelInfo::cannot`].
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub cannot: BTreeSet<String>,
    /// The minimum number of tokens that the provider caches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_min: Option<u64>,
    /// The source of these facts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The day of these facts, as `2026-11-28`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub as_of: String,
}

impl ModelInfo {
    /// Returns whether the model is known to have an ability: `tools`, `images`, `audio`, `pdf`, `schema` (replies by a JSON
    /// Schema), `reasoning`, `adaptive` (thinking of its own length), `bound` (thinking that is valid behind the same messages
    /// only), `mid_system` (system messages in the conversation).
    pub fn can(&self, ability: &str) -> bool {
        self.can.contains(ability)
    }

    /// Returns whether the provider is known to reject a kind of request: `sampling` (a temperature), `force_tool` (a forced tool
    /// call), `no_thinking`, `prefill` (the beginning of the answer).
    pub fn cannot(&self, request: &str) -> bool {
        self.cannot.contains(request)
    }

    /// Returns these facts, and those of `base` where these are absent. The names of both apply.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        fn first<T: Clone>(own: &Option<T>, base: &Option<T>) -> Option<T> {
            own.clone().or_else(|| base.clone())
        }
        fn named(own: &BTreeSet<String>, base: &BTreeSet<String>) -> BTreeSet<String> {
            if own.is_empty() { base } else { own }.clone()
        }
        // The source and the day are those of the prices.
        let is_own = self.price.is_some() || !self.as_of.is_empty();
        let (source, as_of) = if is_own { (&self.source, &self.as_of) } else { (&base.source, &base.as_of) };
        Self {
            id: self.id.clone(),
            alias: &self.alias | &base.alias,
            prefix: first(&self.prefix, &base.prefix),
            wire: first(&self.wire, &base.wire),
            window: self.window.or(base.window),
            max_output: self.max_output.or(base.max_output),
            price: first(&self.price, &base.price),
            can: named(&self.can, &base.can),
            cannot: named(&self.cannot, &base.cannot),
            cache_min: self.cache_min.or(base.cache_min),
            source: source.clone(),
            as_of: as_of.clone(),
        }
    }
}
