//! Texts for a terminal: escaped, shortened, quoted.

use std::time::Duration;

use serde::Serialize;
use superstep::llm::{
    snapshots::{FileChangeKind, FileChanges},
    text::is_printable,
};

pub use superstep::llm::text::{printable, printable_line};

/// Serializes a value on one line, with every unprintable character as a JSON escape: the meaning is the
/// same, and the line is safe on a terminal.
pub fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    let mut line = json_escaped(&serde_json::to_string(value)?);
    line.push('\n');
    Ok(line)
}

/// Serializes a value with indentation, escaped like [`json_line`].
pub fn json_pretty(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(json_escaped(&serde_json::to_string_pretty(value)?))
}

/// Returns JSON with every unprintable character as a JSON escape, except line breaks between values.
pub fn json_escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        if is_printable(c) || c == '\n' {
            escaped.push(c);
        } else {
            escaped.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    escaped
}

/// Returns the beginning of a text on one line.
pub fn brief(text: &str, most: usize) -> String {
    let line = printable_line(text.lines().next().unwrap_or_default());
    let cut: String = line.chars().take(most).collect();
    if cut.len() < line.len() || text.lines().nth(1).is_some() { format!("{cut}…") } else { cut }
}

/// Indents the lines after the first, which a name or an error of a server or a database may have: they must not look like
/// other lines of the program.
pub fn indented(text: &str) -> String {
    text.replace('\n', "\n    ")
}

/// Quotes a word for a shell. Characters that cannot be seen are escapes, which bash and zsh know.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if printable_line(word) == word {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut escaped = String::new();
    for c in word.chars() {
        match c {
            '\'' | '\\' => escaped.extend(['\\', c]),
            '\n' | '\t' => escaped.push_str(&printable_line(&c.to_string())),
            c if is_printable(c) => escaped.push(c),
            c => escaped.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    format!("$'{escaped}'")
}

pub fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Formats changed files, one per line.
pub fn changed_files(changes: &FileChanges) -> Vec<String> {
    let mut lines: Vec<_> = changes
        .changes
        .iter()
        .map(|change| {
            let kind = match change.kind {
                FileChangeKind::Made => "made",
                FileChangeKind::Changed => "changed",
                FileChangeKind::Removed => "removed",
            };
            format!("{kind} {}", printable_line(&change.path))
        })
        .collect();
    if changes.more > 0 {
        lines.push(format!("and {} more", changes.more));
    }
    lines
}

/// Formats a time to the tenth of a second, or to the millisecond below one second.
pub fn short_time(took: Duration) -> String {
    match took.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        _ => format!("{:.1} s", took.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_have_equal_values_and_escape_hidden_characters() {
        let hidden = "a\u{1b}\u{9b}2J\u{202e}\u{2028}\u{e0041}\u{200b}é";
        let line = json_line(&hidden).unwrap();
        assert_eq!(line, "\"a\\u001b\\u009b2J\\u202e\\u2028\\udb40\\udc41\\u200bé\"\n");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), hidden);
    }

    #[test]
    fn indented_json_retains_its_lines() {
        let hidden = serde_json::json!({"a": ["\u{202e}"]});
        let text = json_pretty(&hidden).unwrap();
        assert_eq!(text, "{\n  \"a\": [\n    \"\\u202e\"\n  ]\n}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), hidden);
    }

    #[test]
    fn a_brief_text_is_one_line() {
        assert_eq!(brief("short", 10), "short");
        assert_eq!(brief("one\ntwo", 10), "one…");
        assert_eq!(brief("0123456789x", 10), "0123456789…");
    }

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("t-1.a/b"), "t-1.a/b");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a\n'b\\\u{202e}"), r"$'a\n\'b\\\U0000202e'");
    }

    #[test]
    fn times_are_short() {
        assert_eq!(short_time(Duration::from_millis(999)), "999 ms");
        assert_eq!(short_time(Duration::from_millis(1_000)), "1.0 s");
    }
}
