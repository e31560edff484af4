//! How tools are executed.

use serde::{Deserialize, Serialize};

/// How the tool calls of one answer are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToolMode {
    /// One after the other.
    Sequential,
    /// At the same time, up to a number of them.
    Parallel {
        /// How many at most; 0 counts as 1.
        max: usize,
    },
}

/// In which order the results of one answer's calls are stored. Their events come as the tools return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultOrder {
    /// In the order of the calls.
    Call,
    /// In the order in which the tools return, which two runs need not share. For designs that want it so.
    Completion,
}

/// Cuts long tool results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
