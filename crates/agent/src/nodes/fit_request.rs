//! The agent's reduction of requests that are too large, beside the node `compact`.

use superstep_graph::{Cx, State};
use superstep_llm::{Message, ModelErrorKind, Usage};

use super::{
    loops,
    next_call::{NextCall, Plan},
    request::hints,
};
use crate::{
    AgentEvent, AgentState,
    context::{
        meter::Meter,
        plan::{Step, plan},
        shown::Shown,
    },
    deps::AgentDeps,
    events::emit,
    state::{AgentStateUpdate, ContextView, ModelFailure, RequestSize, view::Change},
};

// Passing everything through `compact` would cost a superstep and a checkpoint before every model call.
/// Returns the update that routes to the node `compact`, if a summary is due.
pub(super) fn summary_due(deps: &AgentDeps, state: &AgentState, cx: &Cx) -> Option<AgentStateUpdate> {
    let context = &deps.config.context;
    if state.stop || state.context.due || !context.consolidates() {
        return None;
    }
    if cx.noted("cancelled.before", cx.cancel().is_cancelled()) {
        return None;
    }
    let summaries = may_summarise(deps, state, cx);
    let Step::Consolidate(_) = plan(Meter::new(deps, state), state, summaries) else { return None };
    let Plan::Call(call) = NextCall::plan(&deps.config, state, cx.now_ms()) else { return None };
    let ends = call.tools && loops::ends(deps, state).is_some_and(|(_, answers)| !answers);
    let view = ContextView { due: true, ..state.context.clone() };
    (!ends).then(|| AgentState::update().context(view))
}

/// Returns whether a model may be called for a summary.
pub(super) fn may_summarise(deps: &AgentDeps, state: &AgentState, cx: &Cx) -> bool {
    !state.context.paused && state.spent(cx.now_ms()).exhausts(&deps.config.budget).is_none()
}

/// The view of one model call, and its size.
pub(super) struct RequestSpace<'a> {
    pub(super) view: ContextView,
    meter: Meter<'a>,
    deps: &'a AgentDeps,
    state: &'a AgentState,
    /// The newest message of the request.
    newest: String,
    /// The tokens of the newest message, if they were counted.
    size: Option<u64>,
}

impl<'a> RequestSpace<'a> {
    /// Reduces the request without a model.
    ///
    /// # Errors
    /// If it cannot be reduced enough.
    pub(super) fn make(
        deps: &'a AgentDeps,
        state: &'a AgentState,
        new: &[Message],
        cx: &Cx,
    ) -> Result<Self, ModelFailure> {
        let meter = Meter::new(deps, state).saying(new);
        let newest = newest(state);
        let is_settled = !newest.is_empty() && state.context.settled == newest;
        let over = if is_settled { state.context.over } else { 0 };
        let view = ContextView { due: false, over, ..state.context.clone() };
        let last = new.last().map_or_else(|| newest.clone(), |last| last.id.clone());
        let space = Self { view, meter, deps, state, newest: last, size: None };
        match plan(meter, state, false) {
            Step::Send | Step::Consolidate(_) => Ok(space),
            Step::TooLarge(over) => Ok(Self { view: ContextView { over, ..space.view }, ..space }),
            Step::Change(change) => {
                emit(cx, || compacted(&change, meter.over(&change)));
                let view = ContextView { due: false, settled: newest, ..change.view };
                Ok(Self { view, size: Some(change.after), ..space })
            }
            Step::NoRoom { overhead, limit } => Err(ModelFailure {
                kind: ModelErrorKind::ContextOverflow,
                status: None,
                message: no_room(&state.context, overhead, limit),
                retry_after_ms: None,
                retry_at_ms: None,
            }),
        }
    }

    /// Estimates the tokens of the call, if the provider does not report them.
    pub(super) fn estimate(&mut self, call: &NextCall<'_>, answer: &Message) -> Usage {
        let size = self.size.unwrap_or_else(|| self.measure());
        // The continued message will be longer in the next request.
        if !self.state.answer.continuing {
            self.size = Some(size);
        }
        self.usage(size, call, answer)
    }

    /// Estimates the tokens of a call that was stopped. The size is not retained, because the new messages of the request may not
    /// join the conversation.
    pub(super) fn estimate_stopped(&self, call: &NextCall<'_>, partial: &Message) -> Usage {
        self.usage(self.size.unwrap_or_else(|| self.measure()), call, partial)
    }

    fn usage(&self, size: u64, call: &NextCall<'_>, answer: &Message) -> Usage {
        let counter = &self.deps.counter;
        let hints = hints(self.deps, self.state, call);
        let hints = hints.iter().map(|hint| counter.message(&Message::user(&**hint)));
        Usage::new(hints.fold(size, u64::saturating_add), self.output_tokens(answer))
    }

    /// Estimates the tokens of a response.
    pub(super) fn output_tokens(&self, answer: &Message) -> u64 {
        let counter = &self.deps.counter;
        counter.message(answer).saturating_add(counter.text(&answer.reasoning))
    }

    /// Records that the model has responded, and the size of the request as the provider reports it.
    pub(super) fn fitted(&mut self, call: &NextCall<'_>, usage: Option<Usage>) {
        self.view.overflows = 0;
        if self.deps.config.context.layers.is_empty() {
            return;
        }
        // Not of the response: its tokens include its reasoning, which most providers do not receive again.
        // The size of a request without tools does not apply to the next one, which has tools; and the
        // continued message will be longer.
        if (call.tools || self.deps.tools.is_empty()) && !self.state.answer.continuing {
            let reported = usage.map(|usage| usage.input_tokens).filter(|tokens| *tokens > 0);
            self.size = reported.or(self.size);
        }
    }

    /// Returns whether to retry with a smaller view after this error, and prepares the retry.
    pub(super) fn retries(&mut self, error: &ModelFailure) -> bool {
        let retries = error.kind == ModelErrorKind::ContextOverflow
            && self.view.overflows == 0
            && self.deps.config.context.retry_overflow
            && !self.deps.config.context.layers.is_empty();
        if retries {
            let refused = self.size.unwrap_or_else(|| self.measure());
            self.view = ContextView {
                due: true,
                overflows: 1,
                refused: Some(refused),
                refusal: error.message.clone(),
                settled: String::new(),
                ..self.view.clone()
            };
        }
        retries
    }

    /// Records that the request and its answer filled the model's window: the next request is smaller.
    pub(super) fn filled(&mut self) {
        let size = self.size.unwrap_or_else(|| self.measure());
        (self.view.full, self.view.settled) = (Some(size), String::new());
    }

    /// Records that the provider refused the reasoning of all answers so far.
    pub(super) fn without_reasoning(&mut self) {
        self.view.bare_until = newest(self.state);
    }

    pub(super) fn write(self, update: AgentStateUpdate) -> AgentStateUpdate {
        let update = match self.size {
            Some(tokens) => update.request_size(RequestSize { message: self.newest, tokens }),
            None => update,
        };
        if self.view == self.state.context { update } else { update.context(self.view) }
    }

    fn measure(&self) -> u64 {
        let shown = Shown::new(&self.state.messages, &self.view, self.deps.config.context.micro());
        self.meter.size(&shown, &self.state.request_size)
    }
}

/// Explains that there is no space for a conversation, in the words of the provider if it has rejected the request.
fn no_room(view: &ContextView, overhead: u64, limit: u64) -> String {
    match view.refused {
        Some(refused) => format!(
            "{}; it cannot be reduced, because the system prompt and the tools take {overhead} of about {refused} tokens: \
             shorten them, or offer fewer tools",
            view.refusal
        ),
        None => format!(
            "the system prompt and the tools take {overhead} tokens of the {limit} that a request may have; \
             shorten them, offer fewer tools, or raise `context`"
        ),
    }
}

/// Returns the event that reports a change, with the tokens by which the request still exceeds its limit.
pub(super) fn compacted(change: &Change, over: u64) -> AgentEvent {
    let Change { before, after, dropped, pins_left_out, .. } = *change;
    AgentEvent::Compacted { before, after, dropped, over, pins_left_out }
}

/// Returns the id of the newest message.
pub(super) fn newest(state: &AgentState) -> String {
    state.messages.last().map(|last| last.id.clone()).unwrap_or_default()
}
