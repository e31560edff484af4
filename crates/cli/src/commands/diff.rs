//! `diff`: compares two states by channel.
//!
//! Start at [`diff`].

use anstyle::{AnsiColor, Style};
use serde_json::{Map, Value, json};
use similar::{ChangeTag, TextDiff};
use superstep::{CheckpointId, erased::JsonSnapshot};
use superstep_session::{error::SessionError, text::printable_line};

use crate::{
    args::shared::{DatabaseArgs, DiffArgs, Locate},
    graphs::graph_set::GraphSet,
    output::{
        exit::Exit,
        table::{lines, print, print_styled},
    },
};

const REMOVED: Style = AnsiColor::Red.on_default();
const ADDED: Style = AnsiColor::Green.on_default();
const CHANNEL: Style = Style::new().bold();

/// The number of equal lines that are shown around a difference.
const CONTEXT: usize = 2;

struct ComparedState {
    /// The thread, the checkpoint and the superstep.
    title: String,
    values: Map<String, Value>,
}

impl ComparedState {
    /// Creates a side from a thread's state.
    ///
    /// # Errors
    /// The thread does not exist.
    fn new(
        thread: &str,
        snapshot: JsonSnapshot,
        unknown: impl FnOnce() -> SessionError,
    ) -> Result<Self, SessionError> {
        let meta = snapshot.checkpoint.as_ref().ok_or_else(unknown)?;
        let title = format!("{}@{}  superstep {}", printable_line(thread), meta.id, meta.control.step);
        Ok(Self { title, values: snapshot.state.values()? })
    }
}

/// Shows the differing channels of two states.
pub(crate) async fn diff<L: Locate>(args: DiffArgs<L>, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let DiffArgs { a, b, database: DatabaseArgs { location, json } } = args;
    let location = location.locate(&graphs.program)?;
    let side = async |name: &str, at: Option<CheckpointId>| {
        let found = graphs.find(&location, name, at).await?;
        ComparedState::new(name, found.open_at(at).state().await?, || location.unknown(name))
    };
    let Some(name) = a.name else {
        return Err(SessionError::usage("the first state has no thread: write `THREAD@CHECKPOINT`"));
    };
    let (one, other) = (
        side(&name, a.at.map(CheckpointId)).await?,
        side(b.name.as_deref().unwrap_or(&name), b.at.map(CheckpointId)).await?,
    );
    let channels: Vec<&String> = one.values.keys().chain(other.values.keys()).collect();
    let mut channels: Vec<&String> =
        channels.into_iter().filter(|name| one.values.get(*name) != other.values.get(*name)).collect();
    channels.sort();
    channels.dedup();
    if json {
        return print(&lines(channels.into_iter().map(
            |name| json!({ "channel": name, "a": one.values.get(name), "b": other.values.get(name) }),
        )));
    }
    if channels.is_empty() {
        return print("no differences\n");
    }
    let mut shown = vec![(REMOVED, format!("--- {}", one.title)), (ADDED, format!("+++ {}", other.title))];
    for name in channels {
        shown.push((CHANNEL, name.clone()));
        shown.extend(compared(one.values.get(name), other.values.get(name)));
    }
    print_styled(&shown)
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
fn readable(value: &Value) -> String {
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
                let begins = ["- "].into_iter().chain(std::iter::repeat("  "));
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
