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

use serde_json::Value;
use superstep_graph::NodeError;
use superstep_llm::{
    ToolError,
    calls::{AnswerFuture, ArgumentCheck, ToolAnswer, ToolQuestion},
};
use tokio::sync::mpsc;

use super::Call;
use crate::{
    approval::{ApprovalRequest, Approvals, form},
    config::prompts,
    nodes::tools::{decision::answer_to_tool, keys::asks},
};

/// Maximum number of questions of one call, whose tool is called once more for each.
const MAX_QUESTIONS: usize = 16;

pub(super) type AnsweredQuestion = (ToolQuestion, ToolAnswer);

impl Call<'_> {
    /// Reads the stored questions of the call.
    pub(super) async fn restore_questions(&mut self) {
        let nothing = async |_| Err::<ToolQuestion, _>(NodeError::new(NotAsked));
        let key = |n| asks(self.pending.position, n);
        while let Ok(asked) = self.round.cx.once(&key(self.questions.len()), nothing).await {
            self.questions.push(asked);
        }
    }

    /// Returns the answers to the call's questions.
    ///
    /// # Errors
    /// If an answer cannot be stored.
    pub(super) async fn answers(&self, args: &Value) -> Result<Vec<AnsweredQuestion>, NodeError> {
        let Self { round, pending, questions, .. } = self;
        let mut answers = Vec::with_capacity(questions.len());
        for (nth, question) in questions.iter().enumerate() {
            let text = prompts::question(&pending.name, args, question, round.behaviour(pending).idempotent);
            let request = ApprovalRequest { form: Some(question.clone()), ..pending.request(args, text) };
            answers.push((question.clone(), answer_to_tool(round, pending, nth, request).await?));
        }
        Ok(answers)
    }

    /// Returns a handler for the questions of a running call, with these answers to equal ones, and the
    /// receiver of any other question.
    pub(super) fn asking(
        &self,
        answers: Vec<AnsweredQuestion>,
    ) -> (impl Fn(ToolQuestion) -> AnswerFuture + Send + Sync + 'static, mpsc::Receiver<ToolQuestion>) {
        let (asks, asked) = mpsc::channel(1);
        let nobody = match self.round.deps.approvals {
            Approvals::Deny => Some("there is no user to answer it"),
            Approvals::Interrupt | Approvals::Allow if !self.round.cx.can_interrupt() => {
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
