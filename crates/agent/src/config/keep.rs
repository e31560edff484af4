//! The texts that requests keep of the messages that they leave out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pins::Pin;

/// The texts that requests keep, word for word, of earlier messages that they leave out: one message before the summary, written when
/// messages are left out. Until more are, it stays as it is, so that the provider's cache has it.
///
/// Shares are parts of the [window](super::ContextConfig::window). What does not fit into its share is left out, the least important
/// kind of pins and the oldest messages first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Keep {
    /// Pins of each thread, beside those that its user adds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<Pin>,
    /// The share of the pins.
    pub pins_share: f64,
    /// The share of the user's newest messages; 0 for none.
    pub user_messages: f64,
    /// The tools whose results stay, such as a task list.
    pub results: BTreeMap<String, KeptResults>,
    /// The share of these results.
    pub results_share: f64,
}

/// The results of a tool that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptResults {
    /// The latest one.
    Latest,
    /// The latest one for each arguments.
    Each,
}

impl Default for Keep {
    /// Keeps pins only.
    fn default() -> Self {
        Self {
            pins: Vec::new(),
            pins_share: 0.05,
            user_messages: 0.0,
            results: BTreeMap::new(),
            results_share: 0.05,
        }
    }
}

impl Keep {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Keeps pins, the user's newest messages in a tenth of the window, the task list of the tool `todo` and the texts of the tool
    /// `skill`.
    pub fn recommended() -> Self {
        let results = [("todo", KeptResults::Latest), ("skill", KeptResults::Each)];
        Self {
            user_messages: 0.10,
            results: results.map(|(tool, kept)| (tool.to_owned(), kept)).into(),
            ..Self::default()
        }
    }
}
