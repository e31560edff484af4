//! A call of the models.

use std::time::Duration;

use futures::StreamExt;
use superstep_graph::Cx;
use superstep_llm::{Assembler, Delta, ModelError, Request, Usage};
use tokio::{task::coop::consume_budget, time::Instant};

use super::{
    attempts::Attempts,
    chunk::Chunk,
    progress::Progress,
    recorded_response::{End, RecordedResponse},
};
use crate::{AgentEvent, AgentState, deps::AgentDeps, events::emit, state::AgentStateUpdate};

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
    asked: bool,
    attempts: Attempts,
}

impl ModelCall {
    pub(super) fn new(message: String) -> Self {
        Self { message, ..Self::default() }
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
            if let Some(chunk) = Chunk::of(&delta) {
                cx.emit_message(&self.message, chunk);
            }
            self.waits = None;
            self.attempts.push(&delta, cx);
            match &delta {
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
                Delta::Fallback { .. }
                | Delta::Usage(_)
                | Delta::ToolCall { .. }
                | Delta::Origin { .. }
                | Delta::Extra { .. }
                | Delta::Finish(_) => {}
            }
            self.streamed = match delta {
                Delta::Text(_) | Delta::Reasoning(_) => true,
                Delta::AttemptDiscarded { .. } => false,
                _ => self.streamed,
            };
            self.answer.push(&delta);
            progress.emit(&delta, &self.answer, &self.message, cx);
            // A stream that is always ready must not starve the receivers of events.
            consume_budget().await;
        }
        Ok(())
    }

    /// Returns the number of sent requests. A request that waits for its retry was not sent.
    pub(super) fn sent(&self) -> u32 {
        1 + self.attempts.retries - u32::from(self.is_waiting())
    }

    fn is_waiting(&self) -> bool {
        self.waits.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn into_recorded(self, mut end: End, requests: u32, streamed: bool) -> RecordedResponse {
        let is_stopped = matches!(end, End::Cancelled { .. } | End::OutOfTime { .. });
        let unreported = is_stopped && self.asked && self.attempts.current.is_none() && !self.is_waiting();
        if let End::Answered(answered) = &mut end {
            answered.usage = self.attempts.current;
        }
        RecordedResponse {
            end,
            requests,
            streamed,
            tokens: self.attempts.into_tokens(),
            unreported,
            withheld: None,
            warned: false,
        }
    }
}

/// Adds tokens to those of the turn, in total and by model; `main` is the model of the agent. Those by model are empty as
/// long as only the main model was called, except for a sub-agent, whose caller cannot know that model.
pub(super) fn with_usage(
    update: AgentStateUpdate,
    state: &AgentState,
    main: &str,
    usage: Usage,
    by_model: Vec<(String, Usage)>,
) -> AgentStateUpdate {
    let update = update.usage(state.usage + usage);
    let mut sum = state.usage_by_model.clone();
    if sum.is_empty() {
        if state.granted.is_none() && by_model.iter().all(|(model, _)| model == main) {
            return update;
        }
        sum.insert(main.to_owned(), state.usage);
    }
    for (model, usage) in by_model {
        let of_model = sum.entry(model).or_default();
        *of_model = *of_model + usage;
    }
    update.usage_by_model(sum)
}
