//! The part of a request around the conversation.
//!
//! Start at [`Frame`].

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use superstep_llm::{Message, Role, toolset::ToolSpecs};

use super::{finish::Finishing, instructions};
use crate::{
    AgentState,
    config::{OutputMode, prompts},
    deps::AgentDeps,
};

/// The parts of a request around the conversation.
pub(crate) struct Frame<'a> {
    /// The text of the system message, if there is one.
    pub(crate) system: Option<Cow<'a, str>>,
    pub(crate) tools: ToolSpecs,
}

impl<'a> Frame<'a> {
    pub(crate) fn of(deps: &'a AgentDeps, state: &AgentState) -> Self {
        let finishing = Finishing::of(&deps.config, state);
        let prompted = finishing.of_text().filter(|_| finishing.mode() == OutputMode::Prompted);
        let (prompt, prompted) = (&*deps.config.system_prompt, prompted.as_ref().map(prompts::output_schema));
        let system = match prompted {
            None => Cow::Borrowed(prompt),
            Some(prompted) if prompt.is_empty() => Cow::Owned(prompted),
            Some(prompted) => Cow::Owned([prompt, &prompted].join("\n\n")),
        };
        let system = match instructions::of_prompt(&state.guidance) {
            None => system,
            Some(guidance) if system.is_empty() => Cow::Owned(guidance),
            Some(guidance) => Cow::Owned([&*system, &guidance].join("\n\n")),
        };
        let mut tools = deps.tools.specs();
        if let Some(finish) = finishing.tool() {
            tools.to_mut().push(finish);
        }
        Self { system: Some(system).filter(|prompt| !prompt.is_empty()), tools }
    }
}

/// The system message of the last request, shared with the next one if its text is the same.
#[derive(Clone, Default)]
pub(crate) struct SystemMessage(Arc<Mutex<Option<Message>>>);

impl SystemMessage {
    /// Returns the message with this text.
    pub(crate) fn of(&self, text: &str) -> Message {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let message = last.take().filter(|last| last.content == text);
        last.insert(message.unwrap_or_else(|| Message::system(text))).clone()
    }
}

pub(crate) fn synthetic_text<'a>(deps: &'a AgentDeps, state: &AgentState) -> Option<&'a str> {
    let text = deps.config.synthetic_after_tools.as_ref()?;
    // A model that continues a response has received it already.
    state.messages.last().filter(|last| last.role == Role::Tool)?;
    Some(text)
}
