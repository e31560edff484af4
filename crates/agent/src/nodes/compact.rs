//! The node before the model call if a conversation has grown too long: one call for a summary. It exists
//! only if summaries are configured.

use futures::StreamExt;
use serde::{Deserialize, Serialize};
use superstep_graph::{Cx, State};
use superstep_llm::{Assembler, FinishReason, Message, ModelError, Request, Response, Usage};
use tokio::task::coop::consume_budget;

use super::{
    attempts::with_usage,
    attempts::{Attempts, ModelTokens},
    budget::{expired, time_left, warned},
    fit_request::{compacted, may_summarise, newest},
    instructions::add_skills,
    model_turn::is_guessed,
    offered::refresh,
    recorded_response::Print,
    request_changes,
};
use crate::{
    AgentEvent, AgentState,
    context::{
        meter::Meter,
        plan::{Step, plan},
    },
    deps::AgentDeps,
    events::emit,
    state::{AgentStateUpdate, ContextView, LastAnswer, RequestSize, view::Change},
};

/// Reduces the next request. A failed summary is not an error: then the remaining layers apply.
pub(crate) async fn compact(mut deps: AgentDeps, state: AgentState, cx: Cx) -> AgentStateUpdate {
    add_skills(&mut deps, &state);
    let offered = refresh(&mut deps, &state, false, &cx).await;
    let meter = Meter::new(&deps, &state);
    let mut latest = LatestView { state: state.clone(), changed: None, unsent: meter.unsent() };
    latest.state.context.due = false;
    let mut update = AgentState::update();
    if let Some(offered) = offered {
        update = update.offered(offered);
    }
    if state.compact {
        update = update.compact(false);
    }
    if cx.noted("cancelled", cx.cancel().is_cancelled()) {
        return update.context(latest.state.context);
    }
    let summaries = may_summarise(&deps, &state, &cx);
    if let Step::Consolidate(consolidation) = plan(meter, &state, summaries) {
        let request = consolidation.request();
        cx.compared_with("summary", || Print::of(&request), request_changes::of_summary).await;
        let sent = request.messages.clone();
        let summed: RecordedSummary = cx.recorded("summary", || ask(&deps, &state, request, &cx)).await;
        update = summed.count(update, &deps, &state, &sent);
        let text = match summed.end {
            End::Cancelled => return update.context(latest.state.context),
            End::Failed => None,
            End::Said { message, .. } => Some(message.content.trim().to_owned()),
        };
        let text = text.filter(|text| !text.is_empty());
        let failed = text.is_none();
        match text.and_then(|text| consolidation.with(&text, meter)) {
            Some(change) => {
                latest.take(change);
                latest.state.context.ineffective = 0;
            }
            None => {
                let view = &mut latest.state.context;
                let most = deps.config.context.breaker.max_ineffective;
                view.ineffective = view.ineffective.saturating_add(1);
                view.paused = view.ineffective >= most;
                if view.paused {
                    emit(&cx, || AgentEvent::CompactionPaused {});
                } else if !failed {
                    // A summary that is too long may be shorter the next time.
                    return update.context(latest.state.context);
                }
            }
        }
    }
    match plan(meter, &latest.state, false) {
        Step::Change(change) => latest.take(change),
        // The agent reports it.
        Step::NoRoom { .. } => return update.context(latest.state.context),
        Step::TooLarge(over) => latest.state.context.over = over,
        Step::Send | Step::Consolidate(_) => {}
    }
    if let Some(change) = &latest.changed {
        emit(&cx, || compacted(change, meter.over(change)));
        update = update.request_size(latest.state.request_size.clone());
    }
    let settled = newest(&state);
    update.context(ContextView { settled, ..latest.state.context })
}

/// The state under the latest view.
struct LatestView {
    state: AgentState,
    /// All changes combined.
    changed: Option<Change>,
    /// The tokens of messages that are not in the conversation yet.
    unsent: u64,
}

impl LatestView {
    fn take(&mut self, change: Change) {
        self.state.context = ContextView { due: false, ..change.view.clone() };
        self.state.request_size =
            RequestSize { message: newest(&self.state), tokens: change.after.saturating_sub(self.unsent) };
        let (before, dropped) = match &self.changed {
            Some(first) => (first.before, first.dropped + change.dropped),
            None => (change.before, change.dropped),
        };
        self.changed = Some(Change { before, dropped, ..change });
    }
}

/// The recorded result of a summary request.
#[derive(Serialize, Deserialize)]
struct RecordedSummary {
    end: End,
    retries: u32,
    #[serde(flatten)]
    tokens: ModelTokens,
    /// The warning about the turn's time was emitted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    warned: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum End {
    Said {
        message: Message,
        /// The provider reported the tokens.
        #[serde(rename = "told")]
        is_reported: bool,
    },
    Failed,
    Cancelled,
}

async fn ask(deps: &AgentDeps, state: &AgentState, request: Request, cx: &Cx) -> RecordedSummary {
    let mut attempts = Attempts::default();
    let left = time_left(&deps.config, state, cx);
    let answer = async {
        tokio::select! {
            biased;
            () = cx.cancel().cancelled() => None,
            answer = summary(deps, request, &mut attempts, cx) => Some(answer.ok()),
            // The agent detects that the time of the turn is over.
            () = expired(left) => Some(None),
        }
    };
    let (answer, warned) = warned((&deps.config.budget, left), state, cx, answer).await;
    let end = match answer {
        Some(Some(response)) if is_summary(&response) => {
            End::Said { is_reported: attempts.current.is_some(), message: response.message }
        }
        Some(_) => End::Failed,
        None => End::Cancelled,
    };
    RecordedSummary {
        end,
        retries: attempts.retries,
        tokens: attempts.into_tokens(&**deps.models.for_compaction()),
        warned,
    }
}

async fn summary(
    deps: &AgentDeps,
    request: Request,
    attempts: &mut Attempts,
    cx: &Cx,
) -> Result<Response, ModelError> {
    let mut answer = Assembler::new();
    let mut deltas = deps.models.for_compaction().stream(request);
    while let Some(delta) = deltas.next().await {
        let delta = delta?;
        attempts.push(&delta, cx);
        answer.push(&delta);
        consume_budget().await;
    }
    answer.finish()
}

/// Returns whether a response is a complete summary. No other text must replace the conversation: not a part of one, nor an
/// introduction to tool calls.
fn is_summary(response: &Response) -> bool {
    let is_whole = match &response.finish {
        FinishReason::Stop | FinishReason::ToolCalls => true,
        FinishReason::Other(reason) => reason != "error",
        FinishReason::Length
        | FinishReason::ContextFull
        | FinishReason::ContentFilter
        | FinishReason::Refusal => false,
    };
    is_whole && response.message.tool_calls.is_empty()
}

impl RecordedSummary {
    /// Counts the requests and their tokens, estimated if not reported.
    fn count(
        &self,
        update: AgentStateUpdate,
        deps: &AgentDeps,
        state: &AgentState,
        sent: &[Message],
    ) -> AgentStateUpdate {
        let (mut guess, mut update) = (Usage::default(), update);
        let mut answer = self.warned.then_some(LastAnswer { budget_warned: true, ..state.answer });
        if let End::Said { message, is_reported: false } = &self.end
            && is_guessed(deps, state)
        {
            let input = sent.iter().map(|message| deps.counter.message(message));
            let input_tokens = input.fold(0, u64::saturating_add);
            guess = Usage::new(input_tokens, deps.counter.message(message));
            let before = answer.unwrap_or(state.answer);
            answer = Some(LastAnswer { estimated: true, ..before });
        }
        if let Some(answer) = answer {
            update = update.answer(answer);
        }
        let (main, configured) = (deps.models.main.name(), deps.models.for_compaction().name());
        let update = update.model_requests(state.model_requests + 1 + self.retries);
        let usage = self.tokens.total() + guess;
        with_usage(update, state, main, usage, self.tokens.clone().by_model(configured, guess))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::stream;
    use superstep_graph::MemoryCheckpointer;
    use superstep_llm::{ChatModel, Delta, ResponseStream, ToolCall};

    use super::*;
    use crate::{Agent, ReactConfig, config::Keep};

    /// A model that stores the texts of each request, and answers one for a summary with `S`.
    #[derive(Default)]
    struct Summarises(Mutex<Vec<Vec<String>>>);

    impl ChatModel for Summarises {
        fn name(&self) -> &str {
            "summarises"
        }

        fn stream(&self, request: Request) -> ResponseStream<'_> {
            let texts: Vec<_> = request.messages.iter().map(|message| message.content.clone()).collect();
            let is_summary = texts.last().is_some_and(|text| text.contains("<conversation>"));
            self.0.lock().unwrap().push(texts);
            let text = if is_summary { "S" } else { "ok" }.to_owned();
            Box::pin(stream::iter([Ok(Delta::Text(text)), Ok(Delta::Finish(FinishReason::Stop))]))
        }
    }

    /// An agent that keeps no messages of the user beside a summary.
    fn agent(model: &Arc<Summarises>, store: Arc<MemoryCheckpointer>) -> Agent {
        let mut config = ReactConfig::default();
        config.context.keep = Keep::default();
        Agent::builder(model.clone()).config(config).checkpointer(store).build().unwrap()
    }

    #[tokio::test]
    async fn a_requested_summary_precedes_the_first_call_of_its_turn_only() {
        let (model, store) = (Arc::new(Summarises::default()), Arc::new(MemoryCheckpointer::new()));
        let agent = agent(&model, store);
        let thread = agent.thread("t");
        thread.ask(&"one ".repeat(200)).await.unwrap();
        thread.ask("two").await.unwrap();
        thread.run(agent.input("three").compact(true)).await.unwrap();
        thread.ask("four").await.unwrap();
        let summary = "<conversation_summary>S</conversation_summary>";
        let sent = model.0.lock().unwrap().clone();
        let ends: Vec<_> = sent.iter().map(|texts| texts.last().unwrap().as_str()).collect();
        assert_eq!((ends.len(), ends[1], ends[3], ends[4]), (5, "two", "three", "four"));
        assert!(ends[2].contains("user: two") && !ends[2].contains("three"), "{ends:?}");
        let after =
            |texts: &[String]| texts[texts.iter().position(|text| text == summary).unwrap()..].to_vec();
        assert_eq!(after(&sent[3]), [summary, "three"]);
        assert_eq!(after(&sent[4]), [summary, "three", "ok", "four"]);
        let stored = agent.graph().thread("t");
        assert!(!stored.state().await.unwrap().values.compact);
        assert!(stored.replay().run().await.unwrap().divergence.is_none());
        assert_eq!(model.0.lock().unwrap().len(), 5, "a replay calls no model");
    }

    #[tokio::test]
    async fn a_requested_summary_that_gains_nothing_is_discarded_once() {
        let (model, store) = (Arc::new(Summarises::default()), Arc::new(MemoryCheckpointer::new()));
        let agent = agent(&model, store);
        for _ in 0..2 {
            agent.thread("t").run(agent.input("a").compact(true)).await.unwrap();
            let state = agent.graph().thread("t").state().await.unwrap().values;
            assert_eq!((state.compact, state.context.summary, state.llm_calls), (false, None, 1));
        }
        // The first turn has nothing to summarize.
        assert_eq!(model.0.lock().unwrap().len(), 3);
    }

    #[test]
    fn only_a_complete_text_is_a_summary() {
        use FinishReason::{ContentFilter, ContextFull, Length, Other, Refusal, Stop, ToolCalls};
        let response = |finish, calls: &[ToolCall]| Response {
            message: Message::assistant("S").with_tool_calls(calls.iter().cloned()),
            finish,
            usage: None,
            attempts: 1,
        };
        for finish in [Stop, ToolCalls, Other("eos".into())] {
            assert!(is_summary(&response(finish.clone(), &[])), "{finish:?}");
            assert!(!is_summary(&response(finish.clone(), &[ToolCall::new("c", "x", "{}")])), "{finish:?}");
        }
        for finish in [Length, ContextFull, ContentFilter, Refusal, Other("error".into())] {
            assert!(!is_summary(&response(finish.clone(), &[])), "{finish:?}");
        }
    }
}
