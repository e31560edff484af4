//! Notices: facts about a turn beside its conversation.
//!
//! Start at [`notice`].

use std::time::Duration;

use superstep::agent::{AgentEvent, guards::GuardAt};

use crate::{
    live::event::Level,
    text::{count, printable_line, short_time},
};

/// A fact about a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The weight.
    pub level: Level,
    /// The kind in a word of snake case.
    pub code: &'static str,
    /// The text, of printable characters.
    pub text: String,
    /// `true` if the call before it is meant.
    pub of_call: bool,
}

impl Notice {
    pub(super) fn new(level: Level, code: &'static str, text: impl Into<String>) -> Self {
        Self { level, code, text: text.into(), of_call: false }
    }
}

/// Returns what an event of the agent reports beside the conversation, its calls and its files.
pub fn notice(event: &AgentEvent) -> Option<Notice> {
    use Level::{Info, Warning};
    let (level, text) = match event {
        AgentEvent::Retry { delay_ms, reason, .. } => {
            (Info, format!("{reason}; retrying in {}", short_time(Duration::from_millis(*delay_ms))))
        }
        AgentEvent::ModelFallback { from, to, reason, .. } => {
            (Warning, format!("{from} failed: {reason}; calling {to}"))
        }
        AgentEvent::ReasoningDropped { reason, .. } => {
            (Info, format!("reasoning of earlier answers is left out: {reason}"))
        }
        AgentEvent::AttemptDiscarded { .. } => {
            (Warning, "the response was aborted, and its text so far is discarded".to_owned())
        }
        AgentEvent::Spilled { path, .. } => (Info, format!("the whole result is in {path}")),
        AgentEvent::SpillFailed { reason, .. } => {
            (Warning, format!("the rest of the result is lost: {reason}"))
        }
        AgentEvent::SnapshotFailed { reason } => {
            (Warning, format!("files that tools change cannot be restored later: {reason}"))
        }
        AgentEvent::TruncatedAnswer {} => {
            (Warning, "the response reached the model's output limit".to_owned())
        }
        AgentEvent::TextCalls { n, .. } => (Info, format!("the text contained {}", count(*n, "tool call"))),
        AgentEvent::Compacted { before, after, over, .. } => (Info, shortened(*before, *after, *over)),
        AgentEvent::CompactionPaused {} => {
            (Info, "compaction is disabled for this turn, because summaries are not shorter".to_owned())
        }
        AgentEvent::Handoff { to, reason, .. } if to.is_empty() => {
            (Info, format!("the conversation goes back to the first agent: {reason}"))
        }
        AgentEvent::Handoff { to, reason, .. } => {
            (Info, format!("the conversation is transferred to {to}: {reason}"))
        }
        AgentEvent::Guardrail { guard, action, .. } if action == "rewrite" => {
            (Warning, format!("the guardrail {guard} changed the text"))
        }
        AgentEvent::Guardrail { guard, at, reason, .. } => {
            let what = if *at == GuardAt::Tool { "a tool call" } else { "the turn" };
            match reason.as_str() {
                "" => (Warning, format!("the guardrail {guard} blocked {what}")),
                _ => (Warning, format!("the guardrail {guard} failed and blocked {what}: {reason}")),
            }
        }
        AgentEvent::BudgetWarning { budget, percent } => {
            (Warning, format!("{percent} % of the turn's budget is used ({budget})"))
        }
        AgentEvent::ToolRepaired { from, to, .. } => {
            (Info, format!("the model wrote `{from}` and means {to}"))
        }
        AgentEvent::ArgsRepaired { tool, .. } => (Info, format!("repaired the arguments of {tool}")),
        AgentEvent::Loop { tool, .. } => (Warning, format!("the model repeats itself with {tool}")),
        AgentEvent::Retrieved { memories, passages, .. } => {
            (Info, format!("retrieved memories: {memories}, passages: {passages}"))
        }
        AgentEvent::RetrievalFailed { source, reason } => {
            (Warning, format!("{source} could not be searched: {reason}"))
        }
        AgentEvent::InstructionsLoaded { path, bytes } => (Info, format!("read {path}, {bytes} bytes")),
        AgentEvent::InstructionsSkipped { path, reason } => (Warning, format!("{path} {reason}")),
        AgentEvent::TurnNotRecorded { reason } => {
            (Warning, format!("the turn could not be recorded: {reason}"))
        }
        AgentEvent::MemoryStored {} => (Info, "stored a memory; see `superstep memory list`".to_owned()),
        AgentEvent::MemoryFailed { reason } => (Warning, format!("the memory failed: {reason}")),
        _ => return None,
    };
    let of_call = matches!(
        event,
        AgentEvent::Spilled { .. } | AgentEvent::SpillFailed { .. } | AgentEvent::SnapshotFailed { .. }
    );
    // Names and reasons come from models and servers, and must not look like other lines of a shell.
    Some(Notice { level, code: event.name(), text: printable_line(&text), of_call })
}

fn shortened(before: u64, after: u64, over: u64) -> String {
    let excess = if over > 0 { format!(", still {over} too many") } else { String::new() };
    format!("the conversation was shortened for the model: {before} → {after} tokens{excess}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_still_too_long_is_reported() {
        assert_eq!(shortened(9, 5, 0), "the conversation was shortened for the model: 9 → 5 tokens");
        assert_eq!(
            shortened(9, 5, 1),
            "the conversation was shortened for the model: 9 → 5 tokens, still 1 too many"
        );
    }
}
