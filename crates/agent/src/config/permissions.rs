//! Which calls may run.

use std::collections::BTreeMap;

use globset::GlobBuilder;
use serde::{Deserialize, Serialize};

/// What is decided about calls of a kind. Of several rules that are about a call the last one counts; without any, the tool
/// itself says whether somebody is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionRule {
    /// A pattern for the tool's name: `*` stands for any characters, `?` for one, `{a,b}` for either.
    pub tool: String,
    /// Patterns for arguments by their name, all of which have to fit. What is no text is compared as JSON.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    /// What is decided.
    pub then: Permit,
}

/// What a [`PermissionRule`] decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permit {
    /// The call runs, and nobody is asked.
    Allow,
    /// Somebody is asked.
    Ask,
    /// The call does not run.
    Deny,
}

impl PermissionRule {
    /// A rule about every call of a tool.
    pub fn new(tool: impl Into<String>, then: Permit) -> Self {
        Self { tool: tool.into(), arguments: BTreeMap::new(), then }
    }

    /// Whether it is about a tool of this name, with some arguments at least. A pattern that is none fits nothing.
    pub fn is_about(&self, tool: &str) -> bool {
        fits(&self.tool, tool)
    }

    /// The first pattern that is none, and why.
    pub(crate) fn problem(&self) -> Option<String> {
        let patterns = [&self.tool].into_iter().chain(self.arguments.values());
        patterns
            .map(|pattern| GlobBuilder::new(pattern).build())
            .find_map(Result::err)
            .map(|error| error.to_string())
    }
}

/// Whether a pattern of a rule fits.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    GlobBuilder::new(pattern).build().is_ok_and(|glob| glob.compile_matcher().is_match(text))
}
