//! How tools are executed.

use serde::{Deserialize, Serialize};

/// How the tool calls of one answer are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToolMode {
    /// One after the other, in call order: while one waits to be approved, so do the later ones.
    Sequential,
    /// At the same time, up to a number of them. A tool that is [exclusive](superstep_llm::Behaviour::exclusive) runs after all
    /// calls before it and before all calls behind it.
    Parallel {
        /// How many at most; 0 counts as 1.
        max: usize,
    },
}

/// What is done about a tool that fails, panics or takes too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrors {
    /// The model reads why, and goes on.
    #[default]
    FeedBack,
    /// The turn ends with stop reason `tool_error`. Calls that run beside it are waited for, later ones are not executed.
    Fail,
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
