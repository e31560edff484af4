//! Values, routes and events as text that does not depend on the build.

use std::fmt::{self, Write};

use serde_json::{Map, Value};
use superstep_graph::{Event, State, topology::Control};

/// The name of the end, as in drawings.
const END: &str = "__end__";

/// The length of the longest value that is shown in one line.
const WIDTH: usize = 100;

/// Returns a value with the entries of all maps sorted, independent of the features of `serde_json`.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(name, _)| *name);
            let entries = entries.into_iter().map(|(name, value)| (name.clone(), sorted(value)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

pub(crate) fn line(value: &Value) -> String {
    sorted(value).to_string()
}

/// Writes a name and a value, in one line if it is short.
pub(super) fn named(out: &mut impl Write, name: &str, value: &Value) -> fmt::Result {
    let text = line(value);
    if text.chars().count() <= WIDTH {
        return writeln!(out, "  {name} {text}");
    }
    let long = serde_json::to_string_pretty(&sorted(value)).expect("JSON becomes text");
    writeln!(out, "  {name} {}", long.replace('\n', "\n  "))
}

/// Returns the entries of what runs next.
pub(super) fn next_lines(next: &Control) -> Vec<String> {
    let tasks = (0..).zip(&next.next).map(|(slot, node)| match next.items.get(&slot) {
        Some(item) => {
            format!("{node} {}", serde_json::from_str(item).map_or_else(|_| item.clone(), |item| line(&item)))
        }
        None => node.to_string(),
    });
    let joins = next.arrived.iter().map(|(join, arrived)| {
        let (sources, to) = join.split_once(':').unwrap_or((join, "?"));
        let missing = sources.split('|').filter(|source| arrived.iter().all(|node| node.as_str() != *source));
        format!("{to} (waits for {})", missing.collect::<Vec<_>>().join(", "))
    });
    let deferred = next.deferred.iter().map(|node| format!("{node} (deferred)"));
    let lines: Vec<_> = tasks.chain(joins).chain(deferred).collect();
    if lines.is_empty() { vec![END.to_owned()] } else { lines }
}

/// Writes an event of a node; nothing for an event of another kind.
pub(super) fn event<S: State>(out: &mut impl Write, event: &Event<S>) -> fmt::Result {
    match event {
        Event::Custom { name, data, .. } => named(out, name, data),
        Event::Message { id, kind, data, .. } => {
            message(out, "", serde_json::to_value(kind).unwrap_or_default().as_str(), id, data)
        }
        Event::Subgraph { path, event } => {
            let path: Vec<&str> = path.0.iter().map(|segment| segment.node.as_str()).collect();
            let (path, data) = (path.join("/"), &event["data"]);
            let node = data["node"].as_str().unwrap_or_default();
            match event["event"].as_str() {
                Some("custom") => named(
                    out,
                    &format!("{path}/{node}: {}", data["name"].as_str().unwrap_or_default()),
                    &data["data"],
                ),
                Some("message") => {
                    let (kind, id) = (data["kind"].as_str(), data["id"].as_str().unwrap_or_default());
                    message(out, &format!("{path}/{node}: "), kind, id, &data["data"])
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Writes a message or a piece of one; `place` is the node, if it is not that of the test.
fn message(out: &mut impl Write, place: &str, kind: Option<&str>, id: &str, data: &Value) -> fmt::Result {
    match kind {
        Some("chunk") => named(out, &format!("{place}piece of {id}"), data),
        Some("discarded") => writeln!(out, "  {place}void {id}"),
        _ => named(out, &format!("{place}message {id}"), data),
    }
}
