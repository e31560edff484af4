//! The part of a request around the conversation.
//!
//! Start at [`Frame`].

use superstep_llm::{Message, Role, ToolSpec};

use super::finish::Finishing;
use crate::{
    AgentState,
    config::{OutputMode, prompts},
    deps::AgentDeps,
};

/// The parts of a request around the conversation.
pub(crate) struct Frame {
    pub(crate) system: Option<Message>,
    pub(crate) tools: Vec<ToolSpec>,
}

impl Frame {
    pub(crate) fn of(deps: &AgentDeps, state: &AgentState) -> Self {
        let finishing = Finishing::of(&deps.config, state);
        let prompted = finishing.of_text().filter(|_| finishing.mode() == OutputMode::Prompted);
        let prompted = prompted.as_ref().map(prompts::output_schema);
        let system = [Some(deps.config.system_prompt.as_str()), prompted.as_deref()];
        let system: Vec<&str> = system.into_iter().flatten().filter(|text| !text.is_empty()).collect();
        let system = Some(system.join("\n\n")).filter(|prompt| !prompt.is_empty()).map(Message::system);
        let tools = deps.tools.specs().into_iter().chain(finishing.tool());
        Self { system, tools: tools.collect() }
    }
}

pub(crate) fn synthetic_text<'a>(deps: &'a AgentDeps, state: &AgentState) -> Option<&'a str> {
    let text = deps.config.synthetic_after_tools.as_ref()?;
    // A model that continues a response has received it already.
    state.messages.last().filter(|last| last.role == Role::Tool)?;
    Some(text)
}
