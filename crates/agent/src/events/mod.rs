//! The events of the agent: their types, and the functions that emit them.
//!
//! Start at [`AgentEvent`].

mod agent_event;

use serde_json::Value;
use superstep_graph::Cx;
use superstep_llm::FileChanges;

pub use self::agent_event::AgentEvent;
use crate::{ApprovalRequest, Part, ToolStatus, state::view::Change};

/// Emits the beginning of a model call.
pub(crate) fn node_start(cx: &Cx) {
    AgentEvent::NodeStart { node: cx.node().to_string() }.emit(cx);
}

pub(crate) fn node_end(cx: &Cx) {
    AgentEvent::NodeEnd { node: cx.node().to_string() }.emit(cx);
}

pub(crate) fn llm_token(cx: &Cx, token: &str, reasoning_token: &str) {
    AgentEvent::LlmToken { token: token.to_owned(), reasoning_token: reasoning_token.to_owned() }.emit(cx);
}

pub(crate) fn tool_start(cx: &Cx, tool: &str, args: &Value, id: &str) {
    AgentEvent::ToolStart { tool: tool.to_owned(), args: args.clone(), id: id.to_owned() }.emit(cx);
}

/// Emits the end of a call: `completed` with the tool's result, or `error` with the reason.
pub(crate) fn tool_end(cx: &Cx, tool: &str, id: &str, result: &str, returned: bool) {
    let status = if returned { ToolStatus::Completed } else { ToolStatus::Error };
    AgentEvent::ToolEnd { tool: tool.to_owned(), id: id.to_owned(), result: result.to_owned(), status }
        .emit(cx);
}

/// Emits output of a running tool; nothing is emitted after the last chunk.
pub(crate) fn tool_output(cx: &Cx, tool: &str, id: &str, chunk: &str, is_last: bool) {
    AgentEvent::ToolOutput {
        id: id.to_owned(),
        tool: tool.to_owned(),
        chunk: chunk.to_owned(),
        truncated: is_last,
    }
    .emit(cx);
}

/// Emits that a call was answered without execution.
pub(crate) fn tool_skipped(cx: &Cx, tool: &str, id: &str, reason: &str) {
    AgentEvent::ToolSkipped { tool: tool.to_owned(), id: id.to_owned(), reason: reason.to_owned() }.emit(cx);
}

/// Emits that a result was truncated and its full text stored.
pub(crate) fn spilled(cx: &Cx, id: &str, path: &str, chars: usize) {
    AgentEvent::Spilled { id: id.to_owned(), path: path.to_owned(), chars }.emit(cx);
}

/// Emits that a result was truncated and the rest is lost.
pub(crate) fn spill_failed(cx: &Cx, id: &str, reason: &str) {
    AgentEvent::SpillFailed { id: id.to_owned(), reason: reason.to_owned() }.emit(cx);
}

/// Emits that a tool returned after its call was answered.
pub(crate) fn late_result(cx: &Cx, tool: &str, id: &str) {
    AgentEvent::LateResult { tool: tool.to_owned(), id: id.to_owned() }.emit(cx);
}

pub(crate) fn retry(cx: &Cx, attempt: u32, delay_ms: u64, status: Option<u16>, reason: &str) {
    AgentEvent::Retry { attempt, delay_ms, status, reason: reason.to_owned() }.emit(cx);
}

/// Emits that the next model is called, because this one failed.
pub(crate) fn model_fallback(cx: &Cx, from: &str, to: &str, status: Option<u16>, reason: &str) {
    AgentEvent::ModelFallback { from: from.to_owned(), to: to.to_owned(), status, reason: reason.to_owned() }
        .emit(cx);
}

/// Emits that the tokens streamed since the attempt began are discarded.
pub(crate) fn attempt_discarded(cx: &Cx, attempt: u32) {
    AgentEvent::AttemptDiscarded { attempt }.emit(cx);
}

/// Emits a new part of a response, or a tool call's new state.
pub(crate) fn part(cx: &Cx, part: &Part) {
    AgentEvent::Part(part.clone()).emit(cx);
}

/// Emits the partial structured reply.
pub(crate) fn output_partial(cx: &Cx, output: &Value) {
    AgentEvent::OutputPartial { output: output.clone() }.emit(cx);
}

/// Emits that the model reads a user message sent while the turn ran.
pub(crate) fn steered(cx: &Cx, id: &str, text: &str) {
    AgentEvent::Steered { id: id.to_owned(), text: text.to_owned() }.emit(cx);
}

/// Emits that the response was truncated by the output limit and accepted.
pub(crate) fn truncated_answer(cx: &Cx) {
    AgentEvent::TruncatedAnswer {}.emit(cx);
}

/// Emits a reduction of the request: tokens before and after, and the number of changed messages. If it still
/// exceeds its limit, `over` has the excess.
pub(crate) fn compacted(cx: &Cx, change: &Change, over: u64) {
    let Change { before, after, dropped, .. } = *change;
    AgentEvent::Compacted { before, after, dropped, over }.emit(cx);
}

/// Emits that summaries gain nothing and are disabled for this turn.
pub(crate) fn compaction_paused(cx: &Cx) {
    AgentEvent::CompactionPaused {}.emit(cx);
}

pub(crate) fn loop_detected(cx: &Cx, rule: &str, tool: &str, n: usize) {
    AgentEvent::Loop { rule: rule.to_owned(), tool: tool.to_owned(), n }.emit(cx);
}

/// Emits the used share of the budget in percent.
pub(crate) fn budget_warning(cx: &Cx, budget: &str, percent: u32) {
    AgentEvent::BudgetWarning { budget: budget.to_owned(), percent }.emit(cx);
}

/// Emits that a tool's name was corrected.
pub(crate) fn tool_repaired(cx: &Cx, id: &str, from: &str, to: &str) {
    AgentEvent::ToolRepaired { id: id.to_owned(), from: from.to_owned(), to: to.to_owned() }.emit(cx);
}

/// Emits that arguments were repaired.
pub(crate) fn args_repaired(cx: &Cx, id: &str, tool: &str) {
    AgentEvent::ArgsRepaired { id: id.to_owned(), tool: tool.to_owned() }.emit(cx);
}

/// Emits that the text of the response was parsed as tool calls; the streamed text is discarded, the
/// reasoning is not.
pub(crate) fn text_calls(cx: &Cx, n: usize) {
    AgentEvent::TextCalls { n }.emit(cx);
}

/// Emits that a call requires approval; the interrupt contains the request as well. An approver may also
/// approve permanently.
pub(crate) fn approval_requested(cx: &Cx, request: &ApprovalRequest) {
    let ApprovalRequest { call_id, tool, args, form, .. } = request;
    let allowed: &[&str] = match form {
        None => &["approve", "deny", "edit", "respond"],
        Some(_) => &["answer", "approve", "deny", "cancel"],
    };
    AgentEvent::ApprovalRequested {
        id: call_id.clone(),
        tool: tool.clone(),
        args: args.clone(),
        allowed: allowed.iter().map(|&decision| decision.to_owned()).collect(),
        form: form.clone(),
    }
    .emit(cx);
}

/// Emits that a round of tools changed files.
pub(crate) fn files_changed(cx: &Cx, changes: &FileChanges) {
    AgentEvent::FilesChanged(changes.clone()).emit(cx);
}

/// Emits that a file snapshot failed.
pub(crate) fn snapshot_failed(cx: &Cx, reason: &str) {
    AgentEvent::SnapshotFailed { reason: reason.to_owned() }.emit(cx);
}

/// Emits that the turn was stored in its user's history.
pub(crate) fn turn_recorded(cx: &Cx, id: &str) {
    AgentEvent::TurnRecorded { id: id.to_owned() }.emit(cx);
}

/// Emits that the turn could not be stored in the history.
pub(crate) fn turn_not_recorded(cx: &Cx, reason: &str) {
    AgentEvent::TurnNotRecorded { reason: reason.to_owned() }.emit(cx);
}

/// Emits the numbers of retrieved memory entries and passages, and the message that contains them.
pub(crate) fn retrieved(cx: &Cx, id: &str, memories: usize, passages: usize) {
    AgentEvent::Retrieved { id: id.to_owned(), memories, passages }.emit(cx);
}

/// Emits that the search of the memory, or of this knowledge, failed.
pub(crate) fn retrieval_failed(cx: &Cx, whom: &str, reason: &str) {
    AgentEvent::RetrievalFailed { source: whom.to_owned(), reason: reason.to_owned() }.emit(cx);
}

pub(crate) fn memory_stored(cx: &Cx) {
    AgentEvent::MemoryStored {}.emit(cx);
}

pub(crate) fn memory_failed(cx: &Cx, reason: &str) {
    AgentEvent::MemoryFailed { reason: reason.to_owned() }.emit(cx);
}
