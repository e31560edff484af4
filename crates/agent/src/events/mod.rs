//! The agent's events and their stream names.

use serde_json::{Value, json};
use superstep_graph::Cx;
use superstep_llm::FileChanges;

use crate::{ApprovalRequest, Part, state::view::Change};

/// Events common to all designs. An event's data is an object.
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

/// Emits the end of a call: `completed` with the tool's result, or `error` with the reason.
pub(crate) fn tool_end(cx: &Cx, tool: &str, id: &str, result: &str, returned: bool) {
    let status = if returned { "completed" } else { "error" };
    cx.emit("tool_end", json!({ "tool": tool, "id": id, "result": result, "status": status }));
}

/// Emits output of a running tool; nothing is emitted after the last chunk.
pub(crate) fn tool_output(cx: &Cx, tool: &str, id: &str, chunk: &str, is_last: bool) {
    let mut data = json!({ "id": id, "tool": tool, "chunk": chunk });
    if is_last {
        data["truncated"] = true.into();
    }
    cx.emit("tool_output", data);
}

/// Emits that a call was answered without execution.
pub(crate) fn tool_skipped(cx: &Cx, tool: &str, id: &str, reason: &str) {
    cx.emit("tool_skipped", json!({ "tool": tool, "id": id, "reason": reason }));
}

/// Emits that a result was truncated and its full text stored.
pub(crate) fn spilled(cx: &Cx, id: &str, path: &str, chars: usize) {
    cx.emit("spilled", json!({ "id": id, "path": path, "chars": chars }));
}

/// Emits that a result was truncated and the rest is lost.
pub(crate) fn spill_failed(cx: &Cx, id: &str, reason: &str) {
    cx.emit("spill_failed", json!({ "id": id, "reason": reason }));
}

/// Emits that a tool returned after its call was answered.
pub(crate) fn late_result(cx: &Cx, tool: &str, id: &str) {
    cx.emit("late_result", json!({ "tool": tool, "id": id }));
}

pub(crate) fn retry(cx: &Cx, attempt: u32, delay_ms: u64, status: Option<u16>, reason: &str) {
    cx.emit("retry", json!({ "attempt": attempt, "delay_ms": delay_ms, "status": status, "reason": reason }));
}

/// Emits that the next model is called, because this one failed.
pub(crate) fn model_fallback(cx: &Cx, from: &str, to: &str, status: Option<u16>, reason: &str) {
    cx.emit("model_fallback", json!({ "from": from, "to": to, "status": status, "reason": reason }));
}

/// Emits that the tokens streamed since the attempt began are discarded.
pub(crate) fn attempt_discarded(cx: &Cx, attempt: u32) {
    cx.emit("attempt_discarded", json!({ "attempt": attempt }));
}

/// Emits a new part of a response, or a tool call's new state.
pub(crate) fn part(cx: &Cx, part: &Part) {
    cx.emit("part", part);
}

/// Emits the partial structured reply.
pub(crate) fn output_partial(cx: &Cx, output: &Value) {
    cx.emit("output_partial", json!({ "output": output }));
}

/// Emits that the model reads a user message sent while the turn ran.
pub(crate) fn steered(cx: &Cx, id: &str, text: &str) {
    cx.emit("steered", json!({ "id": id, "text": text }));
}

/// Emits that the response was truncated by the output limit and accepted.
pub(crate) fn truncated_answer(cx: &Cx) {
    cx.emit("truncated_answer", json!({}));
}

/// Emits a reduction of the request: tokens before and after, and the number of changed messages. If it still
/// exceeds its limit, `over` has the excess.
pub(crate) fn compacted(cx: &Cx, change: &Change, over: u64) {
    let mut data = json!({ "before": change.before, "after": change.after, "dropped": change.dropped });
    if over > 0 {
        data["over"] = over.into();
    }
    cx.emit("compacted", data);
}

/// Emits that summaries gain nothing and are disabled for this turn.
pub(crate) fn compaction_paused(cx: &Cx) {
    cx.emit("compaction_paused", json!({}));
}

pub(crate) fn loop_detected(cx: &Cx, rule: &str, tool: &str, n: usize) {
    cx.emit("loop", json!({ "rule": rule, "tool": tool, "n": n }));
}

/// Emits the used share of the budget in percent.
pub(crate) fn budget_warning(cx: &Cx, budget: &str, percent: u32) {
    cx.emit("budget_warning", json!({ "budget": budget, "percent": percent }));
}

/// Emits that a tool's name was corrected.
pub(crate) fn tool_repaired(cx: &Cx, id: &str, from: &str, to: &str) {
    cx.emit("tool_repaired", json!({ "id": id, "from": from, "to": to }));
}

/// Emits that arguments were repaired.
pub(crate) fn args_repaired(cx: &Cx, id: &str, tool: &str) {
    cx.emit("args_repaired", json!({ "id": id, "tool": tool }));
}

/// Emits that the text of the response was parsed as tool calls; the streamed text is discarded, the
/// reasoning is not.
pub(crate) fn text_calls(cx: &Cx, n: usize) {
    cx.emit("text_calls", json!({ "n": n }));
}

/// Emits that a call requires approval; the interrupt contains the request as well. An approver may also
/// approve permanently.
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

/// Emits that a round of tools changed files.
pub(crate) fn files_changed(cx: &Cx, changes: &FileChanges) {
    cx.emit("files_changed", json!(changes));
}

/// Emits that a file snapshot failed.
pub(crate) fn snapshot_failed(cx: &Cx, reason: &str) {
    cx.emit("snapshot_failed", json!({ "reason": reason }));
}

/// Emits that the turn was stored in its user's history.
pub(crate) fn turn_recorded(cx: &Cx, id: &str) {
    cx.emit("turn_recorded", json!({ "id": id }));
}

/// Emits that the turn could not be stored in the history.
pub(crate) fn turn_not_recorded(cx: &Cx, reason: &str) {
    cx.emit("turn_not_recorded", json!({ "reason": reason }));
}

/// Emits the numbers of retrieved memory entries and passages, and the message that contains them.
pub(crate) fn retrieved(cx: &Cx, id: &str, memories: usize, passages: usize) {
    cx.emit("retrieved", json!({ "id": id, "memories": memories, "passages": passages }));
}

/// Emits that the search of the memory, or of this knowledge, failed.
pub(crate) fn retrieval_failed(cx: &Cx, whom: &str, reason: &str) {
    cx.emit("retrieval_failed", json!({ "in": whom, "reason": reason }));
}

pub(crate) fn memory_stored(cx: &Cx) {
    cx.emit("memory_stored", json!({}));
}

pub(crate) fn memory_failed(cx: &Cx, reason: &str) {
    cx.emit("memory_failed", json!({ "reason": reason }));
}
