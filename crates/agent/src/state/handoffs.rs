//! The agents of a conversation, as the state stores them.
//!
//! Start at [`Handoffs`].

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::view::ContextView;
use crate::config::PermissionRule;

/// The part of the conversation that an agent reads once it has taken over. The conversation itself does not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoffView {
    /// The messages that the agent before it read.
    #[default]
    All,
    /// The same without the tool calls and results so far.
    NoToolRounds,
    /// A summary of the messages so far, made before its first model call. Its configuration must have a layer that
    /// [summarizes](crate::config::ContextLayer::Consolidate).
    Summary,
}

/// The agents that have had a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Handoffs {
    /// The agent to which the view and the grants of the state belong; empty for the first one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current: String,
    /// The views and grants of the others.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, Parked>,
}

/// The view and the grants of an agent that is not active.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parked {
    /// The part of the conversation that it reads.
    pub context: ContextView,
    /// The rules that were granted permanently while it was active.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<PermissionRule>,
    /// The folder of the turn in which they were granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permitted_in: Option<PathBuf>,
}
