//! Detection of arguments that a question does not show.
//!
//! A tool formats its question, and a model writes the arguments. An argument counts as shown only if the
//! question contains all of it as one piece that no other argument can account for. Plain words may come from
//! the tool, so they are shown again with their argument.

use std::ops::Range;

use serde_json::{Map, Value};

use crate::text::printable;

/// The signs before the lines of a diff.
const SIGNS: [&str; 2] = ["+", "-"];

/// Maximum number of characters of words that may come from both a tool and a model.
const MAX_WORDS_LENGTH: usize = 40;

/// An argument as a question would show it.
struct Argument<'a> {
    name: &'a str,
    value: &'a Value,
    text: String,
    is_shown: bool,
    /// `true` if it stands among other words, which are the tool's.
    is_among: bool,
}

/// The arguments that a question does not show.
#[derive(Default)]
pub(crate) struct HiddenArguments<'a> {
    /// Arguments that it does not show in full.
    pub hidden: Vec<(&'a str, &'a Value)>,
    /// Arguments that occur as words of the question, either as arguments or as the tool's own text.
    pub words: Vec<(&'a str, String)>,
}

/// Finds the arguments that a question, as printed, does not show.
pub(crate) fn unseen<'a>(question: &str, arguments: Option<&'a Map<String, Value>>) -> HiddenArguments<'a> {
    let Some(arguments) = arguments else { return HiddenArguments::default() };
    let whole = printable(&Value::Object(arguments.clone()).to_string());
    if question.contains(&whole) {
        return HiddenArguments::default();
    }
    let argument = |(name, value): (&'a String, &'a Value)| {
        let text = match value {
            Value::String(text) => printable(text.strip_suffix('\n').unwrap_or(text)),
            other => printable(&other.to_string()),
        };
        Argument { name, value, is_shown: *value == "", is_among: false, text }
    };
    let mut all: Vec<_> = arguments.iter().map(argument).collect();
    // A piece belongs to one argument. Longer ones come first, because a shorter one may be a part of them.
    let mut longest: Vec<_> = all.iter_mut().filter(|argument| !argument.is_shown).collect();
    longest.sort_by_key(|argument| std::cmp::Reverse(argument.text.len()));
    let mut taken = Vec::new();
    for argument in longest {
        let free = pieces(question, &argument.text).into_iter().find(|piece| {
            taken.iter().all(|other: &Range<usize>| piece.end <= other.start || other.end <= piece.start)
        });
        argument.is_shown = free.is_some();
        argument.is_among = free.as_ref().is_some_and(|piece| !is_line(question, piece));
        taken.extend(free);
    }
    // A match may be a part of an argument that is not shown in full.
    let mut hidden: Vec<_> =
        all.iter().filter(|other| !other.is_shown).map(|other| other.text.clone()).collect();
    while let Some(text) = hidden.pop() {
        for other in all.iter_mut().filter(|other| other.is_shown && !pieces(&text, &other.text).is_empty()) {
            other.is_shown = false;
            hidden.push(other.text.clone());
        }
    }
    let mut unseen = HiddenArguments::default();
    for Argument { name, value, text, is_shown, is_among } in all {
        match is_shown {
            false => unseen.hidden.push((name, value)),
            true if is_among && is_plain(&text) => unseen.words.push((name, text)),
            true => {}
        }
    }
    unseen
}

/// Returns whether a tool may use the same words itself.
fn is_plain(text: &str) -> bool {
    let count = text.chars().take(MAX_WORDS_LENGTH + 1).count();
    (1..=MAX_WORDS_LENGTH).contains(&count) && text.chars().all(|c| c.is_alphanumeric() || c == ' ')
}

/// Returns the positions at which a text stands by itself: as words, or as lines with an optional sign.
fn pieces(question: &str, text: &str) -> Vec<Range<usize>> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    let found = |piece: &str| {
        question.match_indices(piece).map(|(at, found)| at..at + found.len()).collect::<Vec<_>>()
    };
    let is_apart = |piece: &Range<usize>| {
        let (before, behind) = (&question[..piece.start], &question[piece.end..]);
        let mut behind = behind.chars();
        let ends = match behind.next() {
            // The end of a sentence.
            Some('.') => behind.next().is_none_or(char::is_whitespace),
            next => next.is_none_or(|c| !joins(c)),
        };
        ends && before.chars().next_back().is_none_or(|c| !joins(c))
    };
    let mut pieces: Vec<_> = found(text).into_iter().filter(is_apart).collect();
    for sign in SIGNS {
        let lines: Vec<_> = text.split('\n').map(|line| format!("{sign}{line}")).collect();
        pieces.extend(found(&lines.join("\n")).into_iter().filter(|piece| is_line(question, piece)));
    }
    // Lines first: there it is the argument, and not the tool's text.
    pieces.sort_by_key(|piece| !is_line(question, piece));
    pieces
}

/// Returns whether a piece consists of whole lines.
fn is_line(question: &str, piece: &Range<usize>) -> bool {
    let (before, behind) = (&question[..piece.start], &question[piece.end..]);
    (before.is_empty() || before.ends_with('\n')) && (behind.is_empty() || behind.starts_with('\n'))
}

/// Returns whether a character next to a word extends it.
fn joins(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '\\' | '…')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(question: &str, arguments: Value) -> String {
        let HiddenArguments { hidden, .. } = unseen(question, arguments.as_object());
        hidden.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn plain_words_of_a_tool_are_repeated_with_their_argument() {
        let arguments =
            json!({"file": "a.txt", "mode": "delete", "count": 3, "why": "", "old": "b", "run": "ls"});
        let HiddenArguments { hidden, words } =
            unseen("Keep 3 or delete a.txt?\n-b\nls", arguments.as_object());
        assert!(hidden.is_empty());
        assert_eq!(words, [("count", "3".to_owned()), ("mode", "delete".to_owned())]);
    }

    #[test]
    fn an_argument_is_shown_if_all_of_it_stands_there_by_itself() {
        for (question, arguments, hidden) in [
            ("go 5", json!({"n": 5, "to": ""}), ""),
            ("go 15", json!({"n": 5}), "n"),
            ("go 5", json!({"m": 5, "n": 5}), "m n"),
            ("go -5", json!({"n": 5}), "n"),
            ("Delete a/b.", json!({"path": "a/b"}), ""),
            ("Delete a/b.rs", json!({"path": "a/b"}), "path"),
            ("Send \"hi\nyou\" to bob?", json!({"to": "bob", "text": "hi\nyou"}), ""),
            ("run in src:\nmake\nmake test", json!({"cwd": "src", "command": "make\nmake test\n"}), ""),
            ("edit a\n-b\n-c\n+d\n+", json!({"path": "a", "old": "b\nc", "new": "d\n\n"}), ""),
            ("write a\n+x\\u{202e}y", json!({"path": "a", "content": "x\u{202e}y"}), ""),
            ("Call t with {\"a\":[1,\"x\"],\"b\":null}?", json!({"a": [1, "x"], "b": null}), ""),
            ("Call t with {\"a\":1}?", json!({"a": 1, "b": "x"}), "b"),
            ("go", json!({"a": null, "b": " ", "c": {"d": 1}}), "a b c"),
        ] {
            assert_eq!(names(question, arguments.clone()), hidden, "{question} {arguments}");
        }
    }

    #[test]
    fn a_line_that_stands_elsewhere_is_not_shown() {
        for (question, arguments, hidden) in [
            // As a part of another line, in another order, with others in between, after the end.
            (
                "make a\n+# rm -rf ~ is bad\n+… [1 more lines]",
                json!({"path": "a", "content": "# rm -rf ~ is bad\nrm -rf ~"}),
                "content",
            ),
            ("make a\n+ls\n+rm x", json!({"path": "a", "content": "rm x\nls"}), "content"),
            ("make a\n+ls\n+more\n+rm x", json!({"path": "a", "content": "ls\nrm x"}), "content"),
            ("make a\n+ls\n+rm", json!({"path": "a", "content": "ls\nrm x"}), "content"),
            ("make a\n+ls\n-rm x", json!({"path": "a", "content": "ls\nrm x"}), "content"),
            // As a part of another argument that is shown completely or partially.
            ("Mail: call bob now", json!({"text": "call bob now", "to": "bob"}), "to"),
            ("Mail: call bob …", json!({"text": "call bob and evil", "to": "bob"}), "text to"),
            ("Mail: evil to x", json!({"a": "evil to x", "b": "evil", "c": "x"}), "b c"),
            // As the tool's own text.
            ("run rm x?", json!({"command": "rm x; rm y"}), "command"),
            ("run:\nrm -rf /tmp/x", json!({"command": "rm -rf /"}), "command"),
            // With escaped characters.
            ("run a\\u{202e}", json!({"command": "a"}), "command"),
        ] {
            assert_eq!(names(question, arguments.clone()), hidden, "{question} {arguments}");
        }
    }
}
