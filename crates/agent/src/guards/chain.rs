//! The guards of an agent, and the verdicts that they still owe.
//!
//! Start at [`Guards`].

use std::sync::Arc;

use super::guard::Guard;
use crate::{
    AgentState,
    state::guarding::{GuardAt, GuardVerdict, Verdict},
};

/// The guards of an agent, in their order.
#[derive(Clone, Debug, Default)]
pub struct Guards(Arc<[Guard]>);

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
        Self(guards.into())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Guard> {
        self.0.iter()
    }

    pub(crate) fn at(&self, at: GuardAt) -> impl Iterator<Item = &Guard> {
        self.iter().filter(move |guard| guard.at() == at)
    }

    /// Returns whether there are guards with nodes.
    pub(crate) fn are_nodes(&self) -> bool {
        self.nodes().next().is_some()
    }

    /// Returns the guards with nodes: those of the input and of the output.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Guard> {
        self.iter().filter(|guard| guard.at() != GuardAt::Tool)
    }

    /// Returns whether the text of the model is held back from the stream.
    pub(crate) fn hold(&self) -> bool {
        self.iter().any(Guard::holds)
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

    /// Returns whether a response waits, or a verdict is missing.
    pub(crate) fn wait(&self, state: &AgentState) -> bool {
        state.guarding.draft.is_some() || self.are_owed(state)
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
