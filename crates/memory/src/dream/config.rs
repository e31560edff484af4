//! Configuration of dreams.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use superstep_agent::{
    ReactConfig,
    config::{
        AtLimit, Budget, ContextConfig, ContextLayer, Limit, LimitUnit, PermissionRule, Permit, ToolMode,
    },
};

use super::{cursor::DreamCursor, prompt::DREAM};
use crate::Unread;

/// The conditions and limits of a dream.
///
/// ```
/// # use superstep_memory::DreamConfig;
/// let config: DreamConfig = serde_json::from_str(r#"{ "turns": 10 }"#)?;
/// assert_eq!((config.turns, config.after.as_secs()), (10, 30 * 60));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DreamConfig {
    /// Number of waiting turns that make a dream due; more than one dream takes does so as well.
    pub turns: usize,
    /// Age in milliseconds of the oldest waiting turn that makes a dream due. It is also the minimum delay
    /// after a failed dream.
    #[serde(rename = "after_ms", with = "millis")]
    pub after: Duration,
    /// Maximum number of turns of one dream. The others wait for the next one.
    pub most_turns: usize,
    /// Maximum size of their lines in bytes, except for a single longer line.
    pub most_bytes: u64,
    /// Maximum number of tool rounds.
    pub steps: u32,
    /// The budget of one dream.
    pub budget: Budget,
    /// The system prompt. `MEMORY.md` is the edited file.
    pub prompt: String,
}

impl Default for DreamConfig {
    /// Returns three turns, or half an hour; at most 50 turns and 64 KiB, in 20 rounds and 200,000 tokens.
    fn default() -> Self {
        Self {
            turns: 3,
            after: Duration::from_secs(30 * 60),
            most_turns: 50,
            most_bytes: 64 << 10,
            steps: 20,
            budget: Budget { tokens: Some(200_000), ..Budget::default() },
            prompt: DREAM.to_owned(),
        }
    }
}

/// The reason why a dream is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// Enough turns wait.
    Turns,
    /// A turn has waited long enough.
    Time,
    /// Requested by the caller.
    Asked,
}

impl DreamConfig {
    /// Returns the reason why a dream is due, given the unread turns.
    pub(super) fn due(&self, unread: &Unread, cursor: &DreamCursor, now_ms: i64) -> Option<Due> {
        let oldest = unread.turns.first()?;
        if self.rests(cursor, now_ms) {
            return None;
        }
        // More turns than one dream takes suffice.
        if unread.turns.len() >= self.turns || unread.more {
            return Some(Due::Turns);
        }
        // Not by the age of the last dream: the first message after a break would start a dream of a single turn, and
        // the reply would wait for it.
        self.is_over(oldest.at_ms, now_ms).then_some(Due::Time)
    }

    /// Returns whether the last dream failed too recently.
    pub(super) fn rests(&self, cursor: &DreamCursor, now_ms: i64) -> bool {
        // The cause is probably still present, and each attempt costs as much as a dream. A dream that a crash ended
        // did not fail, and is resumed at once.
        cursor.last.as_ref().is_some_and(|last| last.is_to_rest() && !self.is_over(last.at_ms, now_ms))
    }

    fn is_over(&self, since_ms: i64, now_ms: i64) -> bool {
        u128::try_from(now_ms.saturating_sub(since_ms)).is_ok_and(|passed| passed > self.after.as_millis())
    }

    /// Returns the number of turns to read, which suffices to decide whether a dream is due.
    pub(super) fn most_turns(&self) -> usize {
        self.most_turns.max(1)
    }

    /// Returns the configuration of the inner agent: `base`'s model settings, and its own for the rest.
    pub(super) fn agent(&self, base: &ReactConfig) -> ReactConfig {
        let own = ReactConfig::default();
        let keeps = |layer: &ContextLayer| !matches!(layer, ContextLayer::Consolidate { .. });
        let allow = |tool| PermissionRule::new(tool, Permit::Allow);
        ReactConfig {
            system_prompt: self.prompt.clone(),
            limit: Limit { max: self.steps, unit: LimitUnit::ToolRounds, at: AtLimit::LastMessage },
            // Of several edits of one file, each sees the result of the one before.
            tool_mode: ToolMode::Sequential,
            permissions: vec![allow("read_file"), allow("edit_file")],
            budget: self.budget.clone(),
            context: ContextConfig {
                window: base.context.window,
                layers: own.context.layers.iter().filter(|layer| keeps(layer)).cloned().collect(),
                ..own.context
            },
            retry: base.retry,
            tool_timeout: base.tool_timeout,
            cancel_grace: base.cancel_grace,
            text_calls: base.text_calls,
            ..own
        }
    }
}

/// A time as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superstep_agent::{AgentOutcome, deps::TurnRecord};

    use crate::{HistoryPlace, dream::cursor::LastDream};

    const MINUTE: i64 = 60_000;

    fn turn(at_ms: i64) -> TurnRecord {
        TurnRecord {
            id: "x".into(),
            thread: String::new(),
            user_id: String::new(),
            at_ms,
            user: String::new(),
            reply: String::new(),
            outcome: AgentOutcome::Completed,
            tools_used: Vec::new(),
        }
    }

    fn due(ended: &[i64], last: Option<LastDream>, now_ms: i64) -> Option<Due> {
        let turns: Vec<_> = ended.iter().map(|at| turn(*at)).collect();
        let unread = Unread { turns, ..Unread::default() };
        let cursor = DreamCursor { read: HistoryPlace::default(), last };
        DreamConfig::default().due(&unread, &cursor, now_ms)
    }

    #[test]
    fn a_dream_is_due_after_more_than_half_an_hour_or_with_three_turns() {
        assert_eq!(due(&[], None, 90 * MINUTE), None);
        assert_eq!(due(&[5], None, 30 * MINUTE + 5), None);
        assert_eq!(due(&[5], None, 30 * MINUTE + 6), Some(Due::Time));
        assert_eq!(due(&[5, 7], None, 8), None);
        assert_eq!(due(&[5, 7, 7], None, 8), Some(Due::Turns));
        // The oldest one counts, even if the clock was set back.
        assert_eq!(due(&[5, 29 * MINUTE], None, 30 * MINUTE + 6), Some(Due::Time));
        assert_eq!(due(&[i64::MAX], None, i64::MIN), None);
        assert_eq!(due(&[i64::MIN], None, i64::MAX), Some(Due::Time));
    }

    #[test]
    fn a_dream_that_failed_is_not_tried_again_at_once() {
        let last = |end: &str| Some(LastDream { at_ms: 10, end: end.to_owned() });
        let three = [1, 2, 3];
        for end in ["limit", "llm_error", "failed: the disk is full"] {
            assert_eq!(due(&three, last(end), 30 * MINUTE + 10), None, "{end}");
            assert_eq!(due(&three, last(end), 30 * MINUTE + 11), Some(Due::Turns), "{end}");
        }
        for end in ["completed", "cancelled"] {
            assert_eq!(due(&three, last(end), 11), Some(Due::Turns), "{end}");
        }
    }
}
