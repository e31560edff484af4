//! What is told of an answer while it grows, beside its tokens.

use serde_json::Value;
use superstep_graph::Cx;
use superstep_llm::{Assembler, Delta, partial_json};

use super::{finish::Finishing, parts};
use crate::{AgentDeps, AgentState, events};

/// An answer that grows.
pub(super) struct Progress<'a> {
    parts: bool,
    finishing: Finishing<'a>,
    /// How many tools it has named.
    named: usize,
    /// The reply, as far as it has come.
    output: Option<Value>,
}

/// Answers that are longer are not read before they are whole: each reading takes the time of the whole answer.
const LONGEST_READ: usize = 64 * 1024;

impl<'a> Progress<'a> {
    pub(super) fn new(deps: &'a AgentDeps, state: &'a AgentState) -> Self {
        let finishing = Finishing::of(&deps.config, state);
        Self { parts: deps.config.parts, finishing, named: 0, output: None }
    }

    /// Whether whoever listens was told of something that goes away with the attempt.
    pub(super) fn has_told(&self) -> bool {
        self.named > 0
    }

    /// Tells what is new with the last piece, which `answer` has already.
    pub(super) fn tell(&mut self, delta: &Delta, answer: &Assembler, message: &str, cx: &Cx) {
        match delta {
            Delta::AttemptDiscarded { .. } => (self.named, self.output) = (0, None),
            Delta::ToolCall { .. } => {
                if self.parts {
                    self.tell_parts(answer, message, cx);
                }
                self.tell_output(answer, cx);
            }
            Delta::Text(_) => self.tell_output(answer, cx),
            _ => {}
        }
    }

    fn tell_parts(&mut self, answer: &Assembler, message: &str, cx: &Cx) {
        let calls = answer.partial().tool_calls;
        let named = calls.iter().take_while(|call| !call.name.is_empty()).count();
        for (position, call) in calls.iter().enumerate().take(named).skip(self.named) {
            events::part(cx, &parts::pending(message, position, &call.name, cx));
        }
        self.named = self.named.max(named);
    }

    fn tell_output(&mut self, answer: &Assembler, cx: &Cx) {
        if !self.finishing.has_schema() {
            return;
        }
        let message = answer.partial();
        let text = match self.finishing.tool() {
            Some(tool) => message.tool_calls.into_iter().find(|call| call.name == tool.name),
            None => None,
        };
        let text = text.map_or(message.content, |call| call.arguments);
        if text.len() > LONGEST_READ {
            return;
        }
        let output = partial_json(&text).and_then(|given| self.finishing.output(given));
        if let Some(output) = output.filter(|output| self.output.as_ref() != Some(output)) {
            events::output_partial(cx, &output);
            self.output = Some(output);
        }
    }
}
