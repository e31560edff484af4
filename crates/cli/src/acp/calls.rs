//! Tool calls as editors show them.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use serde_json::json;
use superstep_acp::{
    stream::{fenced, text_content, tool_kind},
    wire::{Location, SessionUpdate, ToolCall, ToolContent, ToolStatus},
};
use superstep_session::{
    config::tools::GROUPS,
    live::{CallStatus, CallView},
};

/// Maximum size of a file whose text is shown beside its new text, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The calls of a session that the client knows.
#[derive(Default)]
pub(super) struct Calls(BTreeSet<String>);

impl Calls {
    /// Returns the update for a call: the whole call if the client does not know it, otherwise what changes.
    pub(super) fn update(&mut self, call: &CallView, cwd: &Path, is_live: bool) -> SessionUpdate {
        let whole = whole(call, cwd, is_live);
        if self.0.insert(call.key.clone()) {
            return SessionUpdate::ToolCall(whole);
        }
        let ToolCall { tool_call_id, title, status, content, raw_input, raw_output, .. } = whole;
        // The diff of a call stays as it was shown before the file changed.
        let content = content.filter(|content| !content.iter().any(is_diff));
        let (title, raw_input) = match call.status.is_end() {
            true => (None, None),
            false => (title, raw_input),
        };
        let changed =
            ToolCall { title, status, content, raw_input, raw_output, ..ToolCall::new(tool_call_id) };
        SessionUpdate::ToolCallUpdate(changed)
    }
}

/// Returns whether a tool is one whose calls show their change of a file.
pub(super) fn is_edit(tool: &str) -> bool {
    matches!(tool, "edit_file" | "write_file")
}

fn is_diff(content: &ToolContent) -> bool {
    matches!(content, ToolContent::Diff { .. })
}

/// Returns all that is known of a call.
pub(super) fn whole(call: &CallView, cwd: &Path, is_live: bool) -> ToolCall {
    let is_built_in = GROUPS.iter().any(|(_, tools, _)| tools.contains(&&*call.tool));
    let path = call.args.get("path").and_then(|path| path.as_str()).filter(|_| is_built_in);
    let path = path.map(|path| cwd.join(path));
    let diff = path.as_ref().and_then(|path| diff(call, path, is_live));
    let result = call.result.as_deref();
    let content = diff.map(|diff| vec![diff]).or_else(|| {
        let shown = result.filter(|result| !result.is_empty())?;
        Some(vec![text_content(fenced(shown, ""))])
    });
    ToolCall {
        title: Some(call.title.clone()),
        name: Some(call.tool.clone()),
        kind: Some(tool_kind(&call.tool, is_built_in)),
        status: Some(match call.status {
            CallStatus::Pending => ToolStatus::Pending,
            CallStatus::Running => ToolStatus::InProgress,
            CallStatus::Done => ToolStatus::Completed,
            CallStatus::Failed => ToolStatus::Failed,
        }),
        content,
        locations: path.map(|path| vec![Location { path, line: None }]),
        raw_input: Some(call.args.clone()).filter(|args| !args.is_null()),
        raw_output: result.map(|result| json!({ "text": result })),
        ..ToolCall::new(&*call.key)
    }
}

/// Returns the change of a file that a call asks for.
fn diff(call: &CallView, path: &Path, is_live: bool) -> Option<ToolContent> {
    let text = |name: &str| call.args.get(name)?.as_str().map(str::to_owned);
    let (old_text, new_text) = match call.tool.as_str() {
        "edit_file" => (Some(text("old")?), text("new")?),
        "write_file" => {
            let new = text("content")?;
            let old = is_live.then(|| present(path)).flatten().filter(|old| *old != new);
            (old, new)
        }
        _ => return None,
    };
    Some(ToolContent::Diff { path: PathBuf::from(path), old_text, new_text })
}

/// Reads the text of a file, if it is one of a moderate size.
fn present(path: &Path) -> Option<String> {
    // Opening a pipe waits for its writer.
    let is_small = |there: &fs::Metadata| there.is_file() && there.len() <= MAX_FILE;
    fs::symlink_metadata(path).ok().filter(is_small)?;
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn call(tool: &str, args: Value, status: CallStatus, result: Option<&str>) -> CallView {
        let (key, title) = ("c1".to_owned(), format!("{tool} it"));
        CallView { key, tool: tool.into(), title, args, status, result: result.map(str::to_owned) }
    }

    #[test]
    fn a_call_is_sent_once_as_a_whole_and_its_diff_stays() {
        let mut calls = Calls::default();
        let args = json!({"path": "a.txt", "old": "b", "new": "c"});
        let mut update = |status, result| {
            let update =
                calls.update(&call("edit_file", args.clone(), status, result), Path::new("/w"), true);
            serde_json::to_value(update).unwrap()
        };
        let asked = update(CallStatus::Pending, None);
        assert_eq!(asked["sessionUpdate"], "tool_call");
        assert_eq!((&asked["kind"], &asked["status"]), (&json!("edit"), &json!("pending")));
        let diff = json!([{"type": "diff", "path": "/w/a.txt", "oldText": "b", "newText": "c"}]);
        assert_eq!(asked["content"], diff);
        let runs = update(CallStatus::Running, None);
        assert_eq!(
            (&runs["sessionUpdate"], &runs["status"]),
            (&json!("tool_call_update"), &json!("in_progress"))
        );
        assert!(runs.get("content").is_none(), "{runs}");
        let done = update(CallStatus::Done, Some("1 change"));
        assert_eq!(done["rawOutput"], json!({"text": "1 change"}));
        assert!(done.get("content").is_none() && done.get("title").is_none(), "{done}");
    }

    #[test]
    fn a_result_is_text_in_a_fence_and_only_built_in_tools_have_a_place() {
        let shown = whole(
            &call("db_read", json!({"path": "x"}), CallStatus::Done, Some("```")),
            Path::new("/w"),
            true,
        );
        let shown = serde_json::to_value(shown).unwrap();
        assert_eq!(shown["content"][0]["content"]["text"], "````\n```\n````");
        assert_eq!((&shown["kind"], shown.get("locations")), (&json!("other"), None));
    }
}
