//! Differences and conversations as text, for readers of failing tests.

use serde_json::Value;
use similar::TextDiff;

use super::body::{called, content, is_system, messages};

/// The number of characters of a message that are shown.
const SHOWN: usize = 120;

/// The number of messages that are shown at the beginning and at the end of a conversation.
const FIRST: usize = 2;
const LAST: usize = 8;

/// Returns the difference of two texts: both in a line each, or the differing lines of longer texts.
pub(crate) fn difference(what: &str, expected: &str, got: &str) -> String {
    if !expected.contains('\n') && !got.contains('\n') {
        return format!("  {what}\n    expected {expected:?}\n    got      {got:?}\n");
    }
    let mut out = format!("  {what}, - expected, + got\n");
    let diff = TextDiff::from_lines(expected, got);
    for hunk in diff.unified_diff().context_radius(2).missing_newline_hint(false).iter_hunks() {
        for line in hunk.to_string().lines().skip(1) {
            out.push_str(&format!("    {line}\n"));
        }
    }
    out
}

/// Returns a text in quotes, shortened.
pub(super) fn quoted(text: &str) -> String {
    let length = text.chars().count();
    if length <= SHOWN {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(SHOWN).collect();
    format!("{start:?}… ({length} characters)")
}

/// Returns the conversation of a request, a line for each message.
pub(super) fn conversation(body: &Value) -> String {
    let messages = messages(body);
    let called = called(messages);
    let lines: Vec<_> = messages.iter().map(|message| line(message, &called)).collect();
    let mut out = "conversation\n".to_owned();
    let hidden = lines.len().saturating_sub(FIRST + LAST);
    for (nth, line) in lines.iter().enumerate() {
        if hidden == 0 || nth < FIRST || nth >= FIRST + hidden {
            out.push_str(&format!("  {line}\n"));
        } else if nth == FIRST {
            out.push_str(&format!("  … {hidden} messages …\n"));
        }
    }
    out
}

fn line(message: &Value, called: &std::collections::BTreeMap<&str, &str>) -> String {
    let mut parts = Vec::new();
    let text = content(message);
    let calls: Vec<_> = message["tool_calls"].as_array().into_iter().flatten().collect();
    if !text.is_empty() || calls.is_empty() {
        parts.push(quoted(&text));
    }
    for call in calls {
        let [name, arguments] = ["name", "arguments"].map(|part| &call["function"][part]);
        let arguments = arguments.as_str().unwrap_or_default();
        let short: String = arguments.chars().take(SHOWN).collect();
        let rest = if short.len() < arguments.len() { "…" } else { "" };
        parts.push(format!("calls {} {short}{rest}", name.as_str().unwrap_or("?")));
    }
    let role = match message["role"].as_str() {
        Some("tool") => {
            let tool = message["tool_call_id"].as_str().and_then(|id| called.get(id));
            format!("tool {}", tool.copied().unwrap_or("?"))
        }
        _ if is_system(message) => "system".to_owned(),
        role => role.unwrap_or("?").to_owned(),
    };
    format!("{role} {}", parts.join(", "))
}
