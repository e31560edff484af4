//! The redaction of the conversation when a thread is exported as text.

use superstep_graph::checkpoint::text::Redaction;

/// The channels that repeat parts of `messages`: replies, calls, results, a summary, hints, texts that guards check or write.
const COPIES: [&str; 11] = [
    "context",
    "final_reply",
    "guarding",
    "hints",
    "ignored_tool_calls",
    "output",
    "output_problem",
    "parts",
    "tool_call_history",
    "tool_result_history",
    "verdicts",
];

/// Returns a redaction without rules in which a rule for channel `messages`, or a part of it, also replaces the channels of
/// [`AgentState`](crate::AgentState) that repeat the conversation, and a path for a part of its messages what a provider wants back of them.
///
/// ```
/// use superstep_agent::state::conversation;
///
/// let hidden = conversation().channel("messages");
/// ```
pub fn conversation() -> Redaction {
    let shown = ["content", "reasoning", "tool_calls"];
    Redaction::new().copied("messages", COPIES).copied_part("messages", shown, "origin")
}

#[cfg(test)]
mod tests {
    use superstep_graph::State;

    use super::COPIES;
    use crate::AgentState;

    #[test]
    fn the_copies_are_channels() {
        let state = AgentState::default();
        for copy in COPIES {
            assert!(state.channels().iter().any(|channel| channel.name == copy), "{copy}");
        }
    }
}
