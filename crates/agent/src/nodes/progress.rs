//! Events of a growing response, beside its tokens.

use serde_json::Value;
use superstep_graph::Cx;
use superstep_llm::{Assembler, Delta, text::partial_json};

use super::parts;
use crate::{AgentEvent, AgentState, context::finish::Finishing, deps::AgentDeps, events::emit};

pub(super) struct Progress<'a> {
    parts: bool,
    finishing: Finishing<'a>,
    /// The tool whose call is the reply; `None` if the text is.
    finish_tool: Option<String>,
    /// The earlier text, if this continues a message.
    begun: &'a str,
    /// Number of tool calls begun.
    named: usize,
    /// Length of the reply at the last parse.
    read: usize,
    /// The partial reply.
    output: Option<Value>,
}

/// Maximum length of a partial reply that is parsed.
const MAX_READ_LENGTH: usize = 64 * 1024;

/// The fraction by which a long reply has to grow before it is parsed again, because each parse reads the
/// whole.
const GROWTH: usize = 64;

impl<'a> Progress<'a> {
    /// Starts an empty response, with or without tools.
    pub(super) fn new(deps: &'a AgentDeps, state: &'a AgentState, had_tools: bool) -> Self {
        let finishing = Finishing::of(&deps.config, state);
        let finish_tool = finishing.tool().filter(|_| had_tools).map(|tool| tool.name);
        let begun = state.continued_message().map_or("", |message| &message.content);
        Self { parts: deps.config.parts, finishing, finish_tool, begun, named: 0, read: 0, output: None }
    }

    /// Returns whether something was emitted that a new attempt discards.
    pub(super) fn has_emitted(&self) -> bool {
        self.named > 0 || self.output.is_some()
    }

    /// Emits the news of the last delta, which `answer` includes already.
    pub(super) fn emit(&mut self, delta: &Delta, answer: &Assembler, message: &str, cx: &Cx) {
        match delta {
            Delta::AttemptDiscarded { .. } => (self.named, self.read, self.output) = (0, 0, None),
            // The text was tool calls and not a reply.
            Delta::TextCalls { .. } => (self.read, self.output) = (0, None),
            Delta::ToolCall { name, .. } => {
                if self.parts && name.as_ref().is_some_and(|name| !name.is_empty()) {
                    self.emit_parts(answer, message, cx);
                }
                self.emit_output(answer, cx);
            }
            Delta::Text(_) => self.emit_output(answer, cx),
            _ => {}
        }
    }

    fn emit_parts(&mut self, answer: &Assembler, message: &str, cx: &Cx) {
        for (name, _) in answer.calls().skip(self.named).take_while(|(name, _)| !name.is_empty()) {
            emit(cx, || AgentEvent::Part(parts::pending(message, self.named, name, cx)));
            self.named += 1;
        }
    }

    fn emit_output(&mut self, answer: &Assembler, cx: &Cx) {
        if !self.finishing.has_schema() {
            return;
        }
        let (begun, rest) = match &self.finish_tool {
            Some(tool) => ("", answer.calls().find(|(name, _)| name == tool).map_or("", |(_, given)| given)),
            None => (self.begun, answer.text()),
        };
        let length = begun.len() + rest.len();
        if length > MAX_READ_LENGTH || length <= self.read + self.read / GROWTH {
            return;
        }
        self.read = length;
        let output = partial_json(&[begun, rest].concat())
            .and_then(|given| self.finishing.output(given, self.finish_tool.is_none()));
        if let Some(output) = output.filter(|output| self.output.as_ref() != Some(output)) {
            emit(cx, || AgentEvent::OutputPartial { output: output.clone() });
            self.output = Some(output);
        }
    }
}
