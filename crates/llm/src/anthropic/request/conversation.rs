//! The conversation of a body, and what reasoning is signed over.
//!
//! Start at [`Conversation`].

use std::{borrow::Cow, mem::take};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::{Role, anthropic::blocks::Block, messages::extras::fnv};

/// Consecutive messages of one side.
#[derive(Serialize)]
pub(super) struct Turn<'a> {
    pub(super) role: Role,
    pub(super) content: Vec<Cow<'a, RawValue>>,
    #[serde(skip)]
    pub(super) has_results: bool,
    #[serde(skip)]
    pub(super) begins_with_thinking: bool,
}

/// The turns of a conversation so far, and hashes of what reasoning is signed over: the blocks that are no reasoning, with the system
/// prompt and the tools; and the reasoning before it.
///
/// # Source
/// Anthropic, "Preserved thinking": a block of reasoning is valid behind the conversation in which it was made only.
pub(super) struct Conversation<'a> {
    turns: Vec<Turn<'a>>,
    hash: u64,
    /// The hash of the last reasoning.
    thought: Option<u64>,
    /// System messages have a role of their own in the conversation.
    mid_system: bool,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(system: &[Block], tools: u64, mid_system: bool) -> Self {
        let system = system.iter().flat_map(|block| block.hash.to_le_bytes());
        let hash = fnv(system.chain(tools.to_le_bytes()));
        Self { turns: Vec::new(), hash, thought: None, mid_system }
    }

    /// Returns the hash of everything so far: 16 digits of the blocks, and 16 of the last reasoning.
    pub(super) fn prefix(&self) -> String {
        format!("{:016x}{:016x}", self.hash, self.thought.unwrap_or_default())
    }

    /// Returns whether reasoning with this prefix is valid here. That before it may be missing as a whole.
    pub(super) fn fits(&self, prefix: &str) -> bool {
        let here = self.prefix();
        let blocks = here.len() / 2;
        if self.thought.is_none() { prefix.get(..blocks) == here.get(..blocks) } else { prefix == here }
    }

    pub(super) fn has_thinking(&self) -> bool {
        self.thought.is_some()
    }

    /// Adds the blocks of a message, with or without its reasoning.
    pub(super) fn add(&mut self, role: Role, blocks: &'a [Block], with_thinking: bool) {
        let sent = blocks.iter().filter(|block| with_thinking || !block.is_thinking);
        let role_sent = match role {
            Role::Assistant => Role::Assistant,
            // The first message is the user's.
            Role::System if self.mid_system && !self.turns.is_empty() => Role::System,
            Role::System | Role::User | Role::Tool => Role::User,
        };
        for block in sent {
            if self.turns.is_empty() && role_sent == Role::Assistant {
                self.push(Role::User, Cow::Owned(Block::text("(earlier messages are left out)").json), false);
            }
            if block.is_thinking {
                self.thought = Some(block.hash);
            } else {
                let role = match role_sent {
                    Role::Assistant => [1],
                    Role::System => [2],
                    Role::User | Role::Tool => [0],
                };
                self.hash =
                    fnv(self.hash.to_le_bytes().into_iter().chain(role).chain(block.hash.to_le_bytes()));
            }
            self.push(role_sent, Cow::Borrowed(&*block.json), block.is_thinking);
            let turn = self.turns.last_mut().expect("a turn was pushed");
            turn.has_results |= role == Role::Tool;
        }
    }

    fn push(&mut self, role: Role, block: Cow<'a, RawValue>, is_thinking: bool) {
        match self.turns.last_mut().filter(|turn| turn.role == role) {
            Some(turn) => turn.content.push(block),
            None => self.turns.push(Turn {
                role,
                content: vec![block],
                has_results: false,
                begins_with_thinking: is_thinking,
            }),
        }
    }

    /// Returns the turns. The last one is the user's, or the paused answer that the server continues.
    pub(super) fn end(mut self, paused: &[Box<RawValue>]) -> Vec<Turn<'a>> {
        if self.turns.last().is_none_or(|last| last.role != Role::User) {
            let text = if self.turns.is_empty() { "(empty)" } else { "(continue)" };
            self.push(Role::User, Cow::Owned(Block::text(text).json), false);
        }
        for block in paused {
            self.push(Role::Assistant, Cow::Owned(block.clone()), false);
        }
        take(&mut self.turns)
    }
}
