//! Execution of tools.

use serde::{Deserialize, Serialize};

/// The execution mode of one response's tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToolMode {
    /// One after the other, in call order. A call that waits for approval blocks the later ones.
    Sequential,
    /// In parallel, up to a maximum. A tool that is [exclusive](superstep_llm::Behaviour::exclusive) runs
    /// after all calls before it and before all calls behind it.
    Parallel {
        /// Maximum number; 0 counts as 1.
        max: usize,
    },
}

/// The handling of a tool that fails, panics or times out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrors {
    /// Return the error to the model and continue.
    #[default]
    FeedBack,
    /// End the turn with stop reason `tool_error`. Concurrent calls are awaited, later ones are not executed.
    Fail,
}

/// The order in which the results of one response's calls are stored. Their events are emitted as the tools
/// return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultOrder {
    /// In the order of the calls.
    Call,
    /// In the order in which the tools return, which may differ between runs. For designs that require it.
    Completion,
}
