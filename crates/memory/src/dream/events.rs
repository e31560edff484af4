//! The events of a dream.
//!
//! Start at [`DreamEvent`].

use serde::{Deserialize, Serialize};
use superstep_agent::{AgentEvent, AgentOutcome};
use superstep_graph::{Cx, Event, State};

use super::config::Due;

/// An event of a dream, for [`Dreams::listener`](crate::Dreams::listener).
///
/// # JSON
/// `{"event": NAME, "data": {..}}` with the variant's name in snake case and its fields, or the form of the [`AgentEvent`]; this
/// form is a promise.
///
/// ```
/// # use superstep_memory::{DreamEvent, Due};
/// let event = DreamEvent::DreamBegun { why: Due::Turns, turns: 3 };
/// let json = r#"{"event":"dream_begun","data":{"why":"turns","turns":3}}"#;
/// assert_eq!(serde_json::to_string(&event)?, json);
/// assert_eq!(serde_json::from_str::<DreamEvent>(json)?, event);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
#[non_exhaustive]
pub enum DreamEvent {
    /// A dream begins.
    DreamBegun {
        /// The reason why it is due.
        why: Due,
        /// The number of its turns.
        turns: usize,
    },
    /// A dream ended.
    DreamEnded {
        /// The end of the dream.
        outcome: DreamEnd,
        /// The number of its turns.
        turns: usize,
        /// True if its turns count as read.
        settled: bool,
    },
    /// A dream did not start, or failed.
    DreamFailed {
        /// The user.
        user: String,
        /// The cause.
        reason: String,
    },
    /// An event of the agent that dreams.
    #[serde(untagged)]
    Agent(Box<AgentEvent>),
}

/// The end of a dream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DreamEnd {
    /// The model finished after a failed call.
    LastCallFailed,
    /// The model finished without an edit.
    NothingChanged,
    /// The dream has not ended.
    Unfinished,
    /// Every other end: the outcome of the agent.
    #[serde(untagged)]
    Outcome(AgentOutcome),
}

impl DreamEnd {
    /// Returns the name that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LastCallFailed => "last_call_failed",
            Self::NothingChanged => "nothing_changed",
            Self::Unfinished => "unfinished",
            Self::Outcome(outcome) => outcome.as_str(),
        }
    }
}

impl DreamEvent {
    /// Reads an event of a stream; `None` for everything that is neither an event of a dream nor of its agent.
    pub fn of<S: State>(event: &Event<S>) -> Option<Self> {
        event.custom()?.read().ok()
    }

    /// The name in the JSON form.
    pub fn name(&self) -> &'static str {
        match self {
            Self::DreamBegun { .. } => "dream_begun",
            Self::DreamEnded { .. } => "dream_ended",
            Self::DreamFailed { .. } => "dream_failed",
            Self::Agent(event) => event.name(),
        }
    }

    /// Emits the event as a custom event of a node.
    pub(super) fn emit(&self, cx: &Cx) {
        cx.emit_with(|| {
            let mut event = serde_json::to_value(self).expect("an event has a JSON form");
            (self.name(), event["data"].take())
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_event_has_a_stable_json_form_and_is_read_from_it() {
        let user = String::from("ada");
        let agent = AgentEvent::NodeStart { node: "agent".into() };
        let ended = |outcome| DreamEvent::DreamEnded { outcome, turns: 2, settled: false };
        for (event, json) in [
            (
                DreamEvent::DreamBegun { why: Due::Asked, turns: 2 },
                r#"{"event":"dream_begun","data":{"why":"asked","turns":2}}"#,
            ),
            (
                ended(DreamEnd::NothingChanged),
                r#"{"event":"dream_ended","data":{"outcome":"nothing_changed","turns":2,"settled":false}}"#,
            ),
            (
                ended(DreamEnd::Outcome(AgentOutcome::LlmError)),
                r#"{"event":"dream_ended","data":{"outcome":"llm_error","turns":2,"settled":false}}"#,
            ),
            (
                DreamEvent::DreamFailed { user, reason: "why".into() },
                r#"{"event":"dream_failed","data":{"user":"ada","reason":"why"}}"#,
            ),
            (DreamEvent::Agent(Box::new(agent)), r#"{"event":"node_start","data":{"node":"agent"}}"#),
        ] {
            assert_eq!(serde_json::to_string(&event).unwrap(), json);
            assert_eq!(serde_json::from_str::<DreamEvent>(json).unwrap(), event);
            assert_eq!(serde_json::to_value(&event).unwrap()["event"], event.name());
        }
        let unknown = json!({"event": "mine", "data": {"turns": 1}});
        assert!(serde_json::from_value::<DreamEvent>(unknown).is_err());
        for end in [DreamEnd::LastCallFailed, DreamEnd::NothingChanged, DreamEnd::Unfinished] {
            assert_eq!(serde_json::to_value(end).unwrap(), end.as_str());
        }
    }
}
