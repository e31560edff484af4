//! Rows of assistants.
//!
//! Start at [`AssistantRow`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    access::{Role, User},
    wire::time,
};

/// A graph with a configuration of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AssistantRow {
    pub(crate) id: String,
    /// The user who owns it; `None` if it is for everyone.
    #[serde(default)]
    pub(crate) owner: Option<String>,
    pub(crate) created_us: i64,
    pub(crate) updated_us: i64,
    /// The versions, oldest first; never empty.
    pub(crate) versions: Vec<AssistantVersion>,
    /// The position of the version in use.
    pub(crate) current: usize,
}

/// One version of an assistant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AssistantVersion {
    pub(crate) graph: String,
    pub(crate) config: Map<String, Value>,
    pub(crate) context: Map<String, Value>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) created_us: i64,
}

impl AssistantRow {
    pub(crate) fn new(id: String, version: AssistantVersion) -> Self {
        let created_us = version.created_us;
        Self { id, owner: None, created_us, updated_us: created_us, versions: vec![version], current: 0 }
    }

    /// Returns the owner of what a user creates: assistants of administrators are for everyone.
    pub(crate) fn owner_of(user: &User) -> Option<String> {
        user.owner().filter(|_| user.role < Role::Admin)
    }

    /// Returns whether a user finds it.
    pub(crate) fn is_visible(&self, user: &User) -> bool {
        self.owner.is_none() || user.owns(self.owner.as_ref())
    }

    /// Returns the version in use.
    pub(crate) fn version(&self) -> &AssistantVersion {
        self.versions.get(self.current).unwrap_or(&self.versions[0])
    }

    /// Returns its wire form.
    pub(crate) fn to_wire(&self) -> Value {
        let mut wire = self.version_to_wire(self.current);
        wire["created_at"] = time::text(self.created_us).into();
        wire["updated_at"] = time::text(self.updated_us).into();
        wire
    }

    /// Returns the wire form of a version, by position.
    pub(crate) fn version_to_wire(&self, at: usize) -> Value {
        let version = &self.versions[at];
        json!({
            "assistant_id": self.id,
            "graph_id": version.graph,
            "config": version.config,
            "context": version.context,
            "metadata": version.metadata,
            "name": version.name,
            "description": version.description,
            "version": at + 1,
            "created_at": time::text(version.created_us),
        })
    }
}
