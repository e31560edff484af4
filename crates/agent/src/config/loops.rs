//! Detection of a model that repeats itself.

use serde::{Deserialize, Serialize};

/// A sign of repetition, and the action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopRule {
    /// The sign.
    pub when: Repeat,
    /// The action.
    pub then: LoopAction,
}

/// A sign that the model repeats itself. Calls are compared over all rounds of a turn. Equal calls of one
/// response count once until the model has read their results. A call refused as a repetition counts as one,
/// regardless of its result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Repeat {
    /// The last `n` calls used one tool with equal arguments, regardless of field order. Detected before the
    /// last of them is executed.
    Identical {
        /// Number of calls, at least 2.
        n: usize,
    },
    /// The last `n` calls used one tool with similar arguments and similar results. Texts are similar if they
    /// are equal except for case and white space, or share at least this fraction of their characters and the
    /// same numbers; arguments must also have the same words. Failed calls are similar only if their
    /// arguments are equal, because another path is another attempt.
    Similar {
        /// Number of calls, at least 2.
        n: usize,
        /// The fraction, in `0.0..=1.0`.
        threshold: f64,
    },
    /// The last `n` calls used one tool with equal arguments, and no result since the first of them was new.
    NoProgress {
        /// Number of calls, at least 2.
        n: usize,
    },
    /// The last calls repeat a pattern of at most `max_period` calls, with equal arguments and results,
    /// `repeats` times.
    Period {
        /// Length of the longest pattern, at least 2.
        max_period: usize,
        /// Number of repetitions, at least 2.
        repeats: usize,
    },
}

impl Repeat {
    /// Returns the name of the rule in events.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Identical { .. } => "identical",
            Self::Similar { .. } => "similar",
            Self::NoProgress { .. } => "no_progress",
            Self::Period { .. } => "period",
        }
    }
}

/// The action on a model that repeats itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LoopAction {
    /// Warn the model in its next request.
    Warn,
    /// Refuse the call that would repeat once more; its result gives the reason.
    Refuse,
    /// Call the model once more without tools, so that there is a reply. Then end the turn with stop reason
    /// `loop_detected`.
    Answer,
    /// End the turn at once with stop reason `loop_detected`.
    Stop,
}
