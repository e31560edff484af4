//! The question about a call, as a whole.
//!
//! Start at [`question`].

use std::{fs, path::Path};

use ratatui::{
    style::{Color, Style},
    text::Span,
};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};
use superstep_session::turn::waiting::{Waiting, exact};

/// Maximum number of lines of a question in the history; `v` shows more.
const MAX_LINES: usize = 400;
const MAX_BYTES: usize = 64 << 10;

/// Maximum size of a file in which the place of an edit is looked up, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

const GOOD: Style = Style::new().fg(Color::Green);
const BAD: Style = Style::new().fg(Color::Red);
const DIM: Style = Style::new().dim();

/// A line of a question.
pub(super) type Row = Vec<Span<'static>>;

/// Returns the lines of the question, and the arguments that they do not show. `folder` is that of the tools.
pub(super) fn question(call: &Waiting, folder: &Path) -> (Vec<Row>, Option<String>) {
    if let Some(diff) = diff(call, folder) {
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

fn plain(line: &str) -> Row {
    vec![Span::raw(line.to_owned())]
}

/// The arguments of edits that their diffs show.
const TEXTS: [&str; 3] = ["old", "new", "content"];

/// Returns the lines of an edit with their numbers, and the changed words of each; `None` for other calls, and for a diff that is
/// too long.
fn diff(call: &Waiting, folder: &Path) -> Option<Vec<Row>> {
    let text = |name: &str| call.request.args.get(name).and_then(Value::as_str);
    let (old, new, begin) = if call.is_of(&["edit_file"]) {
        let (path, old) = (text("path")?, text("old")?);
        (old, text("new")?, line_of(folder, path, old))
    } else if call.is_of(&["write_file"]) {
        ("", text("content")?, Some(1))
    } else {
        return None;
    };
    let lines = old.lines().count().max(new.lines().count());
    if old.len() + new.len() > MAX_BYTES || old.lines().count() + new.lines().count() > MAX_LINES {
        return None;
    }
    let columns = begin.map_or(0, |begin| (begin + lines).to_string().len());
    let diff = TextDiff::from_lines(old, new);
    let mut rows = Vec::new();
    for change in diff.ops().iter().flat_map(|op| diff.iter_inline_changes(op)) {
        let (sign, style, at) = match change.tag() {
            ChangeTag::Delete => ("-", BAD, change.old_index()),
            ChangeTag::Insert => ("+", GOOD, change.new_index()),
            ChangeTag::Equal => (" ", Style::new(), change.new_index()),
        };
        let number = begin.zip(at).map(|(begin, at)| format!("{:>columns$} ", begin + at));
        let mut row = vec![Span::styled(number.unwrap_or_default(), DIM), Span::styled(sign, style)];
        for (is_changed, piece) in change.iter_strings_lossy() {
            // A line break within the line would begin another row without a sign.
            let piece = exact(&piece.strip_suffix('\n').unwrap_or(&piece).replace('\r', "\\r"));
            row.push(Span::styled(piece, if is_changed { style.reversed() } else { style }));
        }
        if change.missing_newline() {
            row.push(Span::styled("  (no line break)", DIM));
        }
        rows.push(row);
    }
    Some(rows)
}

/// Returns the line of a file, from 1, in which the only occurrence of a text begins. Nothing outside of the folder is read.
fn line_of(folder: &Path, path: &str, text: &str) -> Option<usize> {
    let (folder, file) = (folder.canonicalize().ok()?, folder.join(path).canonicalize().ok()?);
    let about = fs::metadata(&file).ok()?;
    // Opening a pipe waits for its writer.
    if !file.starts_with(&folder) || !about.is_file() || about.len() > MAX_FILE_BYTES {
        return None;
    }
    let content = fs::read_to_string(&file).ok()?.replace("\r\n", "\n");
    let mut places = content.match_indices(text);
    let (at, _) = places.next()?;
    let is_only = places.next().is_none();
    is_only.then(|| content[..at].matches('\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use ratatui::style::Modifier;
    use serde_json::json;

    use super::*;
    use crate::session::sample::asking;

    fn rows(folder: &Path, tool: &str, question_text: &str, args: Value) -> (Vec<Row>, Option<String>) {
        let mut call = asking(question_text, args);
        call.request.tool = tool.to_owned();
        question(&call, folder)
    }

    fn texts(rows: &[Row]) -> Vec<String> {
        let text = |row: &Row| row.iter().map(|span| span.content.as_ref()).collect();
        rows.iter().map(text).collect()
    }

    fn shown(tool: &str, question_text: &str, args: Value) -> (Vec<String>, Option<String>) {
        let (rows, hidden) = rows(Path::new("/nonexistent"), tool, question_text, args);
        (texts(&rows), hidden)
    }

    #[test]
    fn an_edit_is_a_diff_of_all_its_lines() {
        let args = json!({"path": "a.rs", "old": "x\nsame\n", "new": "y\u{1b}\nsame"});
        let (lines, hidden) = shown("edit_file", "edit a.rs\n-…", args);
        assert_eq!(lines, ["edit a.rs", "-x", "-same", "+y\\u{1b}", "+same  (no line break)"]);
        assert_eq!(hidden, None);
        let (lines, hidden) =
            shown("write_file", "make a.rs, 1 line", json!({"path": "a.rs", "content": "x\n", "mode": 7}));
        assert_eq!(lines, ["make a.rs, 1 line", "1 +x"]);
        assert_eq!(hidden.as_deref(), Some("not shown in full: `mode`"));
    }

    #[test]
    fn lines_have_the_numbers_of_the_file_and_changed_words_a_mark() {
        let folder = tempfile::tempdir().unwrap();
        let lines: String = (1..=12).map(|n| format!("line number {n}\r\n")).collect();
        fs::write(folder.path().join("a.txt"), &lines).unwrap();
        fs::write(folder.path().join("twice.txt"), "line number 9\nline number 9\n").unwrap();
        let edit = |path: &str| {
            let (old, new) = ("line number 9\nline number 10\n", "line count 9\nline number 10\n");
            rows(folder.path(), "edit_file", "edit", json!({"path": path, "old": old, "new": new})).0
        };
        let found = edit("a.txt");
        let wanted = ["edit", " 9 -line number 9", " 9 +line count 9", "10  line number 10"];
        assert_eq!(texts(&found), wanted);
        let marked = |row: &Row| {
            let spans = row.iter().filter(|span| span.style.add_modifier.contains(Modifier::REVERSED));
            spans.map(|span| span.content.to_string()).collect::<Vec<_>>()
        };
        assert_eq!((marked(&found[1]), marked(&found[2])), (vec!["number".into()], vec!["count".into()]));
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        fs::write(elsewhere.path(), &lines).unwrap();
        for unknown in ["twice.txt", "none.txt", ".", elsewhere.path().to_str().unwrap()] {
            assert_eq!(texts(&edit(unknown))[1], "-line number 9", "{unknown}");
        }
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
