//! Configuration of the agent.
//!
//! Start at [`ReactConfig`].

mod answers;
mod approval;
mod budget;
mod context;
mod finish;
mod limit;
mod loops;
mod media;
mod permissions;
mod presets;
mod retrieve;
mod single_round;
mod tools;
mod truncate;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use superstep_llm::ModelRetry;

use crate::nodes::steered;

pub use answers::{AfterEmpty, EmptyPolicy, Exhausted, LengthPolicy};
pub use approval::ApprovalConfig;
pub use budget::{Budget, Cost};
pub(crate) use context::share;
pub use context::{Breaker, ContextBudget, ContextConfig, ContextLayer};
pub use finish::{Finish, FinishBy, OutputMode};
pub use limit::{AtLimit, Limit, LimitUnit};
pub use loops::{LoopAction, LoopRule, Repeat};
pub use media::MediaConfig;
pub use permissions::{PermissionRule, Permit};
pub(crate) use permissions::{decided, denying};
pub use presets::{PRESETS, Preset};
pub use retrieve::Retrieve;
pub use tools::{ResultOrder, ToolErrors, ToolMode};
pub use truncate::{Keep, Truncate};

/// The behaviour of the ReAct loop: every choice on which designs differ.
///
/// A preset is a value of this type: take one and change fields. It is serializable; [`ReactConfig::read`]
/// reads a partial configuration.
///
/// ```
/// # use superstep_agent::{Limit, ReactConfig, ToolMode};
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
    #[serde(rename = "tool_timeout_ms", with = "optional_ms")]
    pub tool_timeout: Option<Duration>,
    /// The time in milliseconds that a cancelled tool has to return before it is dropped.
    #[serde(rename = "cancel_grace_ms", with = "ms")]
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
    /// Repairs tool names that are wrong in case or punctuation only, and arguments that are fenced or
    /// otherwise wrapped. An event reports each repair.
    pub repair: bool,
    /// Parses tool calls that a model wrote as text; see [`ReadsTextCalls`](superstep_llm::ReadsTextCalls).
    /// Meant for servers that do not parse their model's format.
    pub text_calls: bool,
    /// Stores the text of a permanently failed or cancelled response as a message marked as interrupted. Its
    /// tool calls are stored only if it was cancelled.
    pub keep_partial: bool,
    /// Does the same only for a response that was cancelled or exceeded the turn's time: the text the user
    /// has read becomes part of the conversation. Its complete calls get results that say they were
    /// interrupted.
    pub keep_interrupted: bool,
    /// A user message added to each request that offers tools. `{left}` is the number of steps left,
    /// including this one, and `{max}` the maximum. Part of requests, not of the conversation.
    pub remaining_hint: Option<String>,
    /// A user message added after each round of tools. Stored in the conversation as a `synthetic` message.
    pub synthetic_after_tools: Option<String>,
    /// The assistant's reply when a turn is cancelled; `None` for none.
    pub halt: Option<String>,
    /// Records the parts of each response in the state; see [`Part`](crate::Part).
    pub parts: bool,
    /// The retrieval before the first model call of a turn.
    pub retrieve: Option<Retrieve>,
    /// The time limit of the memory and of each knowledge, in milliseconds.
    #[serde(rename = "memory_timeout_ms", with = "ms")]
    pub memory_timeout: Duration,
}

impl ReactConfig {
    /// Reads a partial configuration. Missing fields are those of the preset that the entry `preset` names,
    /// or of `default`. `limit`, `retry`, `approval`, `truncate`, `media`, `context`, `budget`, `finish` and
    /// `retrieve` may be partial as well. `false` disables an optional field.
    ///
    /// ```
    /// # use superstep_agent::ReactConfig;
    /// let given = serde_json::json!({ "preset": "harness", "limit": { "max": 5 }, "truncate": false });
    /// let config = ReactConfig::read(given)?;
    /// assert_eq!((config.limit.max, config.truncate), (5, None));
    /// # Ok::<(), superstep_agent::ConfigError>(())
    /// ```
    ///
    /// # Errors    [`ConfigError`] if there is no such preset or field, or a value is not valid.
    pub fn read(given: Value) -> Result<Self, ConfigError> {
        let Value::Object(mut given) = given else { return Err(ConfigError::NoTable) };
        let base = match given.remove("preset") {
            None => Self::default(),
            Some(Value::String(name)) => Self::preset(&name).ok_or(ConfigError::UnknownPreset { name })?,
            Some(other) => return Err(ConfigError::UnknownPreset { name: other.to_string() }),
        };
        over(&base, given.clone())
            .map_err(|problem| ConfigError::Field { place: misfit(&base, given), problem })
    }

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
        rounds.saturating_mul(answers).saturating_add(9).saturating_add(steered::MOST)
    }
}

/// Overlays the given fields on the base configuration.
fn over(base: &ReactConfig, given: Map<String, Value>) -> Result<ReactConfig, serde_json::Error> {
    let mut config = serde_json::to_value(base)?;
    let fields = config.as_object_mut().expect("a struct becomes an object");
    for (name, value) in given {
        let is_table = TABLES.contains(&name.as_str());
        let field = fields.entry(name).or_insert(Value::Null);
        match (field, value) {
            (Value::Object(field), Value::Object(value)) if is_table => {
                for (name, value) in value {
                    set(field.entry(name).or_insert(Value::Null), value);
                }
            }
            (field, value) => set(field, value),
        }
    }
    serde_json::from_value(config)
}

/// Returns the path of the field that is not valid, in backticks with a colon; empty if the name itself is
/// wrong, because the error names it. serde reports no paths, so each part is parsed separately.
fn misfit(base: &ReactConfig, given: Map<String, Value>) -> String {
    let fits = |name: &str, value: Value| over(base, Map::from_iter([(name.to_owned(), value)])).is_ok();
    let Some((name, value)) = given.into_iter().find(|(name, value)| !fits(name, value.clone())) else {
        return String::new();
    };
    let known = serde_json::to_value(base).unwrap_or_default();
    match (value, known.get(&name)) {
        (_, None) => String::new(),
        (Value::Object(parts), Some(Value::Object(known))) if TABLES.contains(&name.as_str()) => {
            let wrong = parts.into_iter().find(|(part, value)| {
                !fits(&name, Value::Object(Map::from_iter([(part.clone(), value.clone())])))
            });
            match wrong.filter(|(part, _)| known.contains_key(part)) {
                Some((part, _)) => format!("`{name}.{part}`: "),
                None => format!("`{name}`: "),
            }
        }
        (Value::Array(entries), _) => {
            let wrong = entries.into_iter().position(|entry| !fits(&name, Value::Array(vec![entry])));
            wrong.map_or(format!("`{name}`: "), |at| format!("`{name}`, entry {}: ", at + 1))
        }
        _ => format!("`{name}`: "),
    }
}

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

/// Sets a field. `false` stands for no value in an optional field, because TOML has no null.
fn set(field: &mut Value, value: Value) {
    *field = match value {
        Value::Bool(false) if !field.is_boolean() => Value::Null,
        value => value,
    };
}

/// The fields that are tables and merge field by field. All others are replaced as a whole.
const TABLES: [&str; 9] =
    ["limit", "retry", "approval", "truncate", "media", "context", "budget", "finish", "retrieve"];

/// An error in a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The value is not a table.
    #[error("a configuration is a table of fields")]
    NoTable,
    /// The preset is unknown.
    #[error("there is no preset `{name}`; there are {}", PRESETS.map(|preset| preset.name).join(", "))]
    UnknownPreset {
        /// The given name.
        name: String,
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

/// Serializes a duration as whole milliseconds.
pub(crate) mod ms {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// Serializes an optional duration as whole milliseconds.
mod optional_ms {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::ms::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}
