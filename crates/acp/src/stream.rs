//! Conversions between the agent and the protocol that need no session.

mod joiner;
mod prompt;
mod tools;
mod turn;

pub use joiner::Joiner;
pub use prompt::{PromptCommand, PromptContent, PromptMedia, available_commands};
pub use tools::{fenced, text_content, tool_kind};
pub use turn::{Choice, choice, permission_options, stop_reason};
