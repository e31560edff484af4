//! What can be chosen about the agent.

use std::time::Duration;

use superstep_llm::ModelRetry;

/// Everything that the designs of a ReAct loop disagree on.
///
/// ```
/// # use superstep_agent::{ReactConfig, ToolMode};
/// let config = ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..ReactConfig::graph(25) };
/// ```
#[derive(Clone, Debug)]
pub struct ReactConfig {
    /// What stands before the conversation in every request; empty for nothing.
    pub system_prompt: String,
    /// How many rounds of tool calls a turn may have. After them the model is asked once more, without tools.
    pub max_steps: u32,
    /// When a failed model request is sent again.
    pub retry: ModelRetry,
    /// How the tool calls of one answer are executed.
    pub tool_mode: ToolMode,
    /// How long one tool call may take; `None` for any time.
    pub tool_timeout: Option<Duration>,
    /// How long a tool may take to return after it was told to stop. Then it is dropped.
    pub cancel_grace: Duration,
    /// What is done about long tool results.
    pub truncate: Option<Truncate>,
    /// When the model is held to repeat itself.
    pub loops: Vec<LoopRule>,
    /// How long the memory store may take.
    pub memory_timeout: Duration,
}

/// How the tool calls of one answer are executed. Results stand in call order either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolMode {
    /// One after the other.
    Sequential,
    /// At the same time, up to a number of them.
    Parallel {
        /// How many at most; 0 counts as 1.
        max: usize,
    },
}

/// Cuts long tool results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// How many characters (Unicode scalar values) stay.
    pub max_chars: usize,
    /// What stands after them; `{omitted}` is the number of characters that were cut.
    pub marker: String,
}

impl Truncate {
    /// The text, cut if it is longer than it may be.
    pub fn apply(&self, text: String) -> String {
        let Some((cut, _)) = text.char_indices().nth(self.max_chars) else { return text };
        let omitted = text[cut..].chars().count();
        format!("{}{}", &text[..cut], self.marker.replace("{omitted}", &omitted.to_string()))
    }
}

/// A sign that the model repeats itself.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum LoopRule {
    /// The last `n` calls of the turn went to one tool, with similar arguments and similar results: equal but for case
    /// and white space, or with at least this share of their characters in common and the same numbers.
    Similar {
        /// How many calls, from 2.
        n: usize,
        /// The share, in `0.0..=1.0`.
        threshold: f64,
    },
}

impl ReactConfig {
    /// The preset `graph`: the design whose graph this is. Tools run one after the other, results stay whole, two
    /// similar calls in a row end the turn.
    pub fn graph(max_steps: u32) -> Self {
        Self {
            system_prompt: String::new(),
            max_steps,
            retry: ModelRetry { max_attempts: 3, ..ModelRetry::default() },
            tool_mode: ToolMode::Sequential,
            tool_timeout: None,
            cancel_grace: Duration::from_millis(250),
            truncate: None,
            loops: vec![LoopRule::Similar { n: 2, threshold: 0.9 }],
            memory_timeout: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b15_text_is_cut_only_beyond_its_limit_and_between_characters() {
        let cococat = Truncate { max_chars: 2000, marker: "[truncated {omitted} chars]".into() };
        assert_eq!(cococat.apply("x".repeat(2000)), "x".repeat(2000));
        assert_eq!(cococat.apply("x".repeat(2001)), "x".repeat(2000) + "[truncated 1 chars]");
        assert_eq!(cococat.apply("x".repeat(5000)), "x".repeat(2000) + "[truncated 3000 chars]");
        assert_eq!(cococat.apply("é".repeat(2001)), "é".repeat(2000) + "[truncated 1 chars]");
        let harness = Truncate { max_chars: 16_000, marker: "\n... truncated".into() };
        assert_eq!(harness.apply("x".repeat(16_000)), "x".repeat(16_000));
        assert_eq!(harness.apply("x".repeat(16_001)), "x".repeat(16_000) + "\n... truncated");
    }
}
