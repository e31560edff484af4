//! A failed hook, as the state stores it.

use serde::{Deserialize, Serialize};

/// The stored failure of a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the hook `{hook}` failed: {message}")]
pub struct HookFailure {
    /// The hook: `pre_acting`, `post_reasoning`, …
    pub hook: String,
    /// The error with its causes.
    pub message: String,
}
