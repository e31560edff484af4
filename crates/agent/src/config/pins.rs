//! Texts that every request of a thread contains, although earlier messages are left out.
//!
//! Start at [`Pin`].

use serde::{Deserialize, Serialize};
use superstep_graph::state::HasId;
use superstep_llm::Message;

use super::delimiters::defused;

/// A text that the model reads in every request of its thread: when it is pinned, and after each reduction that leaves earlier
/// messages out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The name of the pin in its thread; a pin with the same one replaces it.
    #[serde(default)]
    pub id: String,
    /// The kind of text.
    pub kind: PinKind,
    /// The text.
    pub text: String,
    /// The origin of the text.
    #[serde(default)]
    pub source: PinSource,
}

/// The kinds of pins, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinKind {
    /// A rule that the model has to follow. Only users and configurations pin rules.
    Rule,
    /// The goal of the work.
    Goal,
    /// A preference of the user.
    Preference,
    /// A fact.
    Fact,
}

/// The origin of a [`Pin`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinSource {
    /// The user.
    #[default]
    User,
    /// The configuration, see [`Keep::pins`](super::Keep::pins).
    Config,
    /// The model, by a tool.
    Model,
}

impl HasId for Pin {
    fn id(&self) -> &str {
        &self.id
    }

    fn set_id(&mut self, id: String) {
        self.id = id;
    }
}

impl PinKind {
    /// All kinds, the most important first.
    pub const ALL: [Self; 4] = [Self::Rule, Self::Goal, Self::Preference, Self::Fact];

    /// Returns the name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Goal => "goal",
            Self::Preference => "preference",
            Self::Fact => "fact",
        }
    }
}

impl Pin {
    /// The beginning of the ids of the model's pins, so that they replace no others.
    pub const OF_MODEL: &str = "model:";

    /// Creates a pin of the user. Its id is made of its text.
    pub fn new(kind: PinKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { id: crate::plain_name::hash_of(&text), kind, text, source: PinSource::User }
    }

    /// Sets the id.
    #[must_use]
    pub fn with_id(self, id: impl Into<String>) -> Self {
        Self { id: id.into(), ..self }
    }

    /// Returns whether a tool may write it: it is the model's, and no rule.
    pub(crate) fn is_of_model(&self) -> bool {
        self.source == PinSource::Model && self.kind != PinKind::Rule && self.id.starts_with(Self::OF_MODEL)
    }
}

/// Returns the message of new pins.
pub(crate) fn pinned(pins: &[Pin]) -> Message {
    let list = lists(pins);
    Message::user(format!(
        "<kept>\nPinned: valid from now on, to the end of the conversation.\n{list}</kept>"
    ))
    .with(|message| message.synthetic = true)
}

/// Returns the message of pins that were removed.
pub(crate) fn unpinned(pins: &[Pin]) -> Message {
    let list = lists(pins);
    Message::user(format!("<kept>\nNo longer valid: the user has removed these pins.\n{list}</kept>"))
        .with(|message| message.synthetic = true)
}

/// Lists pins by their kinds.
pub(crate) fn lists<'a>(pins: impl IntoIterator<Item = &'a Pin>) -> String {
    let pins: Vec<&Pin> = pins.into_iter().collect();
    let mut text = String::new();
    for kind in PinKind::ALL {
        let of_kind: Vec<_> = pins.iter().filter(|pin| pin.kind == kind).collect();
        if !of_kind.is_empty() {
            text.push_str(match kind {
                PinKind::Rule => "\nRules:\n",
                PinKind::Goal => "\nGoals:\n",
                PinKind::Preference => "\nPreferences:\n",
                PinKind::Fact => "\nFacts:\n",
            });
        }
        for pin in of_kind {
            text.push_str(&format!("- {}\n", closed(&pin.text).trim().replace('\n', "\n  ")));
        }
    }
    text
}

/// Escapes a text so that it cannot close its delimiters.
pub(crate) fn closed(text: &str) -> String {
    defused(text, &["kept", "user_message", "result"])
}
