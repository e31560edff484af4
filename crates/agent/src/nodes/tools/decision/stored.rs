//! Stored decisions: whether they are about the call as it is now, and whether they are trusted.

use superstep_llm::text::printable_line;

use super::{question, request::problem};
use crate::{
    Approval,
    approval::{ApprovalRequest, StoredDecision},
    config::prompts,
    nodes::tools::{pending::Pending, round::Round},
};

/// The prefix of the turn's folder in a question.
const IN_FOLDER: &str = "\nin the folder ";

/// Replaces the text of a question by the one of the answer under the key, if it is an answer about this call: the text may
/// change meanwhile. Without such an answer the question is shown. If the database is not trusted, it then has the tool's
/// current text.
pub(super) fn reword(round: &Round, key: &str, request: &mut ApprovalRequest) {
    if round.deps.trust.is_none() || request.form.is_some() {
        return;
    }
    let answered = round.cx.validly_answered_question::<ApprovalRequest, Approval>(key);
    let is_same = |asked: &ApprovalRequest| {
        let question = request.question.clone();
        is_about_folder(round, &asked.question) && ApprovalRequest { question, ..asked.clone() } == *request
    };
    let text = match answered.filter(is_same) {
        Some(asked) => asked.question,
        None => fresh_question(round, request),
    };
    // A replay has no stored answers.
    let text = Some(text).filter(|text| *text != request.question);
    if let Some(text) = round.cx.noted(&format!("question.{key}"), text) {
        request.question = text;
    }
}

/// Returns the text of the call's answered question, if it is about this call. A text of an untrusted database is not used.
pub(super) fn answered_text(round: &Round, call: &Pending, args: &serde_json::Value) -> Option<String> {
    let asked = round.cx.answered_question::<ApprovalRequest>(&call.call.id);
    let is_same = |asked: &ApprovalRequest| {
        asked.tool == call.name && asked.args == *args && is_about_folder(round, &asked.question)
    };
    asked.filter(|_| round.deps.trust.is_none()).filter(is_same).map(|asked| asked.question)
}

/// Returns the current question of a call, regardless of an earlier one.
fn fresh_question(round: &Round, request: &ApprovalRequest) -> String {
    let ApprovalRequest { tool: name, args, .. } = request;
    let asked = round.tool(name).and_then(|tool| question(&**tool, args).ok().flatten());
    here(round, asked.unwrap_or_else(|| format!("Run {name} with {args}?")))
}

/// Adds the folder of the turn to a question, if its input has one: the answer applies to that folder.
pub(super) fn here(round: &Round, question: String) -> String {
    match &round.state.cwd {
        Some(folder) => format!("{question}{IN_FOLDER}{}", printable_line(&folder.to_string_lossy())),
        None => question,
    }
}

/// Returns whether an earlier question is about a call in the folder of the turn.
fn is_about_folder(round: &Round, question: &str) -> bool {
    match &round.state.cwd {
        Some(_) => question.ends_with(&here(round, String::new())),
        None => question.rsplit_once(IN_FOLDER).is_none_or(|(_, folder)| folder.contains('\n')),
    }
}

/// Returns the reason why a decision is not taken although it may be valid: the database may have invented it, or the
/// question was repeated under the next key.
pub(super) fn objection(
    round: &Round,
    key: &str,
    next: &str,
    request: &ApprovalRequest,
    decision: &Approval,
) -> Option<&'static str> {
    let cx = &round.cx;
    let (is_foreign, is_outdated) = if round.deps.trust.is_none() || matches!(decision, Approval::Deny(_)) {
        (false, false)
    } else if cx.is_answered(next) {
        let why = cx.answered_question::<ApprovalRequest>(next).and_then(|asked| asked.problem);
        let is_unusable = why.is_some() && why == problem(round, request, decision);
        (!is_unusable, why.as_deref() == Some(prompts::OUTDATED_QUESTION))
    } else if is_known(round, Some(&cx.interrupt_id(key, request)), request, decision) {
        (false, false)
    } else {
        (true, !is_current(round, request))
    };
    let is_outdated = cx.noted(&format!("outdated.{key}"), is_outdated);
    let is_foreign = cx.noted(&format!("foreign.{key}"), is_foreign);
    is_foreign.then_some(if is_outdated { prompts::OUTDATED_QUESTION } else { prompts::FOREIGN_DECISION })
}

/// Returns whether the stored decision of an approver is taken.
pub(super) fn counts(round: &Round, mark: &str, request: &ApprovalRequest, decision: &Approval) -> bool {
    let is_foreign = !is_known(round, None, request, decision);
    !round.cx.noted(&format!("foreign.{mark}"), is_foreign)
}

/// Returns whether a stored decision is trusted, and may be used by this task.
fn is_known(round: &Round, interrupt: Option<&str>, request: &ApprovalRequest, decision: &Approval) -> bool {
    let Some(trust) = round.deps.trust.as_ref().filter(|_| decision.needs_trust()) else { return true };
    // A replay uses the recorded result.
    round.cx.is_live()
        && trust.is_decided(&StoredDecision {
            thread: round.cx.thread(),
            interrupt,
            position: &round.cx.position(),
            request,
            is_current: is_current(round, request),
            decision,
        })
}

/// Returns whether a call may begin with the decision on an interrupt, or did before, in a state of the thread that is gone.
pub(in crate::nodes::tools) fn may_begin(round: &Round, call: &Pending, start: &str) -> bool {
    let (Some(trust), Some(interrupt)) = (&round.deps.trust, &call.interrupt) else { return true };
    trust.begins(round.cx.thread(), interrupt, start)
}

fn is_current(round: &Round, request: &ApprovalRequest) -> bool {
    request.form.is_some() || request.question == fresh_question(round, request)
}
