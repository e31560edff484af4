//! What asking about a call does to the others.

use serde::{Deserialize, Serialize};

/// How a round goes on of which a call is asked about, and a turn of which a call is denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalConfig {
    /// Whether the calls of an answer wait until those of them that are asked about are decided. Otherwise only those wait that
    /// must not run before them: in [`Sequential`](crate::ToolMode::Sequential) mode the later ones, in parallel mode those on
    /// the other side of an [exclusive](superstep_llm::Behaviour::exclusive) call.
    pub hold_batch: bool,
    /// Whether the turn ends with the round in which somebody denied a call, with the outcome
    /// [`Denied`](crate::AgentOutcome::Denied). Otherwise the model is told and goes on. The other calls of the round are
    /// executed as they were decided. A rule that denies a call ends nothing.
    pub stop_on_deny: bool,
}
