//! Who is asked before a call runs, and what they decide.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
};

use futures::FutureExt;
use globset::GlobBuilder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_llm::{Tool, ToolCall};

use super::{Executor, Pending};
use crate::{PermissionRule, Permit, events, texts};

/// Who decides about calls that are to be approved.
#[derive(Clone)]
pub enum Approvals {
    /// Nobody: they are denied.
    Deny,
    /// Someone who is there while the turn runs.
    Ask(Arc<dyn Approver>),
    /// Whoever answers the run's interrupts, in any process, at any time. The turn stops until all calls of the round are
    /// decided; those that need no approval have run by then, and do not run again.
    Interrupt,
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
    /// Why it is asked again, if the answer before could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A decision. As an answer to an interrupt: `"approve"`, `{"deny": "why"}`, `{"edit": {..}}`, `{"respond": "text"}` or
/// `"always"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
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
}

impl ApprovalRequest {
    fn new(call: &ToolCall, tool: &str, args: &Value, question: String) -> Self {
        let (call_id, tool) = (call.id.clone(), tool.to_owned());
        Self { call_id, tool, args: args.clone(), question, problem: None }
    }
}

impl From<Approval> for Value {
    fn from(approval: Approval) -> Self {
        serde_json::to_value(approval).expect("a decision has a JSON form")
    }
}

/// What a call may run with.
pub(super) struct Go {
    pub(super) args: Value,
    /// What the model reads before the result.
    pub(super) notice: Option<String>,
}

impl Executor {
    /// What a person is asked before the call runs; `None` if nobody is. An error is what the model reads instead.
    fn question(&self, tool: &Arc<dyn Tool>, name: &str, args: &Value) -> Result<Option<String>, String> {
        let asks = catch_unwind(AssertUnwindSafe(|| tool.approval(args)))
            .map_err(|panic| texts::failed(name, &texts::tool_panicked(&*panic)))?;
        let rules = self.deps.config.permissions.iter().chain(&self.permissions);
        match rules.rev().find(|rule| matches(rule, name, args)).map(|rule| rule.then) {
            None => Ok(asks),
            Some(Permit::Allow) => Ok(None),
            Some(Permit::Deny) => Err(texts::denied("a rule forbids it")),
            Some(Permit::Ask) => Ok(asks.or_else(|| Some(format!("Run {name} with {args}?")))),
        }
    }

    /// What is to be asked about a call before the run goes on.
    pub(super) fn waits_for(&self, pending: &Pending) -> Option<ApprovalRequest> {
        let is_open = pending.refused.is_none() && pending.denied().is_none();
        let Some(Ok(args)) = pending.checked.as_ref().filter(|_| is_open) else {
            return None;
        };
        let tool = self.deps.tools.get(&pending.name)?;
        let question = self.question(tool, &pending.name, args).ok()??;
        Some(ApprovalRequest::new(&pending.call, &pending.name, args, question))
    }

    /// Interrupts the run until a call is decided on.
    pub(super) async fn decide(&self, mut request: ApprovalRequest) -> Approval {
        for round in 1.. {
            let key = match round {
                1 => request.call_id.clone(),
                _ => format!("{}.{round}", request.call_id),
            };
            events::approval_requested(&self.cx, &request);
            let approval: Approval = self.cx.ask(&key, &request).await;
            let Approval::Edit(args) = &approval else { return approval };
            match self.deps.tools.check(&request.tool, &args.to_string()) {
                Some(Err(error)) => request.problem = Some(error.to_string()),
                Some(Ok(_)) | None => return approval,
            }
        }
        unreachable!("the loop ends with a decision that can be used")
    }

    /// What a call may run with; if it may not, what the model reads. Who panics does not approve.
    pub(super) async fn approved(
        &self,
        tool: &Arc<dyn Tool>,
        name: &str,
        call: &ToolCall,
        args: Value,
        decision: Option<Approval>,
    ) -> Result<Go, String> {
        let Some(question) = self.question(tool, name, &args)? else { return Ok(Go { args, notice: None }) };
        let decision = match (decision, &self.deps.approvals) {
            (Some(decision), _) => decision,
            (None, Approvals::Ask(approver)) => {
                let request = ApprovalRequest::new(call, name, &args, question);
                let asked = async {
                    let _asking = self.asking.lock().await;
                    approver.ask(&request).await
                };
                tokio::select! {
                    biased;
                    () = self.cx.cancel().cancelled() => return Err(texts::INTERRUPTED.to_owned()),
                    decision = AssertUnwindSafe(asked).catch_unwind() => decision.map_err(|panic| {
                        texts::denied(&format!("whoever was asked panicked: {}", texts::panic(&*panic)))
                    })?,
                }
            }
            (None, Approvals::Deny | Approvals::Interrupt) => {
                return Err(texts::denied("nobody is there to approve it"));
            }
        };
        match decision {
            Approval::Approve | Approval::Always => Ok(Go { args, notice: None }),
            Approval::Deny(reason) => Err(texts::denied(&reason)),
            Approval::Respond(text) => Err(text),
            Approval::Edit(edited) => match self.deps.tools.check(name, &edited.to_string()) {
                Some(Ok(args)) => Ok(Go { notice: Some(texts::edited(&args)), args }),
                Some(Err(error)) => Err(texts::bad_args(name, &error.to_string())),
                None => Err(texts::unknown_tool(name, self.deps.tools.names())),
            },
        }
    }
}

/// Whether a rule is about a call. Patterns were checked when the agent was built; one that is none matches nothing.
fn matches(rule: &PermissionRule, tool: &str, args: &Value) -> bool {
    let fits = |pattern: &str, text: &str| {
        GlobBuilder::new(pattern).build().is_ok_and(|glob| glob.compile_matcher().is_match(text))
    };
    let argument = |(name, pattern): (&String, &String)| match &args[name.as_str()] {
        Value::Null => false,
        Value::String(text) => fits(pattern, text),
        other => fits(pattern, &other.to_string()),
    };
    fits(&rule.tool, tool) && rule.arguments.iter().all(argument)
}
