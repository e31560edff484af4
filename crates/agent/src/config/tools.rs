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
