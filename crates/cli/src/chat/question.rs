//! The question about a call, as a whole.
//!
//! Start at [`question`].

use ratatui::style::{Color, Style};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};
use superstep_session::turn::waiting::{Waiting, exact};

/// Maximum number of lines of a question in the history; `v` shows more.
const MAX_LINES: usize = 400;
const MAX_BYTES: usize = 64 << 10;

const GOOD: Style = Style::new().fg(Color::Green);
const BAD: Style = Style::new().fg(Color::Red);

/// Returns the lines of the question with their styles, and the arguments that they do not show.
pub(super) fn question(call: &Waiting) -> (Vec<(String, Style)>, Option<String>) {
    if let Some(diff) = diff(call) {
        let mut lines: Vec<_> = call.question_up_to(1, MAX_BYTES).split('\n').take(1).map(plain).collect();
        lines.extend(diff);
        lines.extend(
            call.request
                .problem
                .as_deref()
                .map(|problem| plain(&format!("not possible: {}", exact(problem)))),
        );
        // The texts of the diff are shown.
        let mut rest = call.clone();
        rest.request.question = rest.request.question.lines().next().unwrap_or_default().to_owned();
        if let Some(args) = rest.request.args.as_object_mut() {
            TEXTS.iter().for_each(|name| drop(args.remove(*name)));
        }
        return (lines, rest.hidden());
    }
    let text = call.question_up_to(MAX_LINES, MAX_BYTES);
    (text.split('\n').map(plain).collect(), call.hidden_beyond(MAX_LINES, MAX_BYTES))
}

fn plain(line: &str) -> (String, Style) {
    (line.to_owned(), Style::new())
}

/// The arguments of edits that their diffs show.
const TEXTS: [&str; 3] = ["old", "new", "content"];

/// Returns the changed lines of an edit; `None` for other calls, and for a diff that is too long.
fn diff(call: &Waiting) -> Option<Vec<(String, Style)>> {
    let text = |name: &str| call.request.args.get(name).and_then(Value::as_str);
    let (old, new) = if call.is_of(&["edit_file"]) {
        (text("old")?, text("new")?)
    } else if call.is_of(&["write_file"]) {
        ("", text("content")?)
    } else {
        return None;
    };
    if old.len() + new.len() > MAX_BYTES || old.lines().count() + new.lines().count() > MAX_LINES {
        return None;
    }
    let diff = TextDiff::from_lines(old, new);
    let line = |(tag, value): (ChangeTag, &str)| {
        let (sign, style) = match tag {
            ChangeTag::Delete => ("-", BAD),
            ChangeTag::Insert => ("+", GOOD),
            ChangeTag::Equal => (" ", Style::new()),
        };
        // A line break within the line would begin another row without a sign.
        let (value, end) = match value.strip_suffix('\n') {
            Some(value) => (value, ""),
            None => (value, "  (no line break)"),
        };
        (format!("{sign}{}{end}", exact(&value.replace('\r', "\\r"))), style)
    };
    Some(diff.iter_all_changes().map(|change| line((change.tag(), change.value()))).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::session::sample::asking;

    fn shown(tool: &str, question_text: &str, args: Value) -> (Vec<String>, Option<String>) {
        let mut call = asking(question_text, args);
        call.request.tool = tool.to_owned();
        let (lines, hidden) = question(&call);
        (lines.into_iter().map(|(line, _)| line).collect(), hidden)
    }

    #[test]
    fn an_edit_is_a_diff_of_all_its_lines() {
        let args = json!({"path": "a.rs", "old": "x\nsame\n", "new": "y\u{1b}\nsame"});
        let (lines, hidden) = shown("edit_file", "edit a.rs\n-…", args);
        assert_eq!(lines, ["edit a.rs", "-x", "-same", "+y\\u{1b}", "+same  (no line break)"]);
        assert_eq!(hidden, None);
        let (lines, hidden) =
            shown("write_file", "make a.rs, 1 line", json!({"path": "a.rs", "content": "x\n", "mode": 7}));
        assert_eq!(lines, ["make a.rs, 1 line", "+x"]);
        assert_eq!(hidden.as_deref(), Some("not shown in full: `mode`"));
    }

    #[test]
    fn what_is_too_long_is_named() {
        let args = json!({"path": "a.rs", "content": "x\n".repeat(1_000)});
        let (lines, hidden) = shown("write_file", "make a.rs, 1000 lines", args);
        assert_eq!(lines, ["make a.rs, 1000 lines"]);
        assert_eq!(hidden.as_deref(), Some("not shown in full: `content` (2000 characters)"));
        let (lines, hidden) = shown("shell", &"x\n".repeat(300), json!({}));
        assert_eq!((lines.len(), hidden), (301, None));
    }
}
