//! The agent's events as a type.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_graph::{Cx, Event, State, checkpoint::SubgraphPath, stream::CustomEvent};
use superstep_llm::{calls::ToolQuestion, snapshots::FileChanges};

use crate::state::{BudgetLimit, Part, ToolStatus, guarding::GuardAt};

/// An event of the agent.
///
/// The agent's nodes stream their events in [`StreamMode::Custom`](superstep_graph::StreamMode::Custom), beside those of other
/// nodes. [`AgentEvent::of`] reads them.
///
/// # JSON
/// `{"event": NAME, "data": {..}}` with the variant's name in snake case and its fields; this form is a promise. The program prints
/// it with `--json`.
///
/// ```
/// # use superstep_agent::AgentEvent;
/// let event = AgentEvent::ToolSkipped { tool: "shell".into(), id: "c1".into(), reason: "budget".into() };
/// let json = r#"{"event":"tool_skipped","data":{"tool":"shell","id":"c1","reason":"budget"}}"#;
/// assert_eq!(serde_json::to_string(&event)?, json);
/// assert_eq!(serde_json::from_str::<AgentEvent>(json)?, event);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentEvent {
    /// A visit of the node `agent` begins, or the node `verdict` emits an answer that was held back. A visit that stops the turn calls no model.
    NodeStart {
        /// The node.
        node: String,
    },
    /// A visit of the node `agent` ends, or the answer that was held back is complete.
    NodeEnd {
        /// The node.
        node: String,
    },
    /// A piece of the model's text or of its reasoning; one of the fields is empty.
    LlmToken {
        /// The piece of text.
        token: String,
        /// The piece of reasoning.
        reasoning_token: String,
    },
    /// A tool call begins.
    ToolStart {
        /// The tool.
        tool: String,
        /// The arguments, checked.
        args: Value,
        /// The id of the call.
        id: String,
    },
    /// A tool call is answered.
    ToolEnd {
        /// The tool.
        tool: String,
        /// The id of the call.
        id: String,
        /// The text for the model: the result, or the error.
        result: String,
        /// `completed` if the tool returned, otherwise `error`.
        status: ToolStatus,
    },
    /// Output of a tool while it runs.
    ToolOutput {
        /// The id of the call.
        id: String,
        /// The tool.
        tool: String,
        /// The output since the last event.
        chunk: String,
        /// True for the last reported output, if the tool wrote too much.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
    },
    /// A tool call was answered without being run.
    ToolSkipped {
        /// The tool.
        tool: String,
        /// The id of the call.
        id: String,
        /// The reason in one word.
        reason: String,
    },
    /// A tool returned after its call was answered.
    LateResult {
        /// The tool.
        tool: String,
        /// The id of the call.
        id: String,
    },
    /// A result was truncated, and its full text stored.
    Spilled {
        /// The id of the call.
        id: String,
        /// The location of the full text.
        path: String,
        /// The number of characters of the full text.
        chars: usize,
    },
    /// A result was truncated, and its full text could not be stored.
    SpillFailed {
        /// The id of the call.
        id: String,
        /// The cause.
        reason: String,
    },
    /// A model request is sent again after a delay.
    Retry {
        /// The number of the next attempt, from 1.
        attempt: u32,
        /// The delay in milliseconds.
        delay_ms: u64,
        /// The HTTP status of the failure, if any.
        #[serde(default)]
        status: Option<u16>,
        /// The failure.
        reason: String,
    },
    /// Another model is called, because the first one is unavailable.
    ModelFallback {
        /// The unavailable model.
        from: String,
        /// The model that is called instead.
        to: String,
        /// The HTTP status of the failure, if any.
        #[serde(default)]
        status: Option<u16>,
        /// The failure.
        reason: String,
    },
    /// Reasoning of earlier answers did not reach the model: the provider dropped it, or refused it all.
    ReasoningDropped {
        /// The place in the request; empty for all of it.
        path: String,
        /// The reason of the provider.
        reason: String,
    },
    /// The tokens since the beginning of the attempt are void.
    AttemptDiscarded {
        /// The number of the attempt, from 1.
        attempt: u32,
    },
    /// The text of the response contained tool calls. The streamed text is void, its reasoning is not.
    TextCalls {
        /// The number of calls.
        n: usize,
    },
    /// A part of a response is new, or its tool call changed.
    Part(Part),
    /// The structured reply so far.
    OutputPartial {
        /// The reply, completed to valid JSON.
        output: Value,
    },
    /// A message that the user sent while the turn runs enters the conversation.
    Steered {
        /// The id of the message.
        id: String,
        /// The text of the message.
        text: String,
    },
    /// The response reached the output limit and is accepted as it is.
    TruncatedAnswer {},
    /// The request was made smaller.
    Compacted {
        /// Tokens of the request before.
        before: u64,
        /// Tokens of the request after.
        after: u64,
        /// The number of messages that are omitted or shortened.
        dropped: usize,
        /// The number of tokens by which the request still exceeds its limit.
        #[serde(default, skip_serializing_if = "is_zero")]
        over: u64,
        /// The number of pins that are longer than their share of the window, and left out.
        #[serde(default, skip_serializing_if = "is_zero")]
        pins_left_out: u64,
    },
    /// Summaries are ineffective and disabled for this turn.
    CompactionPaused {},
    /// The model repeats itself.
    Loop {
        /// The rule that detected it.
        rule: String,
        /// The repeated tool.
        tool: String,
        /// The number of repetitions.
        n: usize,
    },
    /// The conversation is transferred to another agent.
    Handoff {
        /// The agent that had it; empty for the first one.
        from: String,
        /// The agent that has it now; empty for the first one.
        to: String,
        /// The reason that the model gave.
        reason: String,
    },
    /// A guard blocks the turn, denies a tool call or replaces a text.
    Guardrail {
        /// The name of the guard.
        guard: String,
        /// The place of the text.
        at: GuardAt,
        /// `block` or `rewrite`.
        action: String,
        /// The error of a guard that failed; otherwise empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// A large share of a budget is spent.
    BudgetWarning {
        /// The limit.
        budget: BudgetLimit,
        /// The spent share in percent.
        percent: u32,
    },
    /// The name of a tool was corrected.
    ToolRepaired {
        /// The id of the call.
        id: String,
        /// The name in the model's call.
        from: String,
        /// The name of the tool.
        to: String,
    },
    /// The arguments of a call were corrected.
    ArgsRepaired {
        /// The id of the call.
        id: String,
        /// The tool.
        tool: String,
    },
    /// A call waits for a decision; its [`ApprovalRequest`](crate::approval::ApprovalRequest) is the question of an interrupt.
    ApprovalRequested {
        /// The id of the call.
        id: String,
        /// The tool.
        tool: String,
        /// The arguments, checked.
        args: Value,
        /// The possible decisions.
        allowed: Vec<String>,
        /// The question of the tool itself, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        form: Option<ToolQuestion>,
    },
    /// A round of tools changed files.
    FilesChanged(FileChanges),
    /// A snapshot of the files failed.
    SnapshotFailed {
        /// The cause.
        reason: String,
    },
    /// The turn was added to its user's history.
    TurnRecorded {
        /// The id of the turn.
        id: String,
    },
    /// The turn was not added to a history.
    TurnNotRecorded {
        /// The cause.
        reason: String,
    },
    /// Memories and passages were found and added to the conversation.
    Retrieved {
        /// The id of the message.
        id: String,
        /// The number of memories.
        memories: usize,
        /// The number of passages.
        passages: usize,
    },
    /// A search of the memory or of a knowledge failed.
    RetrievalFailed {
        /// The memory, or the name of the knowledge.
        #[serde(rename = "in")]
        source: String,
        /// The cause.
        reason: String,
    },
    /// Instructions or a skill were read from a file.
    InstructionsLoaded {
        /// The absolute path.
        path: String,
        /// The size of the text in bytes.
        bytes: usize,
    },
    /// A file with instructions or a skill is not used, or only with a warning.
    InstructionsSkipped {
        /// The absolute path; `$name` for a skill that the user named.
        path: String,
        /// The cause, as the end of a sentence that begins with the path.
        reason: String,
    },
    /// The memory request of the user is stored.
    MemoryStored {},
    /// The memory request of the user is not stored.
    MemoryFailed {
        /// The cause.
        reason: String,
    },
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl AgentEvent {
    /// Reads an event of a stream; `None` for everything that is not an event of the agent.
    ///
    /// If the stream includes [subgraphs](superstep_graph::Streaming::subgraphs), events of sub-agents and nested graphs are read
    /// as well; [`Event::custom`] returns their paths. A custom event of another node with the name and the fields of an agent's
    /// event is read as one.
    pub fn of<S: State>(event: &Event<S>) -> Option<Self> {
        event.custom()?.read().ok()
    }

    /// Reads an event from the name and the data of a custom event.
    pub fn read(name: &str, data: &Value) -> Option<Self> {
        CustomEvent { path: SubgraphPath::default(), node: "", name, data }.read().ok()
    }

    /// Emits the event as a custom event of a node: for nodes that replace those of the agent.
    pub fn emit(&self, cx: &Cx) {
        cx.emit_with(|| (self.name(), self.data()));
    }

    /// The name in the JSON form.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NodeStart { .. } => "node_start",
            Self::NodeEnd { .. } => "node_end",
            Self::LlmToken { .. } => "llm_token",
            Self::ToolStart { .. } => "tool_start",
            Self::ToolEnd { .. } => "tool_end",
            Self::ToolOutput { .. } => "tool_output",
            Self::ToolSkipped { .. } => "tool_skipped",
            Self::LateResult { .. } => "late_result",
            Self::Spilled { .. } => "spilled",
            Self::SpillFailed { .. } => "spill_failed",
            Self::Retry { .. } => "retry",
            Self::ModelFallback { .. } => "model_fallback",
            Self::ReasoningDropped { .. } => "reasoning_dropped",
            Self::AttemptDiscarded { .. } => "attempt_discarded",
            Self::TextCalls { .. } => "text_calls",
            Self::Part(_) => "part",
            Self::OutputPartial { .. } => "output_partial",
            Self::Steered { .. } => "steered",
            Self::TruncatedAnswer {} => "truncated_answer",
            Self::Compacted { .. } => "compacted",
            Self::CompactionPaused {} => "compaction_paused",
            Self::Loop { .. } => "loop",
            Self::Handoff { .. } => "handoff",
            Self::Guardrail { .. } => "guardrail",
            Self::BudgetWarning { .. } => "budget_warning",
            Self::ToolRepaired { .. } => "tool_repaired",
            Self::ArgsRepaired { .. } => "args_repaired",
            Self::ApprovalRequested { .. } => "approval_requested",
            Self::FilesChanged(_) => "files_changed",
            Self::SnapshotFailed { .. } => "snapshot_failed",
            Self::TurnRecorded { .. } => "turn_recorded",
            Self::TurnNotRecorded { .. } => "turn_not_recorded",
            Self::Retrieved { .. } => "retrieved",
            Self::RetrievalFailed { .. } => "retrieval_failed",
            Self::InstructionsLoaded { .. } => "instructions_loaded",
            Self::InstructionsSkipped { .. } => "instructions_skipped",
            Self::MemoryStored {} => "memory_stored",
            Self::MemoryFailed { .. } => "memory_failed",
        }
    }

    /// Returns the data of the JSON form.
    pub fn data(&self) -> Value {
        let mut event = serde_json::to_value(self).expect("an event has a JSON form");
        event["data"].take()
    }
}
