//! The guards of an agent, and the verdicts that they still owe.
//!
//! Start at [`Guards`].

use std::sync::Arc;

use superstep_llm::Message;

use super::guard::Guard;
use crate::{
    AgentState,
    state::guarding::{GuardAt, GuardVerdict, Verdict},
};

/// The guards of an agent, in their order.
#[derive(Clone, Debug, Default)]
pub struct Guards {
    all: Arc<[Guard]>,
    /// The graph has their nodes. Without, those of the input and of the output do nothing.
    are_wired: bool,
}

/// The result of the guards at one place for a text.
#[derive(Debug, PartialEq)]
pub(crate) enum Settled<'a> {
    Passed,
    Blocked(&'a GuardVerdict),
    Rewritten(&'a str, &'a str),
    /// A verdict is missing.
    Open,
}

impl Guards {
    /// Creates them; [`AgentBuilder::guard`](crate::AgentBuilder::guard) also checks their names.
    pub fn new(guards: Vec<Guard>) -> Self {
        Self { all: guards.into(), are_wired: false }
    }

    /// Returns them for a graph that has their nodes.
    pub(crate) fn wired(self) -> Self {
        Self { are_wired: true, ..self }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Guard> {
        self.all.iter()
    }

    pub(crate) fn at(&self, at: GuardAt) -> impl Iterator<Item = &Guard> {
        let has_effect = self.are_wired || at == GuardAt::Tool;
        self.iter().filter(move |guard| has_effect && guard.at() == at)
    }

    /// Returns whether there are guards with nodes.
    pub(crate) fn are_nodes(&self) -> bool {
        self.nodes().next().is_some()
    }

    /// Returns the guards with nodes: those of the input and of the output.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Guard> {
        self.iter().filter(|guard| self.are_wired && guard.at() != GuardAt::Tool)
    }

    /// Returns whether a guard with a node guards the agent that has the conversation.
    pub(crate) fn guard(&self, active: &str) -> bool {
        self.nodes().any(|guard| guard.guards(active))
    }

    /// Returns whether texts at this place are checked while this agent has the conversation.
    pub(crate) fn check(&self, at: GuardAt, active: &str) -> bool {
        self.at(at).any(|guard| guard.guards(active))
    }

    /// Returns whether the text of this agent's model is held back from the stream.
    pub(crate) fn hold(&self, active: &str) -> bool {
        self.at(GuardAt::Output).any(|guard| guard.holds() && guard.guards(active))
    }

    /// Returns whether a text of a message may be used: all guards at the place have accepted it.
    pub(crate) fn have_passed(&self, state: &AgentState, at: GuardAt, message: &Message) -> bool {
        self.settled(state, at, (&message.id, &message.content)) == Settled::Passed
    }

    /// Returns the result for a text of a message.
    pub(crate) fn settled<'a>(
        &'a self,
        state: &'a AgentState,
        at: GuardAt,
        (message, text): (&str, &str),
    ) -> Settled<'a> {
        for guard in self.at(at).filter(|guard| guard.guards(&state.active)) {
            let Some(made) = state.verdict(guard.name(), message, text) else { return Settled::Open };
            match &made.verdict {
                Verdict::Pass => {}
                Verdict::Rewrite(new) if new == text => {}
                Verdict::Rewrite(new) => return Settled::Rewritten(guard.name(), new),
                Verdict::Block { .. } => return Settled::Blocked(made),
            }
        }
        Settled::Passed
    }

    /// Returns the verdicts by which the guards up to one accept the text that it has written.
    pub(crate) fn accept(
        &self,
        at: GuardAt,
        until: &str,
        (message, text): (&str, &str),
    ) -> Vec<GuardVerdict> {
        let end = self.at(at).position(|guard| guard.name() == until).map_or(0, |at| at + 1);
        let pass = |guard: &Guard| GuardVerdict::new(guard.name(), message, text, Verdict::Pass);
        self.at(at).take(end).map(pass).collect()
    }

    /// Returns whether a response waits, a verdict is missing, or an answer has only begun when the turn ended.
    pub(crate) fn wait(&self, state: &AgentState) -> bool {
        state.guarding.draft.is_some() || self.are_owed(state) || self.unchecked_beginning(state).is_some()
    }

    /// Returns the beginning of an answer that the end of the turn has left unfinished, and that guards of the output
    /// would have checked with the rest.
    pub(crate) fn unchecked_beginning<'a>(&self, state: &'a AgentState) -> Option<&'a Message> {
        let begun = state.continued_message().filter(|_| state.stop && state.guarding.draft.is_none());
        begun.filter(|_| self.check(GuardAt::Output, &state.active))
    }

    /// Returns whether a verdict is missing, and the turn continues.
    pub(crate) fn are_due(&self, state: &AgentState) -> bool {
        !state.stop && self.are_owed(state)
    }

    fn are_owed(&self, state: &AgentState) -> bool {
        self.nodes().any(|guard| !self.due(guard, state).is_empty())
    }

    /// Returns whether this guard has to run in this state.
    pub(crate) fn is_due(&self, guard: &Guard, state: &AgentState) -> bool {
        !state.stop && !self.due(guard, state).is_empty()
    }

    /// Returns whether this guard had a text to check in this state, with or without a verdict.
    pub(crate) fn has_run(&self, guard: &Guard, state: &AgentState) -> bool {
        !self.due(guard, state).is_empty() || state.verdicts.iter().any(|made| made.guard == guard.name())
    }

    /// Returns the ids of the messages, with their texts, that a guard has to check.
    pub(crate) fn due<'a>(&self, guard: &Guard, state: &'a AgentState) -> Vec<(&'a str, &'a str)> {
        if !guard.guards(&state.active) {
            return Vec::new();
        }
        let is_missing =
            |(message, text): &(&str, &str)| state.verdict(guard.name(), message, text).is_none();
        let inputs = || state.inputs().map(|message| (message.id.as_str(), message.content.as_str()));
        let passed = |text: (&str, &str)| self.settled(state, GuardAt::Input, text) == Settled::Passed;
        match guard.at() {
            GuardAt::Input => inputs().filter(is_missing).collect(),
            GuardAt::Output => {
                let draft = state.guarding.draft.as_ref().filter(|_| inputs().all(passed));
                let text = draft.and_then(|draft| Some((draft.id(), draft.text.as_deref()?)));
                text.into_iter().filter(is_missing).collect()
            }
            GuardAt::Tool => Vec::new(),
        }
    }
}
