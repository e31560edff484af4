//! What the agent remembers from superstep to superstep.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_graph::{ById, IdOf, Log, State};
use superstep_llm::{Message, ModelErrorKind, ToolCall, Usage};

use crate::{Budget, ContextView, FileChanges, HookFailure, Parts, PermissionRule, RequestSize};

/// Where the id of a [`Message`] is.
#[derive(Clone, Copy, Debug)]
pub enum MessageIds {}

impl IdOf<Message> for MessageIds {
    fn id(message: &Message) -> &str {
        &message.id
    }

    fn set_id(message: &mut Message, id: String) {
        message.id = id;
    }
}

/// The conversation.
pub type Messages = ById<Message, MessageIds>;

/// The state of the agent graph.
///
/// `messages`, `context`, `request_size`, `parts`, `files`, `steered`, `offered`, `permissions` and `permitted_in` last as long as the thread,
/// `hints` until they are told, `user_id` and `cwd` until another input writes them; every other channel belongs to one turn and is reset when the next one begins.
#[derive(State, Clone, Debug, Default, PartialEq)]
pub struct AgentState {
    /// The conversation: what users, the model and tools said, without the system prompt.
    #[channel(merge_by_id)]
    pub messages: Messages,
    /// What the model is told once more, as if the user said it: at the end of its next request, and not in the conversation.
    /// They stay until that request is answered.
    #[channel(append)]
    pub hints: Log<String>,
    /// The answers of the model in parts, in order; empty unless [`ReactConfig::parts`](crate::ReactConfig::parts) is on.
    #[channel(merge_by_id)]
    pub parts: Parts,
    /// What the last round of tools that was watched did to the files; see [`Snapshots`](crate::Snapshots).
    pub files: Option<FileChanges>,
    /// The number of the last message in the conversation that was said while a turn ran, see [`steer`](crate::steer()).
    pub steered: u64,
    /// Whose memory is used, see [`LongTermMemory`](crate::LongTermMemory); empty for the thread's own. It stays until another
    /// input writes it.
    pub user_id: String,
    /// The folder that the tools work in, if it is another one than they were made for: given with the input of a turn, and of a
    /// sub-agent by its caller. Canonical once the turn has begun.
    pub cwd: Option<PathBuf>,
    /// What the turn may spend at the most, beside the budget of the configuration: given with the input by an agent that calls
    /// this one.
    pub granted: Option<Budget>,
    /// Rounds of tool calls in this turn.
    pub current_step: u32,
    /// How many rounds there may be.
    pub max_steps: u32,
    /// Model answers that were accepted in this turn.
    pub llm_calls: u32,
    /// Model requests that were sent in this turn, retries included.
    pub model_requests: u32,
    /// Tokens of this turn; estimated where the provider did not tell, see [`LastAnswer::estimated`].
    pub usage: Usage,
    /// The same by the names of the models, once another than the main one was asked in this turn, by sub-agents too; before
    /// that, nothing, but in a turn that another agent asked for, which tells always.
    pub usage_by_model: BTreeMap<String, Usage>,
    /// The name of the model that gave the last answer of this turn, if the main one could not be asked in it; it is asked
    /// first for the next one.
    pub model: String,
    /// When the turn began, if its time is bounded: UTC milliseconds, by the clock of the run.
    pub started_ms: i64,
    /// Every tool call of this turn that was answered, in call order.
    #[channel(append)]
    pub tool_call_history: Log<ToolCallRecord>,
    /// Their results, in the same order, without the paths where the whole of cut ones is kept.
    #[channel(append)]
    pub tool_result_history: Log<String>,
    /// The tools that were executed in this turn, in call order, each as often as it was.
    #[channel(append)]
    pub tools_used: Log<String>,
    /// Calls that a model made although it was offered no tools; never executed.
    #[channel(append)]
    pub ignored_tool_calls: Log<ToolCall>,
    /// What is known of the model's last answer beside its message.
    pub answer: LastAnswer,
    /// Which part of the conversation is sent.
    pub context: ContextView,
    /// How large the last request was.
    pub request_size: RequestSize,
    /// What was permitted for good on this thread.
    #[channel(append)]
    pub permissions: Log<PermissionRule>,
    /// The `cwd` of the turn in which that was permitted. In a turn with another one, the rules that allow do not count.
    pub permitted_in: Option<PathBuf>,
    /// The tools that came from sources, as the last superstep that had others recorded them: a JSON text each, with what the
    /// model is told of it. A replay offers them again, see [`ReplayTools`](crate::ReplayTools).
    pub offered: Log<String>,
    /// Whether the turn is to end now.
    pub stop: bool,
    /// Why the turn ended before the model was done; empty if it was done.
    pub stop_reason: String,
    /// How the turn ended.
    pub outcome: Option<AgentOutcome>,
    /// Why the model could not answer.
    pub error: Option<ModelFailure>,
    /// Which hook failed, if one did.
    pub hook_error: Option<HookFailure>,
    /// The JSON Schema that the reply of this turn is to have, if it is another one than the configuration says. Given with the
    /// input; gone at the end of the turn.
    pub output_schema: Option<Value>,
    /// The reply as the schema has it; `None` if there is no schema, or no such reply.
    pub output: Option<Value>,
    /// What is wrong with the last reply that was not as it is to be; empty if none was.
    pub output_problem: String,
    /// The answer to the user, made at the end of the turn.
    pub final_reply: String,
    /// What the turn took.
    pub metadata: Metadata,
}

/// What is known of the model's last answer, and of those before it in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastAnswer {
    /// Whether it was cut off, so that its tool calls must not be executed.
    #[serde(skip_serializing_if = "is_default")]
    pub cut_off: bool,
    /// How many answers in a row had tool calls and were cut off.
    #[serde(skip_serializing_if = "is_default")]
    pub cut_rounds: u32,
    /// Whether it is a part of a message, which the model is asked to finish.
    #[serde(skip_serializing_if = "is_default")]
    pub continuing: bool,
    /// How often the model was asked to finish a message in this turn.
    #[serde(skip_serializing_if = "is_default")]
    pub continuations: u32,
    /// How many answers in a row were empty and not accepted.
    #[serde(skip_serializing_if = "is_default")]
    pub empty: u32,
    /// Whether the model is to be asked again before anything else happens.
    #[serde(skip_serializing_if = "is_default")]
    pub again: bool,
    /// Why its tool calls must not be executed, if there are no more to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// Whether the reply was given by a call of the finish tool.
    #[serde(skip_serializing_if = "is_default")]
    pub finished: bool,
    /// How often in this turn the reply was not as it is to be.
    #[serde(skip_serializing_if = "is_default")]
    pub invalid: u32,
    /// How often the turn went on because of what the user said meanwhile.
    #[serde(skip_serializing_if = "is_default")]
    pub steered: u32,
    /// Whether the user was told that the budget of the turn is nearly exhausted.
    #[serde(skip_serializing_if = "is_default")]
    pub budget_warned: bool,
    /// Whether tokens of the turn had to be estimated.
    #[serde(skip_serializing_if = "is_default")]
    pub estimated: bool,
}

/// Why tool calls are not executed although they are whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The model was not to make any: there are no steps left.
    StepLimit,
    /// The budget of the turn is exhausted.
    Budget,
}

/// A tool call as the histories keep it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCallRecord {
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments; a string with the model's text if it is no JSON.
    pub args: Value,
}

/// What a turn took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Rounds of tool calls.
    pub steps_taken: u32,
    /// The tools that were executed, in call order, each as often as it was.
    pub tools_used: Vec<String>,
    /// Why the turn ended before the model was done; empty if it was done.
    pub stop_reason: String,
    /// Model answers that were accepted.
    pub llm_calls: u32,
    /// Whether someone cancelled the turn.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_interrupted: bool,
    /// The name of the model that answered, if the main one could not be asked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub model: String,
    /// Tokens by the names of the models, if another than the main one was asked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage_by_model: BTreeMap<String, Usage>,
    /// Calls that the model made although it was offered no tools; never executed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignored_tool_calls: Vec<ToolCall>,
    /// How many tokens the last request had more than it may have, because nothing made it smaller.
    #[serde(default, skip_serializing_if = "is_default")]
    pub over_context: u64,
}

impl AgentState {
    /// What the turn took so far; [`metadata`](Self::metadata) has it when it has ended.
    pub fn taken(&self) -> Metadata {
        Metadata {
            steps_taken: self.current_step,
            tools_used: self.tools_used.iter().cloned().collect(),
            stop_reason: self.stop_reason.clone(),
            llm_calls: self.llm_calls,
            is_interrupted: false,
            model: self.model.clone(),
            usage_by_model: self.usage_by_model.clone(),
            ignored_tool_calls: self.ignored_tool_calls.iter().cloned().collect(),
            over_context: self.context.over,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentOutcome {
    /// The model said all it had to say.
    Completed,
    /// The step limit was reached.
    Limit,
    /// The model repeated itself.
    LoopDetected,
    /// Someone cancelled the turn.
    Cancelled,
    /// The model could not be asked.
    LlmError,
    /// A hook of the program failed.
    #[serde(rename = "hook_error", alias = "hook_failed")]
    HookFailed,
    /// The model gave empty answers only.
    #[serde(rename = "empty_response", alias = "empty")]
    Empty,
    /// The output limit cut the answers off.
    #[serde(rename = "length_limit", alias = "length")]
    Length,
    /// The model refused; the reply is what it said.
    #[serde(rename = "refusal")]
    Refused,
    /// The provider's content filter withheld the answer, or the rest of it.
    ContentFilter,
    /// The budget was exhausted.
    Budget,
    /// The reply does not have the shape it is to have.
    #[serde(rename = "structured_output_invalid", alias = "invalid_output")]
    InvalidOutput,
    /// Somebody denied a tool call, and the turn was to end then.
    Denied,
    /// A tool failed, and the turn was to end then.
    #[serde(rename = "tool_error")]
    ToolFailed,
    /// It has not ended: calls wait to be approved.
    AwaitingApproval,
}

impl AgentOutcome {
    /// Whether the turn broke off: resuming it asks the model again.
    pub fn is_unanswered(self) -> bool {
        matches!(self, Self::Cancelled | Self::LlmError | Self::HookFailed)
    }

    /// The name that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Limit => "limit",
            Self::LoopDetected => "loop_detected",
            Self::Cancelled => "cancelled",
            Self::LlmError => "llm_error",
            Self::HookFailed => "hook_error",
            Self::Empty => "empty_response",
            Self::Length => "length_limit",
            Self::Refused => "refusal",
            Self::ContentFilter => "content_filter",
            Self::Budget => "budget",
            Self::InvalidOutput => "structured_output_invalid",
            Self::Denied => "denied",
            Self::ToolFailed => "tool_error",
            Self::AwaitingApproval => "awaiting_approval",
        }
    }
}

/// Why the model could not answer, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailure {
    /// What kind of failure.
    pub kind: ModelErrorKind,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// What happened. Never holds a key.
    pub message: String,
    /// How long the provider asked to wait, in milliseconds, if it did.
    pub retry_after_ms: Option<u64>,
    /// The same as a time: UTC milliseconds, by the clock of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at_ms: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_has_one_name_and_is_read_by_its_older_ones() {
        use AgentOutcome::*;
        let all = [
            Completed,
            Limit,
            LoopDetected,
            Cancelled,
            LlmError,
            HookFailed,
            Empty,
            Length,
            Refused,
            ContentFilter,
            Budget,
            InvalidOutput,
            Denied,
            ToolFailed,
            AwaitingApproval,
        ];
        for outcome in all {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
        }
        let older = [
            ("hook_failed", HookFailed),
            ("empty", Empty),
            ("length", Length),
            ("invalid_output", InvalidOutput),
        ];
        for (name, outcome) in older {
            assert_eq!(serde_json::from_value::<AgentOutcome>(name.into()).unwrap(), outcome);
        }
    }
}
