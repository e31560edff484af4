//! When a model is held to repeat itself.

use serde::{Deserialize, Serialize};

/// A sign that the model repeats itself, and what is done about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopRule {
    /// The sign.
    pub when: Repeat,
    /// What is done.
    pub then: LoopAction,
}

/// A sign that the model repeats itself. Calls are compared over all rounds of a turn, but equal calls of one answer are one
/// try until the model has read what came of them. A call that was refused as a repetition repeats whatever it would have given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Repeat {
    /// The last `n` calls went to one tool with equal arguments, whatever the order of their fields. Seen before the last of
    /// them is executed.
    Identical {
        /// How many calls, from 2.
        n: usize,
    },
    /// The last `n` calls went to one tool, with similar arguments and similar results: equal but for case and white space,
    /// or with at least this share of their characters in common and the same numbers; arguments also with the same words.
    /// What failed is similar only if the arguments are equal: another path is another try.
    Similar {
        /// How many calls, from 2.
        n: usize,
        /// The share, in `0.0..=1.0`.
        threshold: f64,
    },
    /// The last `n` calls went to one tool with equal arguments, and since the first of them no result was a text that had not
    /// been there before.
    NoProgress {
        /// How many calls, from 2.
        n: usize,
    },
    /// The last calls are a pattern of at most `max_period` calls, with equal arguments and results, `repeats` times.
    Period {
        /// The longest pattern, from 2.
        max_period: usize,
        /// How many times, from 2.
        repeats: usize,
    },
}

impl Repeat {
    /// The name of the rule in events.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Identical { .. } => "identical",
            Self::Similar { .. } => "similar",
            Self::NoProgress { .. } => "no_progress",
            Self::Period { .. } => "period",
        }
    }
}

/// What is done about a model that repeats itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LoopAction {
    /// The model is told so in its next request.
    Warn,
    /// The call that would repeat it once more is not executed, its result says why.
    Refuse,
    /// The model is asked once more, without tools, so that there is an answer. Then the turn ends with stop reason
    /// `loop_detected`.
    Answer,
    /// The turn ends at once with stop reason `loop_detected`.
    Stop,
}
