//! A call of the models.

use std::time::Duration;

use futures::StreamExt;
use superstep_graph::Cx;
use superstep_llm::{Assembler, Delta, ModelError, Request};
use tokio::{task::coop::consume_budget, time::Instant};

use super::{attempts::Attempts, chunk::Chunk, progress::Progress};
use crate::{AgentEvent, AgentState, deps::AgentDeps, events::emit};

/// A call of the models, and its progress.
#[derive(Default)]
pub(super) struct ModelCall {
    /// The id of the response's message.
    message: String,
    pub(super) answer: Assembler,
    /// The end of the wait before the next attempt.
    waits: Option<Instant>,
    /// The current attempt has streamed something.
    pub(super) streamed: bool,
    /// A request was sent.
    pub(super) asked: bool,
    pub(super) attempts: Attempts,
    /// The provider refused the reasoning of earlier answers.
    pub(super) is_bare: bool,
    /// The response is not streamed.
    is_held: bool,
}

impl ModelCall {
    pub(super) fn new(message: String, is_held: bool) -> Self {
        Self { message, is_held, ..Self::default() }
    }

    /// Calls the models, starting with the one that replied last in this turn.
    pub(super) async fn ask(
        &mut self,
        deps: &AgentDeps,
        state: &AgentState,
        request: Request,
        progress: &mut Progress<'_>,
        cx: &Cx,
    ) -> Result<(), ModelError> {
        self.asked = true;
        let model = &deps.models.main;
        let first = model.names().into_iter().find(|name| *name == state.model).map(str::to_owned);
        self.attempts.model.clone_from(&first);
        let request = Request { ask_first: first, ..request };
        let mut stream = match &deps.steps {
            Some(steps) => steps.reasoning(request, &**model),
            None => model.stream(request),
        };
        while let Some(delta) = stream.next().await {
            let delta = delta?;
            let is_held = self.is_held;
            if let Some(chunk) = Chunk::of(&delta).filter(|_| !is_held) {
                cx.emit_message(&self.message, chunk);
            }
            self.waits = None;
            self.attempts.push(&delta, cx);
            match &delta {
                Delta::Text(_) | Delta::Reasoning(_) if is_held => {}
                Delta::Text(token) => {
                    emit(cx, || AgentEvent::LlmToken {
                        token: token.clone(),
                        reasoning_token: String::new(),
                    });
                }
                Delta::Reasoning(token) => {
                    emit(cx, || AgentEvent::LlmToken {
                        token: String::new(),
                        reasoning_token: token.clone(),
                    });
                }
                Delta::Retry { delay_ms, .. } => {
                    self.waits = Some(Instant::now() + Duration::from_millis(*delay_ms));
                }
                Delta::AttemptDiscarded { attempt } => {
                    emit(cx, || AgentEvent::AttemptDiscarded { attempt: *attempt });
                    cx.discard_message(&self.message);
                }
                Delta::TextCalls { n } => {
                    emit(cx, || AgentEvent::TextCalls { n: *n });
                    cx.discard_message(&self.message);
                }
                Delta::ReasoningDropped { all, .. } => self.is_bare |= all,
                Delta::Fallback { .. }
                | Delta::Usage(_)
                | Delta::ToolCall { .. }
                | Delta::Origin { .. }
                | Delta::Extra { .. }
                | Delta::Item { .. }
                | Delta::Finish(_) => {}
            }
            self.streamed = match delta {
                Delta::Text(_) | Delta::Reasoning(_) => !is_held,
                Delta::AttemptDiscarded { .. } => false,
                _ => self.streamed,
            };
            self.answer.push(&delta);
            if !is_held {
                progress.emit(&delta, &self.answer, &self.message, cx);
            }
            // A stream that is always ready must not starve the receivers of events.
            consume_budget().await;
        }
        Ok(())
    }

    /// Returns the number of sent requests. A request that waits for its retry was not sent.
    pub(super) fn sent(&self) -> u32 {
        1 + self.attempts.retries - u32::from(self.is_waiting())
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waits.is_some_and(|until| Instant::now() < until)
    }
}
