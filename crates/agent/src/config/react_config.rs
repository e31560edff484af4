//! Configuration of the agent.
//!
//! Start at [`ReactConfig`].

use std::time::Duration;

use serde::{Deserialize, Serialize};
use superstep_llm::ModelRetry;

use super::{
    answers::{EmptyPolicy, Exhausted, LengthPolicy},
    approval::ApprovalConfig,
    budget::Budget,
    context::ContextConfig,
    finish::Finish,
    limit::{Limit, MAX_STEERED},
    loops::LoopRule,
    media::MediaConfig,
    millis::{optional, required},
    retrieve::Retrieve,
    tools::{ResultOrder, ToolErrors, ToolMode},
    truncate::Truncate,
};
use crate::permissions::PermissionRule;

/// The behaviour of the ReAct loop: every choice on which designs differ.
///
/// A preset is a value of this type: take one and change fields. It is serializable; [`ReactConfig::read`]
/// reads a partial configuration.
///
/// ```
/// # use superstep_agent::{ReactConfig, config::{Limit, ToolMode}};
/// let config = ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..ReactConfig::graph(25) };
/// assert_eq!(config.limit.max, 25);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReactConfig {
    /// The system prompt of every request; empty for none.
    pub system_prompt: String,
    /// The step limit of a turn.
    pub limit: Limit,
    /// The retry policy of model requests.
    pub retry: ModelRetry,
    /// The outcome of a turn whose model requests keep failing.
    pub exhausted: Exhausted,
    /// The handling of a response truncated by the output limit.
    pub length: LengthPolicy,
    /// The handling of a response without text and calls.
    pub empty: EmptyPolicy,
    /// The execution mode of one response's tool calls.
    pub tool_mode: ToolMode,
    /// The order in which their results are stored.
    pub result_order: ResultOrder,
    /// The handling of failed tools.
    pub tool_errors: ToolErrors,
    /// The permission rules for calls; the last matching rule applies.
    pub permissions: Vec<PermissionRule>,
    /// The effect of a pending approval on other calls, and of a denial on the turn.
    pub approval: ApprovalConfig,
    /// The time limit of one tool call in milliseconds; `None` for no limit.
    #[serde(rename = "tool_timeout_ms", with = "optional")]
    pub tool_timeout: Option<Duration>,
    /// The time in milliseconds that a cancelled tool has to return before it is dropped.
    #[serde(rename = "cancel_grace_ms", with = "required")]
    pub cancel_grace: Duration,
    /// The truncation of long tool results.
    pub truncate: Option<Truncate>,
    /// The limits for images and audio of tool results.
    #[serde(default)]
    pub media: MediaConfig,
    /// The size of requests, and the reduction of longer conversations.
    pub context: ContextConfig,
    /// The rules that detect a model repeating itself, and their actions.
    pub loops: Vec<LoopRule>,
    /// The budget of a turn.
    pub budget: Budget,
    /// The form of a turn's reply.
    pub finish: Finish,
    /// Repairs names of tools, also of the finish tool, that are wrong in case or punctuation only, and arguments that are fenced
    /// or otherwise wrapped. An event reports each repair.
    pub repair: bool,
    /// Parses tool calls that a model wrote as text; see [`ReadsTextCalls`](superstep_llm::wire::ReadsTextCalls).
    /// Meant for servers that do not parse their model's format.
    pub text_calls: bool,
    /// Stores the text of a permanently failed or cancelled response as a message marked as interrupted. Its
    /// tool calls are stored only if it was cancelled. Has no effect with a post hook around `reasoning`.
    pub keep_partial: bool,
    /// Does the same only for a response that was cancelled or exceeded the turn's time: the text the user
    /// has read becomes part of the conversation. Its complete calls get results that say they were
    /// interrupted. Has no effect with a post hook around `reasoning`.
    pub keep_interrupted: bool,
    /// A user message added to each request that offers tools. `{left}` is the number of steps left,
    /// including this one, and `{max}` the maximum. Part of requests, not of the conversation.
    pub remaining_hint: Option<String>,
    /// A user message added after each round of tools. Stored in the conversation as a `synthetic` message.
    pub synthetic_after_tools: Option<String>,
    /// The assistant's reply when a turn is cancelled; `None` for none.
    pub halt: Option<String>,
    /// Records the parts of each response in the state; see [`Part`](crate::state::Part).
    pub parts: bool,
    /// The retrieval before the first model call of a turn.
    pub retrieve: Option<Retrieve>,
    /// The time limit of the memory and of each knowledge, in milliseconds.
    #[serde(rename = "memory_timeout_ms", with = "required")]
    pub memory_timeout: Duration,
}

impl ReactConfig {
    /// Returns an upper bound of the supersteps of one turn.
    pub(crate) fn most_supersteps(&self) -> u32 {
        let repeats = match self.length {
            LengthPolicy::Continue { max, .. } => max,
            LengthPolicy::Accept => 0,
        };
        let empties = match self.empty {
            EmptyPolicy::Retry { max, .. } => max.saturating_add(1),
            EmptyPolicy::Accept => 0,
        };
        // Each response may follow two attempts of a summary, and a third one after the provider rejected the
        // request as too long.
        let room = if self.context.layers.is_empty() { 1 } else { 8 };
        let rounds = self.limit.max.saturating_add(3).saturating_mul(room);
        let answers = repeats.saturating_add(empties).saturating_add(self.finish.retries).saturating_add(2);
        rounds.saturating_mul(answers).saturating_add(9).saturating_add(MAX_STEERED)
    }
}

/// An error in a configuration.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The value is not a table.
    #[error("a configuration has to be a table of fields")]
    NoTable,
    /// The preset is unknown.
    #[error("unknown preset `{name}`; known presets are {}", .known.join(", "))]
    UnknownPreset {
        /// The given name.
        name: String,
        /// The names of the presets.
        known: Vec<&'static str>,
    },
    /// A field is unknown, or its value is not valid.
    #[error("{place}{}", in_words(problem))]
    Field {
        /// The path in backticks and a colon; empty if the problem names it.
        place: String,
        /// The cause.
        problem: serde_json::Error,
    },
}

superstep_graph::__private::debug_by_chain!(ConfigError);

/// Returns serde's message with Rust's number types replaced by words.
fn in_words(problem: &serde_json::Error) -> String {
    let text = problem.to_string();
    match text.rsplit_once(", expected ") {
        Some((found, "u8" | "u16" | "u32" | "u64" | "usize")) => {
            format!("{found}, expected a whole number from 0 on")
        }
        Some((found, "f32" | "f64")) => format!("{found}, expected a number"),
        _ => text,
    }
}
