//! Permission of a call, and its approval.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use futures::{FutureExt, future::join_all};
use serde_json::{Value, json};
use superstep_graph::{Cx, NodeError};
use superstep_llm::{Subject, Tool, ToolCx, ToolFuture, ToolSpec};

use super::{
    executor::Executor,
    pending::{Left, Pending, Verdict},
};
use crate::{
    AgentEvent, AgentState, Approval,
    approval::{ApprovalRequest, Approvals, Trust, form},
    config::{PermissionRule, Permit, prompts},
    deps::AgentDeps,
    permissions::{decided, denying},
    state::AgentStateUpdate,
};

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

impl Executor {
    /// Decides on a call with these arguments before any approval: by the rules, by the thread's grants and,
    /// if they leave it open, by the tool's own question.
    fn verdict(
        &self,
        name: &str,
        args: &Value,
        remembered: Option<Permit>,
        question: impl FnOnce() -> Result<Option<String>, String>,
    ) -> Verdict {
        let configured = self.decided(&self.deps.config.permissions, name, args);
        let permit = combined(configured, remembered);
        match permit {
            Some(Permit::Allow) => return Verdict::Run,
            Some(Permit::Deny) => return Verdict::Refuse(prompts::denied("a rule forbids it")),
            Some(Permit::Ask) | None => {}
        }
        match (question(), permit) {
            (Err(panic), _) => Verdict::Refuse(prompts::failed(name, &panic)),
            (Ok(Some(question)), _) => Verdict::Ask(question),
            (Ok(None), Some(_)) => Verdict::Ask(self.here(format!("Run {name} with {args}?"))),
            (Ok(None), None) => Verdict::Run,
        }
    }

    /// Returns the decision of the thread's granted rules.
    fn remembered(&self, name: &str, args: &Value) -> Option<Permit> {
        let rules = self.permissions.lock().expect("no code panics while holding the lock").clone();
        self.decided(&rules, name, args)
    }

    /// Returns whether a permitted call is still permitted if one of its arguments resolves differently by
    /// now. Approval was already given.
    pub(super) fn permits(
        &self,
        tool: &Arc<dyn Tool>,
        args: &Value,
        asked: bool,
    ) -> impl Fn(&str, &Subject) -> bool + Send + Sync + 'static {
        // Its answer is known from the start.
        let asked = asked || matches!(self.deps.approvals, Approvals::Allow);
        let configured = self.deps.config.permissions.clone();
        let granted = self.permissions.lock().expect("no code panics while holding the lock").clone();
        let (tool, args) = (tool.clone(), args.clone());
        move |argument, subject| {
            let fixed = ResolvedTool { tool: &*tool, argument, subject };
            let by = |rules: &[PermissionRule]| decided(rules, &tool.spec().name, Some(&fixed), &args);
            match combined(by(&configured), by(&granted)) {
                Some(Permit::Allow) => true,
                Some(Permit::Deny) => false,
                Some(Permit::Ask) => asked,
                None => asked || matches!(question(&*tool, &args), Ok(None)),
            }
        }
    }

    /// Returns the decision of the rules on a call.
    fn decided(&self, rules: &[PermissionRule], name: &str, args: &Value) -> Option<Permit> {
        decided(rules, name, self.deps.tools.get(name).map(|tool| &**tool), args)
    }

    /// Decides on the call at `position`; `None` if it is not a valid call of a tool. The tool's question is
    /// recorded, because the call may change its inputs.
    pub(super) fn verdict_on(&self, position: usize, call: &Pending) -> Option<Verdict> {
        let is_open = call.refused.is_none() && call.denied().is_none();
        let Some(Ok(args)) = call.checked.as_ref().filter(|_| is_open) else { return None };
        let tool = self.deps.tools.get(&call.name)?;
        let question = || {
            // An answer applies to the call. The tool's question may change meanwhile, also by the call
            // itself.
            let question = match self.answered_text(call, args) {
                Some(question) => Some(question),
                None => question(&**tool, args)?.map(|question| self.here(question)),
            };
            Ok(self.cx.noted(&format!("asks.{position}"), question.clone()).or(question))
        };
        let verdict = self.verdict(&call.name, args, self.remembered(&call.name, args), question);
        Some(match verdict {
            // An earlier decision on it applies, whatever rule was added since: its arguments may have been
            // edited.
            Verdict::Run if self.cx.is_answered(&call.call.id) => {
                let answered = self.cx.answered_question::<ApprovalRequest>(&call.call.id);
                let question = answered.filter(|_| self.deps.trust.is_none()).map(|asked| asked.question);
                Verdict::Ask(question.unwrap_or_else(|| format!("Run {} with {args}?", call.name)))
            }
            Verdict::Ask(_) if self.is_allowed(position, call) || self.is_done(position, call) => {
                Verdict::Run
            }
            verdict => verdict,
        })
    }

    /// Returns whether the call needs no approval because everything is approved. Earlier decisions on a
    /// waiting call still apply.
    fn is_allowed(&self, position: usize, call: &Pending) -> bool {
        let allows = matches!(self.deps.approvals, Approvals::Allow) && !self.cx.is_answered(&call.call.id);
        self.cx.noted(&format!("allowed.{position}"), allows)
    }

    /// Returns whether the call needs no approval because it has a result, and needed none when it began.
    fn is_done(&self, position: usize, call: &Pending) -> bool {
        let is_decided =
            || self.cx.is_answered(&call.call.id) || self.cx.has_result(&format!("decision.{position}"));
        self.cx.noted(&format!("done.{position}"), call.left == Left::Result && !is_decided())
    }

    /// Returns the next action for a replay: the call, and the decision by earlier grants. The question is
    /// excluded, because it may depend on the call's effects.
    pub(super) fn about(&self, position: usize, call: &Pending) -> Value {
        let verdict = match (&call.checked, self.deps.tools.get(&call.name), call.denied()) {
            (_, _, Some(reason)) => json!({ "denied": reason }),
            (Some(Ok(args)), Some(tool), None) => {
                let verdict = || self.verdict_before(position, &**tool, &call.name, args);
                match call.verdict.clone().unwrap_or_else(verdict) {
                    Verdict::Run => json!("run"),
                    Verdict::Ask(_) => json!("ask"),
                    Verdict::Refuse(text) => json!({ "refuse": text }),
                }
            }
            (Some(Err(error)), ..) => json!({ "refuse": error.to_string() }),
            _ => Value::Null,
        };
        json!({ "tool": call.name, "args": call.args(), "verdict": verdict })
    }

    /// Decides on a call by the grants before this round. The existence of the tool's question is recorded.
    fn verdict_before(&self, position: usize, tool: &dyn Tool, name: &str, args: &Value) -> Verdict {
        self.verdict(name, args, self.decided(&self.granted, name, args), || {
            let asks = question(tool, args)?.is_some();
            let asks = self.cx.noted(&format!("asks.{position}"), asks) || asks;
            Ok(asks.then(String::new))
        })
    }

    /// Obtains decisions on the waiting calls, all of them before the first one runs. Calls that cannot run any
    /// more need none.
    pub(super) async fn decide(
        &self,
        calls: impl Iterator<Item = &mut (usize, Pending)>,
    ) -> Result<(), NodeError> {
        let calls = calls.filter(|(position, call)| call.needs_approval() && !self.is_over(*position, call));
        match &self.deps.approvals {
            Approvals::Deny => {}
            Approvals::Interrupt | Approvals::Allow => {
                let asked = calls.map(|(_, call)| async {
                    if let Some(request) = call.request() {
                        let key = request.call_id.clone();
                        let (decision, interrupt) = self.decided_outside(&key, request).await;
                        (call.decision, call.interrupt) = (Some(decision), interrupt);
                    }
                });
                join_all(asked).await;
            }
            Approvals::Ask(_) => {
                for (position, call) in calls {
                    let Some(request) = call.request() else { continue };
                    call.decision = self.ask_once(&format!("decision.{position}"), &request).await?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether a call without a decision is not executed any more: a tool failed, or the time is over.
    fn is_over(&self, position: usize, call: &Pending) -> bool {
        let is_over = self.tool_failed.is_cancelled() || self.is_late(call);
        self.cx.noted(&format!("over.{position}"), is_over && !self.cx.is_answered(&call.call.id))
    }

    /// Returns the reason why a decision is not valid.
    pub(super) fn problem(&self, request: &ApprovalRequest, decision: &Approval) -> Option<String> {
        match (&request.form, decision) {
            (Some(question), decision) => form::misfit(question, decision),
            (None, decision) => self.problem_of(&request.tool, decision),
        }
    }

    /// Returns the reason why a decision on a call is not valid.
    fn problem_of(&self, tool: &str, decision: &Approval) -> Option<String> {
        match decision {
            Approval::Edit(args) => {
                let unfit = self.deps.tools.check(tool, &args.to_string())?.err();
                unfit.map(|error| error.to_string()).or_else(|| self.forbids(tool, args))
            }
            Approval::Answer(_) | Approval::Cancel => Some(prompts::NOT_A_DECISION.to_owned()),
            other => other.rule(tool)?.problem(),
        }
    }

    /// Returns the rule that denies a call with edited arguments. Users approve calls that a rule asks about,
    /// not those that one denies.
    fn forbids(&self, name: &str, args: &Value) -> Option<String> {
        let granted = self.permissions.lock().expect("no code panics while holding the lock").clone();
        let tool = self.deps.tools.get(name).map(|tool| &**tool);
        let rules = [&self.deps.config.permissions, &granted];
        let rule = rules.into_iter().find_map(|rules| denying(rules, name, tool, args))?;
        Some(prompts::forbidden(&rule.to_string()))
    }

    /// Asks the approver. The decision is stored, so that it is not requested again if the node runs again.
    pub(super) async fn ask_once(
        &self,
        mark: &str,
        request: &ApprovalRequest,
    ) -> Result<Option<Approval>, NodeError> {
        let mut is_stored = true;
        let decision = self.cx.once(mark, async |_| {
            is_stored = false;
            Ok::<_, NodeError>(self.ask(request).await)
        });
        let decision = decision.await?;
        match &decision {
            Some(stored) if is_stored && !self.counts(mark, request, stored) => Ok(self.ask(request).await),
            _ => Ok(decision),
        }
    }

    /// Asks the approver; `None` if the turn is cancelled meanwhile. A panic does not approve.
    async fn ask(&self, request: &ApprovalRequest) -> Option<Approval> {
        let Approvals::Ask(approver) = &self.deps.approvals else { return None };
        let asked = async {
            let _asking = self.asking.lock().await;
            // It may have been granted permanently during other questions.
            if request.form.is_some() {
                return approver.ask(request).await;
            }
            if self.remembered(&request.tool, &request.args) == Some(Permit::Allow) {
                return Approval::Approve;
            }
            let decision = approver.ask(request).await;
            self.remember(decision.rule(&request.tool));
            decision
        };
        tokio::select! {
            biased;
            () = self.cx.cancel().cancelled() => None,
            decision = AssertUnwindSafe(asked).catch_unwind() => Some(decision.unwrap_or_else(|panic| {
                Approval::Deny(format!("the approver panicked: {}", prompts::panic(&*panic)))
            })),
        }
    }

    fn remember(&self, rule: Option<PermissionRule>) {
        let rule = rule.filter(|rule| rule.problem().is_none());
        self.permissions.lock().expect("no code panics while holding the lock").extend(rule);
    }

    /// Returns whether a call may run, and with which arguments; requests approval now if still needed.
    ///
    /// # Errors
    /// If the decision cannot be stored.
    pub(super) async fn permission(
        &self,
        position: usize,
        tool: &dyn Tool,
        call: &Pending,
        args: Value,
    ) -> Result<Permission, NodeError> {
        let name = call.name.as_str();
        let asks = || Ok(question(tool, &args)?.map(|question| self.here(question)));
        let verdict = || self.verdict(name, &args, self.remembered(name, &args), asks);
        let question = match call.verdict.clone().unwrap_or_else(verdict) {
            Verdict::Run => {
                return Ok(Permission::Go(Approved { args, notice: None, asked: false, rule: None }));
            }
            Verdict::Refuse(text) => return Ok(Permission::no(text)),
            Verdict::Ask(question) => question,
        };
        let decision = match (&call.decision, &self.deps.approvals) {
            (Some(decision), _) => Some(decision.clone()),
            (None, Approvals::Ask(_)) => {
                let request = ApprovalRequest::new(call, &args, question);
                self.ask_once(&format!("decision.{position}"), &request).await?
            }
            (None, Approvals::Deny | Approvals::Interrupt | Approvals::Allow) => {
                return Ok(Permission::no(prompts::denied("nobody is there to approve it")));
            }
        };
        let Some(decision) = decision else { return Ok(Permission::no(prompts::INTERRUPTED.to_owned())) };
        if let Some(problem) = self.problem_of(name, &decision) {
            return Ok(Permission::no(match decision {
                Approval::Edit(args) if self.forbids(name, &args).is_none() => {
                    prompts::bad_args(name, &problem)
                }
                _ => prompts::denied(&problem),
            }));
        }
        let rule = decision.rule(name);
        Ok(match decision {
            Approval::Approve | Approval::Always | Approval::AlwaysFor(_) => {
                Permission::Go(Approved { args, notice: None, asked: true, rule })
            }
            Approval::Edit(args) => {
                Permission::Go(Approved { notice: Some(prompts::edited(&args)), args, asked: true, rule })
            }
            Approval::Deny(reason) => Permission::No { text: prompts::denied(&reason), denied: true },
            Approval::Respond(text) => Permission::Answer(text),
            Approval::Answer(_) | Approval::Cancel => unreachable!("they are no decision about a call"),
        })
    }
}

/// Combines configured and granted rules: a permanent grant replaces a question, but not a denial,
/// which involves no question.
fn combined(configured: Option<Permit>, remembered: Option<Permit>) -> Option<Permit> {
    match configured {
        Some(Permit::Deny) => Some(Permit::Deny),
        other => remembered.or(other),
    }
}

/// A tool with one argument that is already resolved.
struct ResolvedTool<'a> {
    tool: &'a dyn Tool,
    argument: &'a str,
    subject: &'a Subject,
}

impl Tool for ResolvedTool<'_> {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn subject(&self, argument: &str, args: &Value) -> Option<Subject> {
        if argument == self.argument { Some(self.subject.clone()) } else { self.tool.subject(argument, args) }
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        self.tool.call(args, cx)
    }
}

impl Pending {
    /// Returns whether the call requires approval, if that is decided.
    pub(super) fn needs_approval(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Ask(_)))
    }

    /// Returns the approval request, if needed.
    fn request(&self) -> Option<ApprovalRequest> {
        match (&self.verdict, &self.checked) {
            (Some(Verdict::Ask(question)), Some(Ok(args))) => {
                Some(ApprovalRequest::new(self, args, question.clone()))
            }
            _ => None,
        }
    }
}

impl ApprovalRequest {
    pub(super) fn new(call: &Pending, args: &Value, question: String) -> Self {
        let (call_id, tool) = (call.call.id.clone(), call.name.clone());
        Self { call_id, tool, args: args.clone(), question, form: None, problem: None }
    }
}

/// Returns the tool's question before a call, or the message of its panic.
pub(super) fn question(tool: &dyn Tool, args: &Value) -> Result<Option<String>, String> {
    catch_unwind(AssertUnwindSafe(|| tool.approval(args))).map_err(|panic| prompts::tool_panicked(&*panic))
}

/// Returns the rules that were granted on the thread, without untrusted ones and those granted for another
/// folder.
pub(super) fn granted(deps: &AgentDeps, state: &AgentState, cx: &Cx) -> Vec<PermissionRule> {
    let is_here = state.permitted_in == state.cwd;
    let is_foreign = |rule: &&PermissionRule| {
        let knows = |trust: &Arc<dyn Trust>| trust.is_granted(cx.thread(), rule);
        rule.then == Permit::Allow && !(is_here && deps.trust.as_ref().is_none_or(knows))
    };
    let foreign: Vec<_> = state.permissions.iter().filter(is_foreign).cloned().collect();
    let foreign = cx.noted("foreign", foreign);
    state.permissions.iter().filter(|rule| !foreign.contains(rule)).cloned().collect()
}

/// Adds rules granted in the folder of the turn, replacing those granted for another folder.
pub(super) fn granting(
    state: &AgentState,
    rules: Vec<PermissionRule>,
    update: AgentStateUpdate,
) -> AgentStateUpdate {
    match rules.is_empty() {
        true => update,
        false if state.permitted_in == state.cwd => update.permissions(rules),
        false => update.set_permissions(rules).permitted_in(state.cwd.clone()),
    }
}

/// Returns the event that reports a request. The interrupt contains the request as well; an approver may also approve
/// permanently.
pub(super) fn requested(request: &ApprovalRequest) -> AgentEvent {
    let ApprovalRequest { call_id, tool, args, form, .. } = request;
    let allowed: &[&str] = match form {
        None => &["approve", "deny", "edit", "respond"],
        Some(_) => &["answer", "approve", "deny", "cancel"],
    };
    AgentEvent::ApprovalRequested {
        id: call_id.clone(),
        tool: tool.clone(),
        args: args.clone(),
        allowed: allowed.iter().map(|&decision| decision.to_owned()).collect(),
        form: form.clone(),
    }
}
