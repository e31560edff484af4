//! The decision about a call: whether it may run, and with which arguments.

use serde_json::Value;

use crate::config::PermissionRule;

/// The result of a permission check.
pub(super) enum Permission {
    /// The call runs.
    Go(Approved),
    /// The call does not run, but this is its result.
    Answer(String),
    /// The call does not run.
    No {
        /// The text for the model.
        text: String,
        /// The user denied it.
        denied: bool,
    },
}

/// A permitted call.
pub(super) struct Approved {
    pub(super) args: Value,
    /// A notice before the result.
    pub(super) notice: Option<String>,
    /// Approval was requested.
    pub(super) asked: bool,
    /// The rule that was granted permanently.
    pub(super) rule: Option<PermissionRule>,
}

impl Permission {
    pub(super) fn no(text: String) -> Self {
        Self::No { text, denied: false }
    }
}
