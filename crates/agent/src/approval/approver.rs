//! Approval of tool calls.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_llm::calls::ToolQuestion;

use crate::config::{PermissionRule, Permit};

/// The source of decisions on calls that require approval.
#[derive(Clone)]
pub enum Approvals {
    /// None: such calls are denied.
    Deny,
    /// None: such calls run, as if a rule allowed them. Calls denied by a rule stay denied, and earlier
    /// decisions on waiting calls apply.
    Allow,
    /// An approver that is present while the turn runs.
    Ask(Arc<dyn Approver>),
    /// The answers to the run's interrupts, from any process at any time. The turn stops until all calls of
    /// the round are decided. Calls that need no approval and may run before them have run by then, and do
    /// not run again; with [`hold_batch`](crate::config::ApprovalConfig::hold_batch) all of them wait.
    Interrupt,
}

impl Approvals {
    /// Returns whether decisions are made by interrupts.
    pub(crate) fn are_outside(&self) -> bool {
        matches!(self, Self::Interrupt | Self::Allow)
    }
}

/// An approver of tool calls.
pub trait Approver: Send + Sync {
    /// Decides on one call. Called for one call at a time.
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> ApprovalFuture<'a>;
}

impl<A: Approver + ?Sized> Approver for Arc<A> {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> ApprovalFuture<'a> {
        (**self).ask(request)
    }
}

/// The future of one decision.
pub type ApprovalFuture<'a> = Pin<Box<dyn Future<Output = Approval> + Send + 'a>>;

/// A request for approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// The call's id.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The arguments, already checked.
    pub args: Value,
    /// The tool's description of the effect.
    pub question: String,
    /// The tool's own question, if its call has begun and needs the user's input; see
    /// [`ToolCx::ask`](superstep_llm::ToolCx::ask).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<ToolQuestion>,
    /// The reason for repeating the request, if the previous answer was not valid.
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
    /// The call may not run; the model receives the reason.
    Deny(String),
    /// The call may run with these arguments instead, and the model is informed.
    Edit(Value),
    /// The call does not run; the model reads this as its result.
    Respond(String),
    /// The call may run, and so may every later call of the tool on this thread.
    Always,
    /// The call may run, and so may every later call of the tool on this thread whose arguments fit these patterns; see
    /// [`PermissionRule::arguments`].
    AlwaysFor(BTreeMap<String, String>),
    /// The form is answered with these values.
    Answer(Value),
    /// The form is dismissed without an answer.
    Cancel,
}

impl Approval {
    /// Creates the approval of this call and of later ones whose arguments match these patterns.
    ///
    /// ```
    /// # use std::collections::BTreeMap;
    /// # use superstep_agent::Approval;
    /// let to_ada = BTreeMap::from([("to".to_owned(), "*@ada.org".to_owned())]);
    /// assert_eq!(Approval::always_for([("to", "*@ada.org")]), Approval::AlwaysFor(to_ada));
    /// ```
    pub fn always_for<N: Into<String>, P: Into<String>>(arguments: impl IntoIterator<Item = (N, P)>) -> Self {
        Self::AlwaysFor(arguments.into_iter().map(|(name, pattern)| (name.into(), pattern.into())).collect())
    }

    /// Returns whether the decision lets the call run, or accepts its question.
    pub fn lets_run(&self) -> bool {
        match self {
            Self::Approve | Self::Edit(_) | Self::Always | Self::AlwaysFor(_) | Self::Answer(_) => true,
            Self::Deny(_) | Self::Respond(_) | Self::Cancel => false,
        }
    }

    /// Returns whether the decision counts only if the [`Trust`](super::Trust) of the agent knows it: it lets something run, or the model
    /// reads its text as a result.
    pub fn needs_trust(&self) -> bool {
        self.lets_run() || matches!(self, Self::Respond(_))
    }

    /// Returns the rule that the decision adds to the thread, if it covers later calls.
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
