//! The decision whether a call may run.
//!
//! ```text
//! rules, grants of the thread, the tool's question → Verdict → a request, if needed → Decision
//! ```
//! Start at [`decide`].

mod request;
mod stored;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use serde_json::{Value, json};
use superstep_graph::NodeError;
use superstep_llm::{Subject, Tool, ToolCx, ToolFuture, ToolSpec, calls::ToolCallError};

pub(super) use self::{
    request::{answer_to_tool, request_all},
    stored::may_begin,
};
use super::{
    answer::CallResult,
    hooks::recheck,
    pending::{Left, Pending, Verdict},
    round::Round,
};
use crate::{
    Approval,
    approval::{ApprovalRequest, Approvals},
    config::{PermissionRule, Permit, prompts},
    context::finish::Finishing,
    permissions::permit_of,
};

pub(super) enum Decision {
    Run(Approved),
    /// The call does not run: this is its result. Boxed, because it is large.
    Done {
        args: Value,
        done: Box<CallResult>,
    },
}

pub(super) struct Approved {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) args: Value,
    /// A notice before the result.
    pub(super) notice: Option<String>,
    /// Approval was requested.
    pub(super) asked: bool,
    /// The rule that was granted permanently.
    pub(super) rule: Option<PermissionRule>,
}

impl Decision {
    pub(super) fn done(args: Value, done: CallResult) -> Self {
        Self::Done { args, done: Box::new(done) }
    }

    pub(super) fn args(&self) -> &Value {
        match self {
            Self::Run(approved) => &approved.args,
            Self::Done { args, .. } => args,
        }
    }
}

/// Decides whether the call runs, and with which arguments; requests approval if needed.
///
/// # Errors
/// If a decision cannot be stored.
pub(super) async fn decide(
    round: &Round,
    call: &mut Pending,
    was_begun: bool,
) -> Result<Decision, NodeError> {
    let name = &*call.name;
    let refused = |text| Ok(Decision::done(call.args(), CallResult::not_executed(text)));
    let (Some(tool), Some(checked)) = (round.tool(name), &call.checked) else {
        let finish = Finishing::of(&round.deps.config, &round.state).tool();
        let names = round.deps.tools.names().chain(finish.as_ref().map(|tool| tool.name.as_str()));
        return refused(prompts::unknown_tool(name, names));
    };
    let args = match checked {
        Ok(args) => args,
        Err(ToolCallError::NotJson { detail }) => return refused(prompts::bad_json(name, detail)),
        Err(error) => return refused(prompts::bad_args(name, &error.to_string())),
    };
    if let Some(reason) = call.denied() {
        return refused(prompts::denied(reason));
    }
    let approved = match by_verdict(round, tool, call, args).await? {
        Decision::Run(approved) => approved,
        // Its result does not change any more.
        Decision::Done { args, .. } if was_begun => {
            Approved { tool: tool.clone(), args, notice: None, asked: true, rule: None }
        }
        done => return Ok(done),
    };
    // While an approver was asked.
    if round.is_late(call) && !was_begun {
        return Ok(Decision::done(approved.args, CallResult::not_executed(prompts::BUDGET)));
    }
    if approved.notice.is_some()
        && let Some(refused) = recheck(round, call, &approved.args).await?
    {
        return Ok(Decision::done(approved.args, refused));
    }
    Ok(Decision::Run(approved))
}

/// Decides by the verdict on a valid call, with an approval if the verdict requires one.
async fn by_verdict(
    round: &Round,
    tool: &Arc<dyn Tool>,
    call: &Pending,
    args: &Value,
) -> Result<Decision, NodeError> {
    let name = call.name.as_str();
    let run = |args: Value, notice, asked, rule| {
        Decision::Run(Approved { tool: tool.clone(), args, notice, asked, rule })
    };
    let done = |done| Decision::done(args.clone(), done);
    let refused = |text| Ok(done(CallResult::not_executed(text)));
    let asks = || Ok(question(&**tool, args)?.map(|question| stored::here(round, question)));
    let verdict = || verdict(round, name, args, remembered(round, name, args), asks);
    let question = match call.verdict.clone().unwrap_or_else(verdict) {
        Verdict::Run => return Ok(run(args.clone(), None, false, None)),
        Verdict::Refuse(text) => return refused(text),
        Verdict::Ask(question) => question,
    };
    let decision = match (&call.decision, &round.deps.approvals) {
        (Some(decision), _) => Some(decision.clone()),
        (None, Approvals::Ask(_)) => {
            let mark = format!("decision.{}", call.position);
            request::ask_once(round, &mark, &call.request(args, question)).await?
        }
        (None, Approvals::Deny | Approvals::Interrupt | Approvals::Allow) => {
            return refused(prompts::denied("nobody is there to approve it"));
        }
    };
    let Some(decision) = decision else { return refused(prompts::INTERRUPTED.to_owned()) };
    if let Some(problem) = request::problem_of(round, name, &decision) {
        return refused(match decision {
            Approval::Edit(args) if request::forbids(round, name, &args).is_none() => {
                prompts::bad_args(name, &problem)
            }
            _ => prompts::denied(&problem),
        });
    }
    let rule = decision.rule(name);
    Ok(match decision {
        Approval::Approve | Approval::Always | Approval::AlwaysFor(_) => run(args.clone(), None, true, rule),
        Approval::Edit(args) => {
            let notice = prompts::edited(&args);
            run(args, Some(notice), true, rule)
        }
        Approval::Deny(reason) => {
            done(CallResult { denied: true, ..CallResult::not_executed(prompts::denied(&reason)) })
        }
        Approval::Respond(text) => done(CallResult { returned: true, ..CallResult::not_executed(text) }),
        Approval::Answer(_) | Approval::Cancel => unreachable!("they are no decision about a call"),
    })
}

/// Decides on a call with these arguments before any approval: by the rules, by the thread's grants and,
/// if they leave it open, by the tool's own question.
fn verdict(
    round: &Round,
    name: &str,
    args: &Value,
    remembered: Option<Permit>,
    question: impl FnOnce() -> Result<Option<String>, String>,
) -> Verdict {
    let configured = by_rules(round, &round.deps.config.permissions, name, args);
    let permit = combined(configured, remembered);
    match permit {
        Some(Permit::Allow) => return Verdict::Run,
        Some(Permit::Deny) => return Verdict::Refuse(prompts::denied("a rule forbids it")),
        Some(Permit::Ask) | None => {}
    }
    match (question(), permit) {
        (Err(panic), _) => Verdict::Refuse(prompts::failed(name, &panic)),
        (Ok(Some(question)), _) => Verdict::Ask(question),
        (Ok(None), Some(_)) => Verdict::Ask(stored::here(round, format!("Run {name} with {args}?"))),
        (Ok(None), None) => Verdict::Run,
    }
}

/// Returns the decision of the rules on a call.
fn by_rules(round: &Round, rules: &[PermissionRule], name: &str, args: &Value) -> Option<Permit> {
    permit_of(rules, name, round.tool(name).map(|tool| &**tool), args)
}

/// Returns the decision of the thread's granted rules.
fn remembered(round: &Round, name: &str, args: &Value) -> Option<Permit> {
    by_rules(round, &round.grants(), name, args)
}

/// Combines configured and granted rules: a permanent grant replaces a question, but not a denial,
/// which involves no question.
fn combined(configured: Option<Permit>, remembered: Option<Permit>) -> Option<Permit> {
    match configured {
        Some(Permit::Deny) => Some(Permit::Deny),
        other => remembered.or(other),
    }
}

/// Returns the tool's question before a call, or the message of its panic.
fn question(tool: &dyn Tool, args: &Value) -> Result<Option<String>, String> {
    catch_unwind(AssertUnwindSafe(|| tool.approval(args))).map_err(|panic| prompts::tool_panicked(&*panic))
}

/// Decides early on a call; `None` if it is not a valid call of a tool. The tool's question is
/// recorded, because the call may change its inputs.
pub(super) fn early_verdict(round: &Round, call: &Pending) -> Option<Verdict> {
    let (cx, id) = (&round.cx, &call.call.id);
    let is_open = call.refused.is_none() && call.denied().is_none();
    let args = call.valid_args().filter(|_| is_open)?;
    let tool = round.tool(&call.name)?;
    let question = || {
        // An answer applies to the call. The tool's question may change meanwhile, also by the call
        // itself.
        let question = match stored::answered_text(round, call, args) {
            Some(question) => Some(question),
            None => question(&**tool, args)?.map(|question| stored::here(round, question)),
        };
        Ok(cx.noted(&format!("asks.{}", call.position), question.clone()).or(question))
    };
    let verdict = verdict(round, &call.name, args, remembered(round, &call.name, args), question);
    Some(match verdict {
        // An earlier decision on it applies, whatever rule was added since: its arguments may have been
        // edited.
        Verdict::Run if cx.is_answered(id) => {
            let answered = cx.answered_question::<ApprovalRequest>(id);
            let question = answered.filter(|_| round.deps.trust.is_none()).map(|asked| asked.question);
            Verdict::Ask(question.unwrap_or_else(|| format!("Run {} with {args}?", call.name)))
        }
        Verdict::Ask(_) if is_allowed(round, call) || is_done(round, call) => Verdict::Run,
        verdict => verdict,
    })
}

/// Returns whether the call needs no approval because everything is approved. Earlier decisions on a
/// waiting call still apply.
fn is_allowed(round: &Round, call: &Pending) -> bool {
    let allows = matches!(round.deps.approvals, Approvals::Allow) && !round.cx.is_answered(&call.call.id);
    round.cx.noted(&format!("allowed.{}", call.position), allows)
}

/// Returns whether the call needs no approval because it has a result, and needed none when it began.
fn is_done(round: &Round, call: &Pending) -> bool {
    let (cx, position) = (&round.cx, call.position);
    let is_decided = || cx.is_answered(&call.call.id) || cx.has_result(&format!("decision.{position}"));
    cx.noted(&format!("done.{position}"), call.left == Left::Result && !is_decided())
}

/// Returns the next action for a replay: the call, and the decision by earlier grants. The question is
/// excluded, because it may depend on the call's effects.
pub(super) fn about(round: &Round, call: &Pending) -> Value {
    let verdict = match (&call.checked, round.tool(&call.name), call.denied()) {
        (_, _, Some(reason)) => json!({ "denied": reason }),
        (Some(Ok(args)), Some(tool), None) => {
            let verdict = || replayed_verdict(round, call, &**tool, args);
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
fn replayed_verdict(round: &Round, call: &Pending, tool: &dyn Tool, args: &Value) -> Verdict {
    let name = &call.name;
    verdict(round, name, args, by_rules(round, &round.granted, name, args), || {
        let asks = question(tool, args)?.is_some();
        let asks = round.cx.noted(&format!("asks.{}", call.position), asks) || asks;
        Ok(asks.then(String::new))
    })
}

/// Returns whether a permitted call is still permitted if one of its arguments resolves differently by
/// now. Approval was already given.
pub(super) fn permits(
    round: &Round,
    tool: &Arc<dyn Tool>,
    args: &Value,
    asked: bool,
) -> impl Fn(&str, &Subject) -> bool + Send + Sync + 'static {
    // Its answer is known from the start.
    let asked = asked || matches!(round.deps.approvals, Approvals::Allow);
    let (configured, granted) = (round.deps.config.permissions.clone(), round.grants());
    let (tool, args) = (tool.clone(), args.clone());
    move |argument, subject| {
        let fixed = ResolvedTool { tool: &*tool, argument, subject };
        let by = |rules: &[PermissionRule]| permit_of(rules, &tool.spec().name, Some(&fixed), &args);
        match combined(by(&configured), by(&granted)) {
            Some(Permit::Allow) => true,
            Some(Permit::Deny) => false,
            Some(Permit::Ask) => asked,
            None => asked || matches!(question(&*tool, &args), Ok(None)),
        }
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
