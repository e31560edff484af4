//! The difference of two states by channel and place.
//!
//! Start at [`changes`].

use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};

use super::{
    part::preview,
    types::{Change, ChangeKind, Changes, ChannelChange, DiffLine},
};

/// The maximum number of changes of one channel.
const MAX_CHANGES: usize = 200;

/// The maximum size of a value in a change, in bytes.
const MAX_VALUE: usize = 2_048;

/// The maximum number of lines of one text, and the size of texts whose lines are compared, in bytes.
const MAX_LINES: usize = 400;
const MAX_TEXT: usize = 200_000;

/// The number of equal lines around a difference.
const CONTEXT: usize = 2;

/// Compares two states.
pub(crate) fn changes(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    against: Option<u64>,
) -> Changes {
    let (mut channels, mut unchanged) = (Vec::new(), Vec::new());
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    for name in after.keys().chain(removed) {
        let (one, other) = (before.get(name), after.get(name));
        if one == other {
            unchanged.push(name.clone());
        } else {
            channels.push(channel(name, one, other));
        }
    }
    Changes { against, channels, unchanged }
}

fn channel(name: &str, before: Option<&Value>, after: Option<&Value>) -> ChannelChange {
    let mut found = Found::default();
    found.compare("", before, after);
    let summary = match (before, after) {
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            let (one, other) = (before.len(), after.len());
            if other > one {
                format!("+{} of {other}", other - one)
            } else {
                format!("{one} → {other} entries")
            }
        }
        (Some(Value::Object(_)), Some(Value::Object(_))) => {
            let all = found.changes.len() + found.more;
            format!("{all} {}", if all == 1 { "change" } else { "changes" })
        }
        (Some(before), Some(after)) if is_short(before) && is_short(after) => format!("{before} → {after}"),
        (None | Some(Value::Null), _) => "set".to_owned(),
        (_, None | Some(Value::Null)) => "cleared".to_owned(),
        _ => "changed".to_owned(),
    };
    ChannelChange { channel: name.to_owned(), summary, changes: found.changes, more: found.more }
}

fn is_short(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= 24 && !text.contains('\n'),
        Value::Array(_) | Value::Object(_) => false,
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

#[derive(Default)]
struct Found {
    changes: Vec<Change>,
    more: usize,
}

impl Found {
    fn compare(&mut self, pointer: &str, before: Option<&Value>, after: Option<&Value>) {
        match (before, after) {
            (Some(before), Some(after)) if before == after => {}
            (Some(Value::Object(before)), Some(Value::Object(after))) => {
                let removed = before.keys().filter(|key| !after.contains_key(*key));
                for key in after.keys().chain(removed) {
                    let key_pointer = format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
                    self.compare(&key_pointer, before.get(key), after.get(key));
                }
            }
            (Some(Value::Array(before)), Some(Value::Array(after))) => self.lists(pointer, before, after),
            (Some(Value::String(before)), Some(Value::String(after))) if has_lines(before, after) => {
                self.push(Change {
                    pointer: pointer.to_owned(),
                    kind: ChangeKind::Changed,
                    before: None,
                    after: None,
                    lines: lines(before, after),
                });
            }
            (before, after) => {
                let kind = match (before, after) {
                    (None, _) => ChangeKind::Added,
                    (_, None) => ChangeKind::Removed,
                    _ => ChangeKind::Changed,
                };
                let text = |value: &Value| preview(value, MAX_VALUE).0;
                let (before, after) = (before.map(text), after.map(text));
                self.push(Change { pointer: pointer.to_owned(), kind, before, after, lines: Vec::new() });
            }
        }
    }

    /// Compares lists without their common beginning and end. The pointers are positions in the list where an entry is.
    fn lists(&mut self, pointer: &str, before: &[Value], after: &[Value]) {
        let begin = before.iter().zip(after).take_while(|(one, other)| one == other).count();
        let (before, after) = (&before[begin..], &after[begin..]);
        let end = before.iter().rev().zip(after.iter().rev()).take_while(|(one, other)| one == other).count();
        let (before, after) = (&before[..before.len() - end], &after[..after.len() - end]);
        for at in 0..before.len().max(after.len()) {
            self.compare(&format!("{pointer}/{}", begin + at), before.get(at), after.get(at));
        }
    }

    fn push(&mut self, change: Change) {
        if self.changes.len() < MAX_CHANGES { self.changes.push(change) } else { self.more += 1 }
    }
}

/// Returns whether texts are compared by lines.
fn has_lines(before: &str, after: &str) -> bool {
    (before.contains('\n') || after.contains('\n')) && before.len() + after.len() <= MAX_TEXT
}

fn lines(before: &str, after: &str) -> Vec<DiffLine> {
    let diff = TextDiff::from_lines(before, after);
    let mut lines = Vec::new();
    for (nth, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if nth > 0 {
            lines.push(DiffLine { sign: '~', text: String::new() });
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            lines.push(DiffLine { sign, text: change.value().trim_end_matches('\n').to_owned() });
        }
    }
    if lines.len() > MAX_LINES {
        let more = lines.len() - MAX_LINES;
        lines.truncate(MAX_LINES);
        lines.push(DiffLine { sign: '~', text: format!("{more} more lines") });
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compared(before: &Value, after: &Value) -> ChannelChange {
        channel("c", Some(before), Some(after))
    }

    #[test]
    fn an_appended_entry_is_one_change() {
        let change = compared(&json!([1, 2]), &json!([1, 2, { "role": "tool" }]));
        assert_eq!(change.summary, "+1 of 3");
        let [only] = &change.changes[..] else { panic!("{change:?}") };
        assert_eq!((&*only.pointer, only.kind), ("/2", ChangeKind::Added));
        assert_eq!(only.after.as_deref(), Some(r#"{"role":"tool"}"#));
    }

    #[test]
    fn a_change_inside_of_a_value_has_its_place() {
        let change = compared(&json!({ "a/b": [{ "x": 1 }, 2] }), &json!({ "a/b": [{ "x": 3 }, 2] }));
        assert_eq!(change.changes[0].pointer, "/a~1b/0/x");
        assert_eq!(change.changes[0].before.as_deref(), Some("1"));
    }

    #[test]
    fn texts_are_compared_by_lines() {
        let change = compared(&json!("one\ntwo\nthree\n"), &json!("one\n2\nthree\n"));
        let signs: String = change.changes[0].lines.iter().map(|line| line.sign).collect();
        assert_eq!(signs, " -+ ");
    }

    #[test]
    fn states_have_changed_and_unchanged_channels() {
        let state = |json: Value| json.as_object().cloned().unwrap_or_default();
        let found = changes(&state(json!({ "a": 1, "b": 2 })), &state(json!({ "a": 1, "c": 2 })), Some(3));
        assert_eq!(found.unchanged, ["a"]);
        let names: Vec<_> =
            found.channels.iter().map(|change| (&*change.channel, &*change.summary)).collect();
        assert_eq!(names, [("c", "set"), ("b", "cleared")]);
    }

    #[test]
    fn changes_are_bounded() {
        let numbers = |from: usize| Value::from((from..from + 500).collect::<Vec<_>>());
        let change = compared(&numbers(0), &numbers(1_000));
        assert_eq!((change.changes.len(), change.more), (MAX_CHANGES, 300));
    }
}
