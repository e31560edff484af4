//! How large a request is.

use superstep_llm::{Message, TokenCounter, ToolSpec};

use super::{RequestSize, Shown, summary};
use crate::{AgentDeps, AgentState, ContextConfig, ContextView, config::share, nodes::request::Frame};

/// Counts requests of one agent.
#[derive(Clone, Copy)]
pub(crate) struct Meter<'a> {
    pub(super) config: &'a ContextConfig,
    counter: &'a dyn TokenCounter,
    deps: &'a AgentDeps,
    state: &'a AgentState,
    /// Whether counts may be too large, which saves most of the work.
    roughly: bool,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(deps: &'a AgentDeps, state: &'a AgentState) -> Self {
        Self { config: &deps.config.context, counter: &*deps.counter, deps, state, roughly: false }
    }

    /// The same, but its counts may be too large, and take no work to speak of.
    pub(super) fn roughly(self) -> Self {
        Self { roughly: true, ..self }
    }

    /// How many tokens a request may have; fewer than configured after the provider has refused one.
    pub(super) fn limit(&self, view: &ContextView) -> u64 {
        let refused = view.refused.map(|tokens| share(tokens, 1.0 - self.config.breaker.min_gain));
        self.config.limit().min(refused.unwrap_or(u64::MAX))
    }

    /// The tokens of a request: of the last one, and of what came since.
    pub(crate) fn size(&self, shown: &Shown<'_>, last: &RequestSize) -> u64 {
        let known = if last.message.is_empty() { None } else { shown.messages.position(&last.message) };
        match known.filter(|known| *known >= shown.start) {
            Some(known) => {
                let new = shown.messages.iter().skip(known + 1);
                new.map(|message| self.message(message)).fold(last.tokens, u64::saturating_add)
            }
            None => {
                let all = shown.messages().map(|message| self.message(&message));
                all.fold(self.overhead(), u64::saturating_add)
            }
        }
    }

    /// The tokens that every request has, whatever was said.
    pub(super) fn overhead(&self) -> u64 {
        let Frame { system, tools } = Frame::of(self.deps, self.state);
        let system = system.map_or(0, |system| self.message(&system));
        tools.iter().map(|tool| self.tool(tool)).fold(system, u64::saturating_add)
    }

    /// The tokens of a summary, as it is sent.
    pub(super) fn summary(&self, text: &str) -> u64 {
        self.message(&summary::message(text))
    }

    pub(super) fn message(&self, message: &Message) -> u64 {
        if self.roughly { self.counter.message_at_most(message) } else { self.counter.message(message) }
    }

    fn tool(&self, tool: &ToolSpec) -> u64 {
        if self.roughly { self.counter.tool_at_most(tool) } else { self.counter.tool(tool) }
    }
}
