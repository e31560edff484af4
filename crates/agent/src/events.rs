//! The events of the agent, by the names under which they are streamed.

use serde_json::{Value, json};
use superstep_graph::Cx;

use crate::{ApprovalRequest, FileChanges, Part, context::Change};

/// Events that every design has. An event's data is an object.
pub(crate) fn node_start(cx: &Cx) {
    cx.emit("node_start", json!({ "node": cx.node() }));
}

pub(crate) fn node_end(cx: &Cx) {
    cx.emit("node_end", json!({ "node": cx.node() }));
}

pub(crate) fn llm_token(cx: &Cx, token: &str, reasoning_token: &str) {
    cx.emit("llm_token", json!({ "token": token, "reasoning_token": reasoning_token }));
}

pub(crate) fn tool_start(cx: &Cx, tool: &str, args: &Value, id: &str) {
    cx.emit("tool_start", json!({ "tool": tool, "args": args, "id": id }));
}

/// A call is answered: `completed` with what its tool returned, or with an `error`, which is why it did not.
pub(crate) fn tool_end(cx: &Cx, tool: &str, id: &str, result: &str, returned: bool) {
    let status = if returned { "completed" } else { "error" };
    cx.emit("tool_end", json!({ "tool": tool, "id": id, "result": result, "status": status }));
}

/// What a tool says while it runs; after the last chunk nothing more is told, though the tool may say more.
pub(crate) fn tool_output(cx: &Cx, tool: &str, id: &str, chunk: &str, is_last: bool) {
    let mut data = json!({ "id": id, "tool": tool, "chunk": chunk });
    if is_last {
        data["truncated"] = true.into();
    }
    cx.emit("tool_output", data);
}

/// A call that was answered without being processed.
pub(crate) fn tool_skipped(cx: &Cx, tool: &str, id: &str, reason: &str) {
    cx.emit("tool_skipped", json!({ "tool": tool, "id": id, "reason": reason }));
}

/// A result was cut, and is kept there as a whole.
pub(crate) fn spilled(cx: &Cx, id: &str, path: &str, chars: usize) {
    cx.emit("spilled", json!({ "id": id, "path": path, "chars": chars }));
}

/// A result was cut, and the rest of it is lost.
pub(crate) fn spill_failed(cx: &Cx, id: &str, reason: &str) {
    cx.emit("spill_failed", json!({ "id": id, "reason": reason }));
}

/// A tool that returned after its call was answered.
pub(crate) fn late_result(cx: &Cx, tool: &str, id: &str) {
    cx.emit("late_result", json!({ "tool": tool, "id": id }));
}

pub(crate) fn retry(cx: &Cx, attempt: u32, delay_ms: u64, status: Option<u16>, reason: &str) {
    cx.emit("retry", json!({ "attempt": attempt, "delay_ms": delay_ms, "status": status, "reason": reason }));
}

/// Another model is asked, for this one cannot answer.
pub(crate) fn model_fallback(cx: &Cx, from: &str, to: &str, status: Option<u16>, reason: &str) {
    cx.emit("model_fallback", json!({ "from": from, "to": to, "status": status, "reason": reason }));
}

/// Tokens streamed since the attempt began are void.
pub(crate) fn attempt_discarded(cx: &Cx, attempt: u32) {
    cx.emit("attempt_discarded", json!({ "attempt": attempt }));
}

/// A part of an answer is new, or a tool call has come further.
pub(crate) fn part(cx: &Cx, part: &Part) {
    cx.emit("part", part);
}

/// The reply that has a schema, as far as it has come.
pub(crate) fn output_partial(cx: &Cx, output: &Value) {
    cx.emit("output_partial", json!({ "output": output }));
}

/// The user said something while the turn ran, and the model reads it now.
pub(crate) fn steered(cx: &Cx, id: &str, text: &str) {
    cx.emit("steered", json!({ "id": id, "text": text }));
}

/// The answer ran into the output limit and is taken as it is.
pub(crate) fn truncated_answer(cx: &Cx) {
    cx.emit("truncated_answer", json!({}));
}

/// The request was made smaller: from so many tokens to so many, and so many messages are not sent any more as they were. If it
/// is still `over` what it may have, it says so.
pub(crate) fn compacted(cx: &Cx, change: &Change, over: u64) {
    let mut data = json!({ "before": change.before, "after": change.after, "dropped": change.dropped });
    if over > 0 {
        data["over"] = over.into();
    }
    cx.emit("compacted", data);
}

/// Summaries gain nothing and are given up for this turn.
pub(crate) fn compaction_paused(cx: &Cx) {
    cx.emit("compaction_paused", json!({}));
}

pub(crate) fn loop_detected(cx: &Cx, rule: &str, tool: &str, n: usize) {
    cx.emit("loop", json!({ "rule": rule, "tool": tool, "n": n }));
}

/// So many hundredths of the budget are spent.
pub(crate) fn budget_warning(cx: &Cx, budget: &str, percent: u32) {
    cx.emit("budget_warning", json!({ "budget": budget, "percent": percent }));
}

/// A tool's name was taken for another one.
pub(crate) fn tool_repaired(cx: &Cx, id: &str, from: &str, to: &str) {
    cx.emit("tool_repaired", json!({ "id": id, "from": from, "to": to }));
}

/// Arguments were taken for what they mean.
pub(crate) fn args_repaired(cx: &Cx, id: &str, tool: &str) {
    cx.emit("args_repaired", json!({ "id": id, "tool": tool }));
}

/// The text of the answer was taken for this many tool calls; the text that was streamed is void, its reasoning is not.
pub(crate) fn text_calls(cx: &Cx, n: usize) {
    cx.emit("text_calls", json!({ "n": n }));
}

/// A call waits until somebody decides about it; the request stands in the interrupt as well. Whoever may approve may
/// approve for good, too.
pub(crate) fn approval_requested(cx: &Cx, request: &ApprovalRequest) {
    let ApprovalRequest { call_id, tool, args, form, .. } = request;
    let event = match form {
        None => {
            let allowed = ["approve", "deny", "edit", "respond"];
            json!({ "id": call_id, "tool": tool, "args": args, "allowed": allowed })
        }
        Some(form) => {
            let allowed = ["answer", "approve", "deny", "cancel"];
            json!({ "id": call_id, "tool": tool, "args": args, "allowed": allowed, "form": form })
        }
    };
    cx.emit("approval_requested", event);
}

/// A round of tools changed files.
pub(crate) fn files_changed(cx: &Cx, changes: &FileChanges) {
    cx.emit("files_changed", json!(changes));
}

/// The files could not be kept as they were.
pub(crate) fn snapshot_failed(cx: &Cx, reason: &str) {
    cx.emit("snapshot_failed", json!({ "reason": reason }));
}

/// A dream begins, of so many turns.
#[cfg(feature = "workspace-tools")]
pub(crate) fn dream_begun(cx: &Cx, why: crate::Due, turns: usize) {
    cx.emit("dream_begun", json!({ "why": why, "turns": turns }));
}

/// A dream is over; whether its turns count as read.
#[cfg(feature = "workspace-tools")]
pub(crate) fn dream_ended(cx: &Cx, outcome: &str, turns: usize, settled: bool) {
    cx.emit("dream_ended", json!({ "outcome": outcome, "turns": turns, "settled": settled }));
}

/// The turn is a line of its user's history.
pub(crate) fn turn_recorded(cx: &Cx, id: &str) {
    cx.emit("turn_recorded", json!({ "id": id }));
}

/// The turn is not written down, and will not be.
pub(crate) fn turn_not_recorded(cx: &Cx, reason: &str) {
    cx.emit("turn_not_recorded", json!({ "reason": reason }));
}

/// So many entries of the memory and passages of knowledge were found, and are this message of the conversation.
pub(crate) fn retrieved(cx: &Cx, id: &str, memories: usize, passages: usize) {
    cx.emit("retrieved", json!({ "id": id, "memories": memories, "passages": passages }));
}

/// The memory, or a knowledge of this name, could not be searched.
pub(crate) fn retrieval_failed(cx: &Cx, whom: &str, reason: &str) {
    cx.emit("retrieval_failed", json!({ "in": whom, "reason": reason }));
}

pub(crate) fn memory_stored(cx: &Cx) {
    cx.emit("memory_stored", json!({}));
}

pub(crate) fn memory_failed(cx: &Cx, reason: &str) {
    cx.emit("memory_failed", json!({ "reason": reason }));
}
