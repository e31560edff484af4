//! The size of requests.

use superstep_llm::{Message, ToolSpec, media::Accepts, tokens::TokenCounter};

use super::{
    frame::{Frame, synthetic_text},
    shown::Shown,
    summary,
};
use crate::{
    AgentState,
    config::{ContextConfig, context::share},
    deps::AgentDeps,
    state::{ContextView, Guidance, Pins, RequestSize, view::Change},
};

/// Counts the tokens of one agent's requests.
#[derive(Clone, Copy)]
pub(crate) struct Meter<'a> {
    pub(super) config: &'a ContextConfig,
    counter: &'a dyn TokenCounter,
    /// The media that the model accepts; others are not sent.
    accepts: Accepts,
    deps: &'a AgentDeps,
    state: &'a AgentState,
    /// The tokens of new messages of the next request that are not in the conversation yet.
    unsent: u64,
    /// Overestimates are acceptable, which saves most of the work.
    roughly: bool,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(deps: &'a AgentDeps, state: &'a AgentState) -> Self {
        let (config, counter) = (&deps.config.context, &*deps.counter);
        let synthetic = synthetic_text(deps, state).map(Message::synthetic);
        let unsent = synthetic.map_or(0, |synthetic| counter.message(&synthetic));
        let accepts = deps.models.main.accepts();
        Self { config, counter, accepts, deps, state, unsent, roughly: false }
    }

    /// Includes these new messages in the counts.
    pub(crate) fn saying(self, new: &[Message]) -> Self {
        Self {
            unsent: new.iter().map(|message| self.counter.message(message)).fold(0, u64::saturating_add),
            ..self
        }
    }

    /// Returns the tokens of messages that are not in the conversation yet.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Returns a meter that may overestimate, at almost no cost.
    pub(super) fn roughly(self) -> Self {
        Self { roughly: true, ..self }
    }

    /// Returns the token limit of a request; less than configured after the provider has rejected one, or one has filled the window.
    pub(super) fn limit(&self, view: &ContextView) -> u64 {
        let too_large = [view.refused, view.full].into_iter().flatten().min();
        let smaller = too_large.map(|tokens| share(tokens, 1.0 - self.config.breaker.min_gain));
        self.config.limit().min(smaller.unwrap_or(u64::MAX))
    }

    /// Returns the tokens of a request: those of the last one plus those of later messages. Only these are
    /// counted, so that the cost of a round depends on its new messages only.
    pub(crate) fn size(&self, shown: &Shown<'_>, last: &RequestSize) -> u64 {
        let known = if last.message.is_empty() { None } else { shown.messages.position(&last.message) };
        let said = match known.filter(|known| *known >= shown.start) {
            Some(known) => {
                let new = (known + 1..shown.messages.len()).map(|place| &shown.messages[place]);
                new.map(|message| self.message(message)).fold(last.tokens, u64::saturating_add)
            }
            None => {
                let all = shown.messages().map(|message| self.message(&message));
                all.fold(self.frame(), u64::saturating_add)
            }
        };
        said.saturating_add(self.unsent)
    }

    /// Returns the tokens of the next request without the conversation.
    pub(super) fn overhead(&self) -> u64 {
        self.frame().saturating_add(self.unsent)
    }

    /// Returns the tokens common to all requests.
    pub(super) fn frame(&self) -> u64 {
        let Frame { system, tools } = Frame::of(self.deps, self.state);
        let system = system.map_or(0, |system| self.message(&Message::system(system)));
        tools.iter().map(|tool| self.tool(tool)).fold(system, u64::saturating_add)
    }

    /// Returns by how many tokens a changed request exceeds its limit.
    pub(crate) fn over(&self, change: &Change) -> u64 {
        change.after.saturating_sub(self.limit(&change.view))
    }

    /// Returns the tokens of a summary as it is sent.
    pub(super) fn summary(&self, text: &str) -> u64 {
        self.message(&summary::message(text))
    }

    /// Returns the tokens of the texts that stay of messages that are left out, as they are sent.
    pub(super) fn carried(&self, text: &str) -> u64 {
        self.message(&summary::carried(text))
    }

    pub(super) fn pins(&self) -> &'a Pins {
        &self.state.pins
    }

    pub(super) fn guidance(&self) -> &'a Guidance {
        &self.state.guidance
    }

    pub(super) fn text(&self, text: &str) -> u64 {
        self.message(&Message::user(text))
    }

    pub(super) fn message(&self, message: &Message) -> u64 {
        let text =
            if self.roughly { self.counter.message_at_most(message) } else { self.counter.message(message) };
        let media = message.media.iter().filter(|media| self.accepts.takes(media.mime));
        media.map(|media| self.counter.media(media)).fold(text, u64::saturating_add)
    }

    fn tool(&self, tool: &ToolSpec) -> u64 {
        if self.roughly { self.counter.tool_at_most(tool) } else { self.counter.tool(tool) }
    }
}
