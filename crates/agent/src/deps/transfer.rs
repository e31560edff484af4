//! The tools that transfer a conversation.
//!
//! Start at [`Transfer`].

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use superstep_llm::{Behaviour, Tool, ToolCx, ToolFuture, ToolReply, ToolSpec};

use crate::config::prompts;

/// The tool that transfers the conversation to an agent. It only answers the call: the node `tools` transfers it at the end of the round.
#[derive(Clone)]
pub(crate) struct Transfer {
    spec: ToolSpec,
    /// The name of the agent; empty for the first one.
    pub(crate) to: Arc<str>,
}

impl Transfer {
    /// Creates the tool that transfers the conversation to the agent of this name.
    pub(super) fn new(name: String, description: String, to: &str) -> Self {
        Self { spec: ToolSpec::of::<Reason>(name, description), to: to.into() }
    }

    /// Creates the tool that transfers the conversation back.
    pub(crate) fn back(when: &str, to: &str) -> Self {
        Self::new("transfer_back".to_owned(), prompts::transfer_back(when), to)
    }
}

/// The arguments of a transfer.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used; the reason is for the next agent and the user")]
struct Reason {
    /// Why the conversation is transferred, in one sentence.
    reason: String,
}

impl Tool for Transfer {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn behaviour(&self) -> Behaviour {
        // All other calls of the round come first.
        Behaviour { idempotent: true, exclusive: true, ..Behaviour::default() }
    }

    fn changes_files(&self) -> Option<bool> {
        Some(false)
    }

    fn call(&self, _: Value, _: ToolCx) -> ToolFuture<'_> {
        Box::pin(std::future::ready(Ok(ToolReply::from(prompts::TRANSFERRED))))
    }
}
