//! Effects of approvals on other calls.

use serde::{Deserialize, Serialize};

/// The effect of a pending approval on the round, and of a denial on the turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalConfig {
    /// Blocks all calls of a response until every approval is decided. Otherwise only dependent calls wait:
    /// in [`Sequential`](crate::config::ToolMode::Sequential) mode the later ones, in parallel mode those on the
    /// other side of an [exclusive](superstep_llm::Behaviour::exclusive) call.
    pub hold_batch: bool,
    /// Ends the turn with the outcome [`Denied`](crate::AgentOutcome::Denied) after the round in which the
    /// user denied a call. Otherwise the model receives the denial and continues. The round's other calls are
    /// executed as decided. A denial by a rule does not end the turn.
    pub stop_on_deny: bool,
}
