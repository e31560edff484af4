//! Recognition of messages that a user sent while a turn ran.

use superstep_llm::Message;

/// Prefix of the ids of such messages.
pub(crate) const STEERED: &str = "steered.";

/// Returns whether the message was sent while a turn ran.
pub(crate) fn is_steered(message: &Message) -> bool {
    message.id.starts_with(STEERED)
}
