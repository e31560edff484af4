//! What can be chosen about the agent.
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

/// Everything that the designs of a ReAct loop disagree on.
///
/// A preset is a value of it: take one, and change what you like. It is serializable; [`ReactConfig::read`] reads one of which
/// only some fields are given.
///
/// ```
/// # use superstep_agent::{Limit, ReactConfig, ToolMode};
/// let config = ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..ReactConfig::graph(25) };
/// assert_eq!(config.limit.max, 25);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReactConfig {
    /// What stands before the conversation in every request; empty for nothing.
    pub system_prompt: String,
    /// How long a turn may go on.
    pub limit: Limit,
    /// When a failed model request is sent again.
    pub retry: ModelRetry,
    /// What becomes of a turn whose model cannot be asked.
    pub exhausted: Exhausted,
    /// What is done about an answer that the output limit cut off.
    pub length: LengthPolicy,
    /// What is done about an answer without text and calls.
    pub empty: EmptyPolicy,
    /// How the tool calls of one answer are executed.
    pub tool_mode: ToolMode,
    /// In which order their results are stored.
    pub result_order: ResultOrder,
    /// What is done about a tool that fails.
    pub tool_errors: ToolErrors,
    /// Which calls may run, and about which somebody is asked; the last rule that is about a call counts.
    pub permissions: Vec<PermissionRule>,
    /// What asking about a call does to the others, and denying it to the turn.
    pub approval: ApprovalConfig,
    /// How long one tool call may take, in milliseconds; `None` for any time.
    #[serde(rename = "tool_timeout_ms", with = "optional_ms")]
    pub tool_timeout: Option<Duration>,
    /// How long a tool may take to return after it was told to stop, in milliseconds. Then it is dropped.
    #[serde(rename = "cancel_grace_ms", with = "ms")]
    pub cancel_grace: Duration,
    /// What is done about long tool results.
    pub truncate: Option<Truncate>,
    /// How many images and audio of tool results are stored and sent.
    #[serde(default)]
    pub media: MediaConfig,
    /// How large requests may be, and what is done about longer conversations.
    pub context: ContextConfig,
    /// When the model is held to repeat itself, and what is done about it.
    pub loops: Vec<LoopRule>,
    /// What a turn may cost.
    pub budget: Budget,
    /// How a turn gets its reply.
    pub finish: Finish,
    /// Whether a tool's name that is wrong in case or punctuation only, and arguments that are fenced or otherwise wrapped, are
    /// taken for what they mean. An event says so.
    pub repair: bool,
    /// Whether tool calls are found that a model wrote as text; see
    /// [`ReadsTextCalls`](superstep_llm::ReadsTextCalls). For servers that do not know their model's way to write them.
    pub text_calls: bool,
    /// Whether the text of an answer that broke off permanently, or that was cancelled, is kept as a message that is marked as
    /// interrupted. Its tool calls are not, unless it was cancelled.
    pub keep_partial: bool,
    /// Whether the same holds for an answer that was cancelled, or that ended with the time of the turn, and for no other: what
    /// the user has read is then part of the conversation. Calls that were complete are answered as interrupted.
    pub keep_interrupted: bool,
    /// What the model is told with each request that offers tools, as if the user said it: `{left}` is how many steps are left,
    /// this one included, and `{max}` how many there were. Part of requests, not of the conversation.
    pub remaining_hint: Option<String>,
    /// What the model reads, as if the user said it, after each round of tools. Stored as part of the
    /// conversation, as a message that is `synthetic`.
    pub synthetic_after_tools: Option<String>,
    /// What the assistant says when a turn is cancelled; `None` for nothing.
    pub halt: Option<String>,
    /// Whether the state has the parts of each answer, see [`Part`](crate::Part).
    pub parts: bool,
    /// What is looked up before the first model call of a turn.
    pub retrieve: Option<Retrieve>,
    /// How long the memory may take, and knowledge, in milliseconds.
    #[serde(rename = "memory_timeout_ms", with = "ms")]
    pub memory_timeout: Duration,
}

impl ReactConfig {
    /// Reads a configuration of which only some fields are given: the others are those of the preset that the entry `preset`
    /// names, or of `default`. `limit`, `retry`, `approval`, `truncate`, `media`, `context`, `budget`, `finish` and `retrieve`
    /// may be given in part as well. `false` switches off what can be without a value.
    ///
    /// ```
    /// # use superstep_agent::ReactConfig;
    /// let given = serde_json::json!({ "preset": "harness", "limit": { "max": 5 }, "truncate": false });
    /// let config = ReactConfig::read(given)?;
    /// assert_eq!((config.limit.max, config.truncate), (5, None));
    /// # Ok::<(), superstep_agent::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`] if there is no such preset or field, or a value does not fit.
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

    /// How many supersteps a turn can take at the most.
    pub(crate) fn most_supersteps(&self) -> u32 {
        let repeats = match self.length {
            LengthPolicy::Continue { max, .. } => max,
            LengthPolicy::Accept => 0,
        };
        let empties = match self.empty {
            EmptyPolicy::Retry { max, .. } => max.saturating_add(1),
            EmptyPolicy::Accept => 0,
        };
        // Before each answer there may be two tries of a summary, and one more after the provider found the request too long.
        let room = if self.context.layers.is_empty() { 1 } else { 8 };
        let rounds = self.limit.max.saturating_add(3).saturating_mul(room);
        let answers = repeats.saturating_add(empties).saturating_add(self.finish.retries).saturating_add(2);
        rounds.saturating_mul(answers).saturating_add(9).saturating_add(steered::MOST)
    }
}

/// The configuration with what is given instead of its own.
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

/// Which of the given fields does not fit, as a path in backticks and a colon; nothing if its name alone is wrong, for the error
/// has that. serde tells no places, so each part is tried by itself.
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

/// What serde says, without the names that only Rust has for numbers.
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

/// Sets a field. Where there is no flag, `false` stands for no value, which TOML has no word for.
fn set(field: &mut Value, value: Value) {
    *field = match value {
        Value::Bool(false) if !field.is_boolean() => Value::Null,
        value => value,
    };
}

/// The fields that have fields of their own. All others are replaced as a whole.
const TABLES: [&str; 9] =
    ["limit", "retry", "approval", "truncate", "media", "context", "budget", "finish", "retrieve"];

/// A configuration that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It is something else than fields with values.
    #[error("a configuration is a table of fields")]
    NoTable,
    /// There is no such preset.
    #[error("there is no preset `{name}`; there are {}", PRESETS.map(|preset| preset.name).join(", "))]
    UnknownPreset {
        /// The name that was given.
        name: String,
    },
    /// A field is unknown, or its value does not fit.
    #[error("{place}{}", in_words(problem))]
    Field {
        /// Where, as a path in backticks and a colon; empty if the problem says it.
        place: String,
        /// What is wrong.
        problem: serde_json::Error,
    },
}

/// A time as whole milliseconds.
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

/// The same, if there is one.
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
