//! Decisions by interrupts, which are stored with the thread until they are used.
//!
//! Start at [`Executor::decided_outside`].

use serde_json::Value;
use superstep_llm::text::printable_line;

use super::{
    executor::Executor,
    pending::Pending,
    permit::{question, requested},
};
use crate::{
    Approval,
    approval::{ApprovalRequest, Approvals, StoredDecision},
    config::prompts,
    events::emit,
};

/// The prefix of the turn's folder in a question.
const IN_FOLDER: &str = "\nin the folder ";

impl Executor {
    /// Interrupts the run until a request is decided, once no call is running. Returns the decision, and the interrupt's id if it
    /// needs trust.
    pub(super) async fn decided_outside(
        &self,
        base: &str,
        mut request: ApprovalRequest,
    ) -> (Approval, Option<String>) {
        let mut unusable = None;
        for round in 1.. {
            let (key, next) = (self.keys.again(base, round), self.keys.again(base, round + 1));
            self.reword(&key, &mut request);
            if !self.cx.is_answered(&key) {
                let allows = matches!(self.deps.approvals, Approvals::Allow) && request.form.is_none();
                // A replay approves nothing by itself.
                if self.cx.noted(&format!("approved.{key}"), allows) {
                    // The arguments were edited: the model's original ones do not run.
                    let decision = unusable.map_or(Approval::Approve, |problem: String| {
                        Approval::Deny(prompts::edit_unusable(&problem))
                    });
                    return (decision, None);
                }
                self.at_work.end().await;
                emit(&self.cx, || requested(&request));
            }
            let approval: Approval = self.cx.ask(&key, &request).await;
            let problem = self.problem(&request, &approval);
            request.problem = match self.objection(&key, &next, &request, &approval) {
                None => {
                    unusable = problem.clone().filter(|_| matches!(approval, Approval::Edit(_)));
                    problem
                }
                Some(objection) => Some(objection.to_owned()),
            };
            if request.problem.is_none() {
                let needs_trust = self.deps.trust.is_some() && approval.needs_trust();
                return (approval, needs_trust.then(|| self.cx.interrupt_id(&key, &request)));
            }
        }
        unreachable!("the loop ends with a decision that can be used")
    }

    /// Replaces the text of a question by the one of the answer under the key, if it is an answer about this call: the text may
    /// change meanwhile. Without such an answer the question is shown. If the database is not trusted, it then has the tool's
    /// current text.
    fn reword(&self, key: &str, request: &mut ApprovalRequest) {
        if self.deps.trust.is_none() || request.form.is_some() {
            return;
        }
        let answered = self.cx.validly_answered_question::<ApprovalRequest, Approval>(key);
        let is_same = |asked: &ApprovalRequest| {
            let question = request.question.clone();
            self.is_about_folder(&asked.question) && ApprovalRequest { question, ..asked.clone() } == *request
        };
        let text = match answered.filter(is_same) {
            Some(asked) => asked.question,
            None => self.fresh_question(request),
        };
        // A replay has no stored answers.
        let text =
            self.cx.noted(&format!("question.{key}"), Some(text).filter(|text| *text != request.question));
        request.question = text.unwrap_or_else(|| request.question.clone());
    }

    /// Returns the text of the call's answered question, if it is about this call. A text of an untrusted database is not used.
    pub(super) fn answered_text(&self, call: &Pending, args: &Value) -> Option<String> {
        let asked = self.cx.answered_question::<ApprovalRequest>(&call.call.id);
        let is_same = |asked: &ApprovalRequest| {
            asked.tool == call.name && asked.args == *args && self.is_about_folder(&asked.question)
        };
        asked.filter(|_| self.deps.trust.is_none()).filter(is_same).map(|asked| asked.question)
    }

    /// Returns the current question of a call, regardless of an earlier one.
    fn fresh_question(&self, request: &ApprovalRequest) -> String {
        let ApprovalRequest { tool: name, args, .. } = request;
        let asked = self.deps.tools.get(name).and_then(|tool| question(&**tool, args).ok().flatten());
        self.here(asked.unwrap_or_else(|| format!("Run {name} with {args}?")))
    }

    /// Adds the folder of the turn to a question, if its input has one: the answer applies to that folder.
    pub(super) fn here(&self, question: String) -> String {
        match &self.state.cwd {
            Some(folder) => format!("{question}{IN_FOLDER}{}", printable_line(&folder.to_string_lossy())),
            None => question,
        }
    }

    /// Returns whether an earlier question is about a call in the folder of the turn.
    fn is_about_folder(&self, question: &str) -> bool {
        match &self.state.cwd {
            Some(_) => question.ends_with(&self.here(String::new())),
            None => question.rsplit_once(IN_FOLDER).is_none_or(|(_, folder)| folder.contains('\n')),
        }
    }

    /// Returns the reason why a decision is not taken although it may be valid: the database may have invented it, or the
    /// question was repeated under the next key.
    fn objection(
        &self,
        key: &str,
        next: &str,
        request: &ApprovalRequest,
        decision: &Approval,
    ) -> Option<&'static str> {
        let (is_foreign, is_outdated) = match &self.deps.trust {
            None => (false, false),
            Some(_) if matches!(decision, Approval::Deny(_)) => (false, false),
            Some(_) if self.cx.is_answered(next) => {
                let again = self.cx.answered_question::<ApprovalRequest>(next);
                let why = again.and_then(|asked| asked.problem);
                let is_unusable = why.is_some() && why == self.problem(request, decision);
                (!is_unusable, why.as_deref() == Some(prompts::OUTDATED_QUESTION))
            }
            Some(_) => {
                let interrupt = self.cx.interrupt_id(key, request);
                match self.is_known(Some(&interrupt), request, decision) {
                    true => (false, false),
                    false => (true, !self.is_current(request)),
                }
            }
        };
        let is_outdated = self.cx.noted(&format!("outdated.{key}"), is_outdated);
        match self.cx.noted(&format!("foreign.{key}"), is_foreign) {
            true if is_outdated => Some(prompts::OUTDATED_QUESTION),
            true => Some(prompts::FOREIGN_DECISION),
            false => None,
        }
    }

    /// Returns whether the stored decision of an approver is taken.
    pub(super) fn counts(&self, mark: &str, request: &ApprovalRequest, decision: &Approval) -> bool {
        let is_foreign = !self.is_known(None, request, decision);
        !self.cx.noted(&format!("foreign.{mark}"), is_foreign)
    }

    /// Returns whether a stored decision is trusted, and may be used by this task.
    fn is_known(&self, interrupt: Option<&str>, request: &ApprovalRequest, decision: &Approval) -> bool {
        let Some(trust) = &self.deps.trust else { return true };
        if !decision.needs_trust() {
            return true;
        }
        // A replay uses the recorded result.
        self.cx.is_live()
            && trust.is_decided(&StoredDecision {
                thread: self.cx.thread(),
                interrupt,
                position: &self.cx.position(),
                request,
                is_current: self.is_current(request),
                decision,
            })
    }

    /// Returns whether a call may begin with the decision on an interrupt, or did before, in a state of the thread that is gone.
    pub(super) fn may_begin(&self, interrupt: &str, start: &str) -> bool {
        self.deps.trust.as_ref().is_none_or(|trust| trust.begins(self.cx.thread(), interrupt, start))
    }

    fn is_current(&self, request: &ApprovalRequest) -> bool {
        request.form.is_some() || request.question == self.fresh_question(request)
    }
}
