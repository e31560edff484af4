//! A message with the name of whoever says it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use superstep_llm::Role;

/// What somebody says to an agent, or an agent to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Msg {
    /// Who says it.
    pub name: String,
    /// As what.
    pub role: Role,
    /// What.
    pub content: String,
    /// What else is known of it.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

impl Msg {
    /// What `name` says.
    pub fn new(name: impl Into<String>, role: Role, content: impl Into<String>) -> Self {
        Self { name: name.into(), role, content: content.into(), metadata: Map::new() }
    }

    /// What a user says.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", Role::User, content)
    }
}

impl From<&str> for Msg {
    fn from(content: &str) -> Self {
        Self::user(content)
    }
}
