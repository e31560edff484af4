//! The difference of two states, by channel and line.
//!
//! Start at [`differences`].

use std::iter;

use anstyle::{AnsiColor, Style};
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};
use superstep::{CheckpointId, erased::JsonSnapshot};
use superstep_session::{config::location::Location, error::SessionError, text::printable_line};

use crate::graphs::graph_set::GraphSet;

const REMOVED: Style = AnsiColor::Red.on_default();
const ADDED: Style = AnsiColor::Green.on_default();
const CHANNEL: Style = Style::new().bold();

/// The number of equal lines that are shown around a difference.
const CONTEXT: usize = 2;

/// A state to compare.
pub(crate) struct ComparedState {
    /// The thread, the checkpoint and the superstep.
    title: String,
    pub(crate) values: Map<String, Value>,
}

impl ComparedState {
    /// Loads the state of a thread at a checkpoint, or at the newest one.
    ///
    /// # Errors
    /// The thread does not exist.
    pub(crate) async fn load(
        location: &Location,
        graphs: &GraphSet,
        thread: &str,
        at: Option<CheckpointId>,
    ) -> Result<Self, SessionError> {
        let found = graphs.find(location, thread, at).await?;
        let snapshot: JsonSnapshot = found.open_at(at).state().await?;
        let meta = snapshot.checkpoint.as_ref().ok_or_else(|| location.unknown(thread))?;
        let title = format!("{}@{}  superstep {}", printable_line(thread), meta.id, meta.control.step);
        Ok(Self { title, values: snapshot.state.values()? })
    }

    /// Returns the names of the channels whose values differ.
    pub(crate) fn changed_channels<'a>(&'a self, other: &'a Self) -> Vec<&'a String> {
        let all = self.values.keys().chain(other.values.keys());
        let mut channels: Vec<_> =
            all.filter(|name| self.values.get(*name) != other.values.get(*name)).collect();
        channels.sort();
        channels.dedup();
        channels
    }
}

/// Formats the differing channels of two states.
pub(crate) fn differences(one: &ComparedState, other: &ComparedState) -> Vec<(Style, String)> {
    let channels = one.changed_channels(other);
    if channels.is_empty() {
        return vec![(Style::new(), "no differences".to_owned())];
    }
    let mut shown = vec![(REMOVED, format!("--- {}", one.title)), (ADDED, format!("+++ {}", other.title))];
    for name in channels {
        shown.push((CHANNEL, name.clone()));
        shown.extend(compared(one.values.get(name), other.values.get(name)));
    }
    shown
}

/// Formats the difference of two values line by line.
fn compared(one: Option<&Value>, other: Option<&Value>) -> Vec<(Style, String)> {
    let text = |value: Option<&Value>| value.map_or_else(String::new, readable);
    let (one, other) = (text(one), text(other));
    let diff = TextDiff::from_lines(&one, &other);
    let mut shown = Vec::new();
    for (nth, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if nth > 0 {
            shown.push((Style::new(), "    …".to_owned()));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (style, sign) = match change.tag() {
                ChangeTag::Delete => (REMOVED, '-'),
                ChangeTag::Insert => (ADDED, '+'),
                ChangeTag::Equal => (Style::new(), ' '),
            };
            shown.push((style, format!("  {sign} {}", change.value().trim_end_matches('\n'))));
        }
    }
    shown
}

/// Formats a value with a line for each text, number and line of a text, so that values can be compared by lines.
pub(crate) fn readable(value: &Value) -> String {
    let mut lines = Vec::new();
    write(value, &mut lines);
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn write(value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains('\n') => {
            lines.push("|".to_owned());
            lines.extend(text.split('\n').map(|line| format!("  {line}")));
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let mut inner = Vec::new();
                write(item, &mut inner);
                let begins = ["- "].into_iter().chain(iter::repeat("  "));
                lines.extend(begins.zip(inner).map(|(begin, line)| format!("{begin}{line}")));
            }
        }
        Value::Object(entries) if !entries.is_empty() => {
            for (name, entry) in entries {
                let mut inner = Vec::new();
                write(entry, &mut inner);
                // A single line, or the sign before the lines of a text.
                let beside = usize::from(inner.len() == 1 || entry.is_string());
                let first: String = inner.drain(..beside).map(|line| format!(" {line}")).collect();
                lines.push(format!("{name}:{first}"));
                lines.extend(inner.into_iter().map(|line| format!("  {line}")));
            }
        }
        other => lines.push(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_and_texts_are_compared_line_by_line() {
        let one =
            json!([{"role": "user", "content": "first\nsecond"}, {"role": "assistant", "content": "yes"}]);
        let other =
            json!([{"role": "user", "content": "first\nthird"}, {"role": "assistant", "content": "yes"}, 5]);
        let shown: Vec<_> = compared(Some(&one), Some(&other)).into_iter().map(|(_, line)| line).collect();
        let wanted = [
            "    - content: |",
            "          first",
            "  -       second",
            "  +       third",
            "      role: \"user\"",
            "    - content: \"yes\"",
            "      role: \"assistant\"",
            "  + - 5",
        ];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn a_text_differs_from_the_number_like_it() {
        let shown: Vec<_> =
            compared(Some(&json!(5)), Some(&json!("5"))).into_iter().map(|(_, line)| line).collect();
        assert_eq!(shown, ["  - 5", "  + \"5\""]);
    }
}
