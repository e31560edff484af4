//! Who is asked before a call runs, and what they decide.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_llm::ToolQuestion;

use crate::{PermissionRule, Permit};

/// Who decides about calls that are to be approved.
#[derive(Clone)]
pub enum Approvals {
    /// Nobody: they are denied.
    Deny,
    /// Nobody: they run, as if a rule allowed them. What a rule denies is denied, and what was decided before about a call that
    /// waited holds.
    Allow,
    /// Someone who is there while the turn runs.
    Ask(Arc<dyn Approver>),
    /// Whoever answers the run's interrupts, in any process, at any time. The turn stops until all calls of the round are
    /// decided. Those that need no approval and may run before them have run by then, and do not run again; all of them wait
    /// with [`hold_batch`](crate::ApprovalConfig::hold_batch).
    Interrupt,
}

impl Approvals {
    /// Whether decisions come from outside the run.
    pub(crate) fn are_outside(&self) -> bool {
        matches!(self, Self::Interrupt | Self::Allow)
    }
}

/// Someone who is asked before a tool that wants it.
pub trait Approver: Send + Sync {
    /// Decides on one call. Calls are asked about one at a time.
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> ApprovalFuture<'a>;
}

/// The future of one decision.
pub type ApprovalFuture<'a> = Pin<Box<dyn Future<Output = Approval> + Send + 'a>>;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// The call's id.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The arguments, already checked.
    pub args: Value,
    /// What the tool says it would do.
    pub question: String,
    /// The question of the tool itself, if its call has begun and needs an answer of the user; see
    /// [`ToolCx::ask`](superstep_llm::ToolCx::ask).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<ToolQuestion>,
    /// Why it is asked again, if the answer before could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A decision. As an answer to an interrupt: `"approve"`, `{"deny": "why"}`, `{"edit": {..}}`, `{"respond": "text"}`,
/// `"always"` or `{"always_for": {"to": "*@example.org"}}`; to a [`form`](ApprovalRequest::form) `{"answer": {..}}`, `"approve"` for an
/// answer without values, `{"deny": ".."}` or `"cancel"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Approval {
    /// The call may run.
    Approve,
    /// It may not; the model is told why.
    Deny(String),
    /// It may run with these arguments instead, and the model is told so.
    Edit(Value),
    /// It does not run; the model reads this as its result.
    Respond(String),
    /// It may run, and so may every later call of the tool on this thread.
    Always,
    /// It may run, and so may every later call of the tool on this thread whose arguments fit these patterns; see
    /// [`PermissionRule::arguments`].
    AlwaysFor(BTreeMap<String, String>),
    /// The form is answered with these values.
    Answer(Value),
    /// The form is dismissed without an answer.
    Cancel,
}

impl Approval {
    /// Returns whether it lets the call run, or agrees to what the call asks.
    pub fn lets_run(&self) -> bool {
        match self {
            Self::Approve | Self::Edit(_) | Self::Always | Self::AlwaysFor(_) | Self::Answer(_) => true,
            Self::Deny(_) | Self::Respond(_) | Self::Cancel => false,
        }
    }

    /// The rule that it adds to the thread, if it is about later calls of the tool too.
    pub fn rule(&self, tool: &str) -> Option<PermissionRule> {
        let arguments = match self {
            Self::Always => BTreeMap::new(),
            Self::AlwaysFor(arguments) => arguments.clone(),
            Self::Approve
            | Self::Deny(_)
            | Self::Edit(_)
            | Self::Respond(_)
            | Self::Answer(_)
            | Self::Cancel => return None,
        };
        Some(PermissionRule { arguments, ..PermissionRule::new(globset::escape(tool), Permit::Allow) })
    }
}

impl From<Approval> for Value {
    fn from(approval: Approval) -> Self {
        serde_json::to_value(approval).expect("a decision has a JSON form")
    }
}
