//! Questions of a tool to the user while its call runs.
//!
//! A question ends the call. It is stored with the task and becomes an interrupt. After the answer the tool
//! is called again from its beginning, and receives that answer if it asks the same. A different question is
//! another interrupt.

use std::{
    collections::VecDeque,
    future::{pending, ready},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Value, json};
use superstep_graph::NodeError;
use superstep_llm::{
    Tool, ToolError,
    calls::{AnswerFuture, ArgumentCheck, ToolAnswer, ToolQuestion},
    telemetry::captured,
};
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::{
    answer::{AnsweredQuestion, CallResult},
    executor::Executor,
    keys::asks,
    pending::Pending,
};
use crate::{
    Approval,
    approval::{ApprovalRequest, Approvals, form},
    config::prompts,
    trace,
};

/// Maximum number of questions of one call, whose tool is called once more for each.
const MAX_QUESTIONS: usize = 16;

/// Maximum number of attempts to get a valid answer from an approver.
const MAX_ROUNDS: usize = 3;

impl Executor {
    /// Runs the call, and again after each answer to a question of its tool.
    pub(super) async fn run_answered(
        &self,
        position: usize,
        tool: &Arc<dyn Tool>,
        pending: &Pending,
        (args, asked): (Value, bool),
        mut questions: Vec<ToolQuestion>,
    ) -> Result<CallResult, NodeError> {
        loop {
            let answers = self.answers(position, pending, &args, &questions).await?;
            if let Some(done) = self.doubtful(position, questions.len(), tool, pending).await? {
                return Ok(done);
            }
            let run = self.run(position, tool.clone(), &pending.call, (args.clone(), asked, answers));
            let span = trace::execute_tool(&pending.name, &pending.call.id);
            captured(&span, trace::ARGUMENTS, || args.to_string());
            let ran = run.instrument(span.clone()).await;
            if let Ok(done) = &ran {
                captured(&span, trace::RESULT, || done.result.clone());
            }
            if matches!(&ran, Ok(done) if !done.returned) {
                trace::failed(&span);
            }
            match ran {
                Ok(done) if questions.is_empty() => return Ok(done),
                Ok(done) => {
                    let result = format!("{}\n{}", prompts::sent_again(questions.len() + 1), done.result);
                    return Ok(CallResult { result, ..done });
                }
                Err(question) => {
                    let stored = self.store_question(position, questions.len(), question).await?;
                    questions.push(stored);
                }
            }
        }
    }

    /// Returns the questions of the call at `position`, in their order.
    pub(super) async fn questions(&self, position: usize) -> Vec<ToolQuestion> {
        let nothing = async |_| Err::<ToolQuestion, _>(NodeError::new(NotAsked));
        let mut questions = Vec::new();
        while let Ok(asked) = self.cx.once(&asks(position, questions.len()), nothing).await {
            questions.push(asked);
        }
        questions
    }

    /// Stores a question after the earlier ones of the call.
    ///
    /// # Errors
    /// If it cannot be stored.
    async fn store_question(
        &self,
        position: usize,
        before: usize,
        question: ToolQuestion,
    ) -> Result<ToolQuestion, NodeError> {
        self.cx.once(&asks(position, before), async |_| Ok::<_, NodeError>(question)).await
    }

    /// Returns the answers to the call's questions. Interrupts the run if one is missing, once no other call
    /// is running.
    ///
    /// # Errors
    /// If an answer cannot be stored.
    async fn answers(
        &self,
        position: usize,
        pending: &Pending,
        args: &Value,
        questions: &[ToolQuestion],
    ) -> Result<Vec<AnsweredQuestion>, NodeError> {
        let mut answers = Vec::with_capacity(questions.len());
        for (nth, question) in questions.iter().enumerate() {
            let request = self.about_question(pending, args, question);
            let answer = match self.deps.approvals {
                Approvals::Ask(_) => self.answer_of_approver(&format!("{position}.{nth}"), request).await?,
                _ => {
                    let _waits = self.at_work.pause();
                    let key = self.keys.form(&request.call_id, nth + 1);
                    answer(self.decided_outside(&key, request).await.0)
                }
            };
            answers.push((question.clone(), answer));
        }
        Ok(answers)
    }

    fn about_question(&self, pending: &Pending, args: &Value, question: &ToolQuestion) -> ApprovalRequest {
        let repeatable = self.deps.tools.get(&pending.name).is_some_and(|tool| tool.behaviour().idempotent);
        let text = prompts::question(&pending.name, args, question, repeatable);
        ApprovalRequest { form: Some(question.clone()), ..ApprovalRequest::new(pending, args, text) }
    }

    /// Asks the approver until the answer is valid. Declines if it never is.
    async fn answer_of_approver(
        &self,
        mark: &str,
        mut request: ApprovalRequest,
    ) -> Result<ToolAnswer, NodeError> {
        for round in 0..MAX_ROUNDS {
            let Some(given) = self.ask_once(&format!("answer.{mark}.{round}"), &request).await? else {
                return Ok(ToolAnswer::Cancel);
            };
            request.problem = self.problem(&request, &given);
            if request.problem.is_none() {
                return Ok(answer(given));
            }
        }
        Ok(ToolAnswer::Decline)
    }

    /// Returns a handler for the questions of a running call, with these answers to equal ones, and the
    /// receiver of any other question.
    pub(super) fn asking(
        &self,
        answers: Vec<AnsweredQuestion>,
    ) -> (impl Fn(ToolQuestion) -> AnswerFuture + Send + Sync + 'static, mpsc::Receiver<ToolQuestion>) {
        let (asks, asked) = mpsc::channel(1);
        let nobody = match self.deps.approvals {
            Approvals::Deny => Some("there is no user to answer it"),
            Approvals::Interrupt | Approvals::Allow if !self.cx.can_interrupt() => {
                Some("the run is not stored, so that no answer can follow")
            }
            _ if answers.len() >= MAX_QUESTIONS => Some("the call has asked 16 questions, which is the most"),
            _ => None,
        };
        let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
        let answering = move |question: ToolQuestion| -> AnswerFuture {
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            let equal = answers.iter().position(|(asked, _)| *asked == question);
            if let Some((_, answer)) = equal.and_then(|equal| answers.remove(equal)) {
                return Box::pin(ready(Ok(answer)));
            }
            let refused = match (nobody, ArgumentCheck::new(&form::values(&question))) {
                (Some(nobody), _) => nobody.to_owned(),
                (None, Err(problem)) => format!("its schema {problem}"),
                (None, Ok(_)) => {
                    // Of several concurrent questions the first one is asked; the others are asked again with
                    // the repeated call.
                    let _ = asks.try_send(question);
                    return Box::pin(pending());
                }
            };
            Box::pin(ready(Err(ToolError::Failed(refused))))
        };
        (answering, asked)
    }
}

/// The call has no other question. An error, because errors are not stored.
#[derive(Debug, thiserror::Error)]
#[error("the call has no further question")]
struct NotAsked;

/// Converts a valid decision to an answer.
fn answer(decision: Approval) -> ToolAnswer {
    match decision {
        Approval::Approve => ToolAnswer::Accept(json!({})),
        Approval::Answer(content) => ToolAnswer::Accept(content),
        Approval::Cancel => ToolAnswer::Cancel,
        _ => ToolAnswer::Decline,
    }
}
