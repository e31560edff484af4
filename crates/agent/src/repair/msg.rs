//! A message with the name of its author.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use superstep_llm::Role;

/// A message to or from an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Msg {
    /// The author.
    pub name: String,
    /// The author's role.
    pub role: Role,
    /// The text.
    pub content: String,
    /// Additional fields.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

impl Msg {
    /// Creates a message by `name`.
    pub fn new(name: impl Into<String>, role: Role, content: impl Into<String>) -> Self {
        Self { name: name.into(), role, content: content.into(), metadata: Map::new() }
    }

    /// Creates a user's message.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", Role::User, content)
    }
}

impl From<&str> for Msg {
    fn from(content: &str) -> Self {
        Self::user(content)
    }
}
