//! Requests for decisions: to the approver, or by an interrupt.

use std::panic::AssertUnwindSafe;

use futures::{FutureExt, future::join_all};
use serde_json::json;
use superstep_graph::NodeError;
use superstep_llm::calls::ToolAnswer;

use super::{remembered, stored};
use crate::{
    AgentEvent, Approval,
    approval::{ApprovalRequest, Approvals, form},
    config::{Permit, prompts},
    events::emit,
    nodes::tools::{
        pending::{Pending, Verdict},
        round::Round,
    },
    permissions::denying,
};

/// Maximum number of attempts to get a valid answer from an approver.
const MAX_ROUNDS: usize = 3;

/// Obtains decisions on the waiting calls, all of them before the first one runs. Calls that cannot run any
/// more need none.
///
/// # Errors
/// If a decision cannot be stored.
pub(in crate::nodes::tools) async fn request_all(
    round: &Round,
    calls: impl Iterator<Item = &mut Pending>,
) -> Result<(), NodeError> {
    let waiting = calls.filter_map(|call| {
        let (Some(Verdict::Ask(question)), Some(args)) = (&call.verdict, call.valid_args()) else {
            return None;
        };
        let request = call.request(args, question.clone());
        (!is_over(round, call)).then_some((call, request))
    });
    match &round.deps.approvals {
        Approvals::Deny => {}
        Approvals::Interrupt | Approvals::Allow => {
            let asked = waiting.map(|(call, request)| async {
                let key = request.call_id.clone();
                let (decision, interrupt) = by_interrupt(round, &key, request).await;
                (call.decision, call.interrupt) = (Some(decision), interrupt);
            });
            join_all(asked).await;
        }
        Approvals::Ask(_) => {
            for (call, request) in waiting {
                call.decision = ask_once(round, &format!("decision.{}", call.position), &request).await?;
            }
        }
    }
    Ok(())
}

/// Returns whether a call without a decision is not executed any more: a tool failed, or the time is over.
fn is_over(round: &Round, call: &Pending) -> bool {
    let is_over = round.tool_failed.is_cancelled() || round.is_late(call);
    let is_over = is_over && !round.cx.is_answered(&call.call.id);
    round.cx.noted(&format!("over.{}", call.position), is_over)
}

/// Returns the answer to the `nth` question of a running call, from 0. Interrupts the run if it is missing, once no
/// other call is running.
///
/// # Errors
/// If an answer cannot be stored.
pub(in crate::nodes::tools) async fn answer_to_tool(
    round: &Round,
    call: &Pending,
    nth: usize,
    mut request: ApprovalRequest,
) -> Result<ToolAnswer, NodeError> {
    if !matches!(round.deps.approvals, Approvals::Ask(_)) {
        let _waits = round.running.pause();
        let key = round.keys.form(&request.call_id, nth + 1);
        return Ok(answer(by_interrupt(round, &key, request).await.0));
    }
    for attempt in 0..MAX_ROUNDS {
        let mark = format!("answer.{}.{nth}.{attempt}", call.position);
        let Some(given) = ask_once(round, &mark, &request).await? else { return Ok(ToolAnswer::Cancel) };
        request.problem = problem(round, &request, &given);
        if request.problem.is_none() {
            return Ok(answer(given));
        }
    }
    Ok(ToolAnswer::Decline)
}

/// Converts a valid decision to an answer.
fn answer(decision: Approval) -> ToolAnswer {
    match decision {
        Approval::Approve => ToolAnswer::Accept(json!({})),
        Approval::Answer(content) => ToolAnswer::Accept(content),
        Approval::Cancel => ToolAnswer::Cancel,
        _ => ToolAnswer::Decline,
    }
}

/// Interrupts the run until a request is decided, once no call is running. Returns the decision, and the interrupt's id if it
/// needs trust.
async fn by_interrupt(round: &Round, base: &str, mut request: ApprovalRequest) -> (Approval, Option<String>) {
    let (deps, cx) = (&round.deps, &round.cx);
    let mut unusable = None;
    for attempt in 1.. {
        let (key, next) = (round.keys.again(base, attempt), round.keys.again(base, attempt + 1));
        stored::reword(round, &key, &mut request);
        if !cx.is_answered(&key) {
            let allows = matches!(deps.approvals, Approvals::Allow) && request.form.is_none();
            // A replay approves nothing by itself.
            if cx.noted(&format!("approved.{key}"), allows) {
                // The arguments were edited: the model's original ones do not run.
                let decision = unusable.map_or(Approval::Approve, |problem: String| {
                    Approval::Deny(prompts::edit_unusable(&problem))
                });
                return (decision, None);
            }
            round.running.end().await;
            emit(cx, || requested(&request));
        }
        let approval: Approval = cx.ask(&key, &request).await;
        let problem = problem(round, &request, &approval);
        request.problem = match stored::objection(round, &key, &next, &request, &approval) {
            None => {
                unusable = problem.clone().filter(|_| matches!(approval, Approval::Edit(_)));
                problem
            }
            Some(objection) => Some(objection.to_owned()),
        };
        if request.problem.is_none() {
            let needs_trust = deps.trust.is_some() && approval.needs_trust();
            return (approval, needs_trust.then(|| cx.interrupt_id(&key, &request)));
        }
    }
    unreachable!("the loop ends with a decision that can be used")
}

/// Asks the approver. The decision is stored, so that it is not requested again if the node runs again.
pub(super) async fn ask_once(
    round: &Round,
    mark: &str,
    request: &ApprovalRequest,
) -> Result<Option<Approval>, NodeError> {
    let mut is_stored = true;
    let decision = round.cx.once(mark, async |_| {
        is_stored = false;
        Ok::<_, NodeError>(ask(round, request).await)
    });
    let decision = decision.await?;
    match &decision {
        Some(given) if is_stored && !stored::counts(round, mark, request, given) => {
            Ok(ask(round, request).await)
        }
        _ => Ok(decision),
    }
}

/// Asks the approver; `None` if the turn is cancelled meanwhile. A panic does not approve.
async fn ask(round: &Round, request: &ApprovalRequest) -> Option<Approval> {
    let Approvals::Ask(approver) = &round.deps.approvals else { return None };
    let asked = async {
        let _asking = round.asking.lock().await;
        // It may have been granted permanently during other questions.
        if request.form.is_some() {
            return approver.ask(request).await;
        }
        if remembered(round, &request.tool, &request.args) == Some(Permit::Allow) {
            return Approval::Approve;
        }
        let decision = approver.ask(request).await;
        round.grant(decision.rule(&request.tool));
        decision
    };
    tokio::select! {
        biased;
        () = round.cx.cancel().cancelled() => None,
        decision = AssertUnwindSafe(asked).catch_unwind() => Some(decision.unwrap_or_else(|panic| {
            Approval::Deny(format!("the approver panicked: {}", prompts::panic(&*panic)))
        })),
    }
}

/// Returns the reason why a decision is not valid.
pub(super) fn problem(round: &Round, request: &ApprovalRequest, decision: &Approval) -> Option<String> {
    match &request.form {
        Some(question) => form::misfit(question, decision),
        None => problem_of(round, &request.tool, decision),
    }
}

/// Returns the reason why a decision on a call is not valid.
pub(super) fn problem_of(round: &Round, tool: &str, decision: &Approval) -> Option<String> {
    match decision {
        Approval::Edit(args) => {
            let unfit = round.deps.tools.check(tool, &args.to_string())?.err();
            unfit.map(|error| error.to_string()).or_else(|| forbids(round, tool, args))
        }
        Approval::Answer(_) | Approval::Cancel => Some(prompts::NOT_A_DECISION.to_owned()),
        other => other.rule(tool)?.problem(),
    }
}

/// Returns the rule that denies a call with edited arguments. Users approve calls that a rule asks about,
/// not those that one denies.
pub(super) fn forbids(round: &Round, name: &str, args: &serde_json::Value) -> Option<String> {
    let tool = round.tool(name).map(|tool| &**tool);
    let granted = round.grants();
    let rules = [&round.deps.config.permissions, &granted];
    let rule = rules.into_iter().find_map(|rules| denying(rules, name, tool, args))?;
    Some(prompts::forbidden(&rule.to_string()))
}

/// Returns the event that reports a request. The interrupt contains the request as well; an approver may also approve
/// permanently.
fn requested(request: &ApprovalRequest) -> AgentEvent {
    let ApprovalRequest { call_id, tool, args, form, .. } = request;
    // Not `always`, which is about other calls: anyone who may approve may approve permanently.
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
