//! What a conversation keeps word for word when its earlier messages are left out.
//!
//! Start at [`Pin`].

use serde::{Deserialize, Serialize};
use superstep_graph::{
    State,
    state::{ById, HasId, Merge, Merges},
};

use super::agent_state::{AgentState, AgentStateUpdate};
use crate::context::kept;

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
    /// The configuration, see [`Keep::pins`](crate::config::Keep::pins).
    Config,
    /// The model, by a tool.
    Model,
}

/// The pins of a thread, in the order in which they were added.
pub type Pins = ById<Pin>;

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

impl AgentState {
    /// Returns the update that adds pins, with the message by which the model learns of them. Apply it between two turns, by
    /// [`update`](superstep_graph::Thread::update), or with the input of one.
    pub fn pin(pins: impl IntoIterator<Item = Pin>) -> AgentStateUpdate {
        let pins: Vec<Pin> = pins.into_iter().collect();
        let message = kept::pinned(&pins);
        Self::update().pins(pins).messages([message])
    }

    /// Returns the update that removes pins by their ids, with the message by which the model learns of it. An id that is not there
    /// is an error of the update.
    pub fn unpin(&self, ids: impl IntoIterator<Item = String>) -> AgentStateUpdate {
        let ids: Vec<String> = ids.into_iter().collect();
        let gone: Vec<Pin> = ids.iter().filter_map(|id| self.pins.get(id)).cloned().collect();
        let message = kept::unpinned(&gone);
        let update = Self::update().pins(Merges(ids.into_iter().map(Merge::remove).collect()));
        if gone.is_empty() { update } else { update.messages([message]) }
    }

    /// Returns the configured pins that the thread does not have.
    pub(crate) fn missing_pins(&self, configured: &[Pin]) -> Vec<Pin> {
        let with_id = |pin: &Pin| {
            let pin = Pin { source: PinSource::Config, ..pin.clone() };
            if pin.id.is_empty() { Pin { id: crate::plain_name::hash_of(&pin.text), ..pin } } else { pin }
        };
        configured.iter().map(with_id).filter(|pin| self.pins.get(&pin.id) != Some(pin)).collect()
    }
}
