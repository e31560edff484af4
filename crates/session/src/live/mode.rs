//! Modes: what answers questions before a person does.

use std::{fmt, str::FromStr};

use superstep::agent::Approval;

use crate::turn::waiting::Waiting;

/// The tools that change files of the folder by themselves.
const EDITS: [&str; 2] = ["edit_file", "write_file"];

/// The tools that change something, or reach the network.
const EFFECTS: [&str; 4] = ["edit_file", "write_file", "shell", "fetch_url"];

/// The decisions about calls that no rule decides. A mode answers in front of the person, is no grant, and a rule that denies wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A person decides.
    #[default]
    Ask,
    /// Edits of files in the folder are approved, and a person decides about the rest.
    AcceptEdits,
    /// Calls that change something are denied.
    ReadOnly,
    /// Every call is approved.
    Auto,
}

impl Mode {
    /// All modes, in the order of their permissions.
    pub const ALL: [Self; 4] = [Self::Ask, Self::AcceptEdits, Self::ReadOnly, Self::Auto];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::AcceptEdits => "accept-edits",
            Self::ReadOnly => "read-only",
            Self::Auto => "auto",
        }
    }

    /// The description, a line.
    pub fn description(self) -> &'static str {
        match self {
            Self::Ask => "asks before a call that has effects",
            Self::AcceptEdits => "edits files without a question, and asks before other effects",
            Self::ReadOnly => "denies calls that change something",
            Self::Auto => "runs every call that no rule denies",
        }
    }

    /// Returns the decision about a call that waits; `None` if a person decides. A form is always for a person.
    pub(super) fn decision(self, call: &Waiting) -> Option<Approval> {
        if call.request.form.is_some() {
            return None;
        }
        match self {
            Self::Ask => None,
            Self::AcceptEdits => call.is_of(&EDITS).then_some(Approval::Approve),
            Self::ReadOnly => Some(Approval::Deny("the session is read-only".to_owned())),
            Self::Auto => Some(Approval::Approve),
        }
    }

    /// Returns the tools that a turn which begins in this mode does not offer.
    pub(super) fn hidden_tools(self) -> &'static [&'static str] {
        match self {
            Self::ReadOnly => &EFFECTS,
            Self::Ask | Self::AcceptEdits | Self::Auto => &[],
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(|mode| format!("`{}`", mode.name())).join(", ");
            format!("`{name}` is none of the modes {names}")
        })
    }
}
